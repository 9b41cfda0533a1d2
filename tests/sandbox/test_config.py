from __future__ import annotations

import dataclasses
import pickle

import pytest

import coding_gym
from coding_gym import SandboxConfig
from coding_gym.errors import CodingGymError, ConfigurationError
from coding_gym.sandbox.config import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("7b", 7),
        ("2k", 2048),
        ("2kb", 2048),
        ("512m", 512 << 20),
        ("512M", 512 << 20),
        ("2g", 2 << 30),
        ("2GB", 2 << 30),
        ("1t", 1 << 40),
        (4096, 4096),
    ],
)
def test_sizes_are_parsed(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "0", "0m", "m", "-1m", "1.5g", "1 g", "1gib", "1x", "1e9", None, "\N{ARABIC-INDIC DIGIT ONE}", [], "1m\n1"]
)
def test_invalid_size_is_refused(text):
    with pytest.raises(ConfigurationError, match=r"Expected mem= to be a size such as '512m'"):
        parse_size(text, "mem")


def test_defaults():
    config = SandboxConfig()
    assert (config.provider, config.cpu, config.mem, config.pids_limit, config.network) == ("auto", 2, "2g", 256, None)


def test_config_is_frozen_keyword_only_and_picklable():
    config = SandboxConfig(provider="local", preload=["json"])
    assert config.preload == ("json",)
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.mem = "1g"
    with pytest.raises(TypeError):
        SandboxConfig("local")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"provider": "podman"}, "provider"),
        ({"provider": None}, "provider"),
        ({"transport": "udp"}, "transport"),
        ({"isolation": "maybe"}, "isolation"),
        ({"cpu": 0}, "cpu"),
        ({"cpu": -1}, "cpu"),
        ({"cpu": "2"}, "cpu"),
        ({"cpu": float("nan")}, "cpu"),
        ({"cpu": float("inf")}, "cpu"),
        ({"pids_limit": 0}, "pids_limit"),
        ({"pids_limit": 1.5}, "pids_limit"),
        ({"session_pids_limit": 3}, "session_pids_limit"),
        ({"session_pids_limit": "64"}, "session_pids_limit"),
        ({"inodes": 999}, "inodes"),
        ({"inodes": 1e5}, "inodes"),
        ({"inodes": None}, "inodes"),
        ({"sessions": 0}, "sessions"),
        ({"sessions": 1.5}, "sessions"),
        ({"sessions": True}, "sessions"),
        ({"start_timeout": 0}, "start_timeout"),
        ({"start_timeout": None}, "start_timeout"),
        ({"idle_timeout": -1}, "idle_timeout"),
        ({"spare_workers": -1}, "spare_workers"),
        ({"spare_workers": 0.5}, "spare_workers"),
        ({"spare_workers": "1"}, "spare_workers"),
        ({"mem": "lots"}, "mem"),
        ({"mem": None}, "mem"),
        ({"disk": "0"}, "disk"),
        ({"shm_size": ""}, "shm_size"),
        ({"preload": "numpy"}, "preload"),
        ({"preload": None}, "preload"),
        ({"system_packages": "gcc"}, "system_packages"),
        ({"system_packages": ["-o=x"]}, "system_packages=: '-o=x' is not the name of a Debian package"),
        ({"system_packages": ["gcc-"]}, "system_packages"),
        ({"system_packages": ["GCC"]}, "system_packages"),
        ({"system_packages": ["gcc tcc"]}, "system_packages"),
        ({"system_packages": ["./a.deb"]}, "system_packages"),
        ({"system_packages": [""]}, "system_packages"),
        ({"system_packages": ["gcc"], "provider": "remote", "base_url": "http://127.0.0.1:1"}, "system_packages= cannot"),
        ({"packages": ["toolz"], "provider": "remote", "base_url": "a:1"}, "packages= cannot be combined with base_url=:"),
        ({"packages": ["toolz"], "provider": "remote", "base_urls": ["a:1"]}, "packages= cannot be combined with base_urls=:"),
        ({"provider": "remote"}, "base_url"),
        ({"provider": "docker", "base_url": "http://127.0.0.1:1"}, "base_url"),
        ({"provider": "local", "base_url": "http://127.0.0.1:1"}, "base_url"),
        ({"root": 1}, "root"),
        ({"root": True, "provider": "local"}, "root=True requires provider='docker'"),
        ({"root": True, "provider": "remote", "base_url": "http://127.0.0.1:1"}, "root=True requires"),
        ({"root": True, "base_url": "http://127.0.0.1:1"}, "root=True requires"),
        ({"root": True, "sessions": 2}, "root=True requires .* sessions=2"),
        ({"provider": "remote", "base_url": "ftp://127.0.0.1"}, "(?i)url"),
    ],
)
def test_bad_value_is_refused_by_name(options, named):
    with pytest.raises(ConfigurationError, match=named) as caught:
        SandboxConfig(**options)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, CodingGymError)


def test_unknown_setting_is_refused_with_valid_names():
    with pytest.raises(ConfigurationError, match=r"'nope'.*'memory' \(did you mean 'mem'\?\).*mem, .*provider"):
        SandboxConfig.of({"nope": 1, "memory": "1g"})


def test_repr_hides_token():
    config = SandboxConfig(provider="remote", base_url="http://127.0.0.1:1", token="secret-token")
    assert "secret-token" not in repr(config)


def test_of_accepts_every_field():
    config = SandboxConfig(provider="local", mem="1g")
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    assert SandboxConfig.of(fields) == config


def test_public_names_are_sorted_and_exist():
    assert sorted(coding_gym.__all__) == coding_gym.__all__
    assert all(hasattr(coding_gym, name) for name in coding_gym.__all__)
