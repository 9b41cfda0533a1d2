"""Arguments of ``collect`` that are refused, and what is written of the others."""

from __future__ import annotations

import gymnasium as gym
import pytest

from coding_gym.datasets import collect
from coding_gym.errors import ConfigurationError, DatasetError, ProviderError


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 2}, "seed was 1, now it is 2"),
        ({"max_steps": 7}, "max_steps was 100, now it is 7"),
        ({"env_options": {"step_timeout": 3}}, "env_options.step_timeout was 60, now it is 3"),
        ({"reset_options": {"files": {"a": b"x"}}}, "reset_options was ''"),
        ({"wrappers": [gym.wrappers.RecordEpisodeStatistics]}, r"wrappers was \[\].*RecordEpisodeStatistics"),
        ({"tasks": ["a"]}, r"tasks was \[\], now it is \['a'\]"),
    ],
)
def test_changed_arguments_are_refused_on_resume(collect_here, change, said):
    collect_here(["1"], 1)
    with pytest.raises(DatasetError, match=said):
        collect_here(["1"], 1, **change)


def test_changed_policy_is_refused_on_resume(collect_here):
    collect_here(["1"], 1)
    with pytest.raises(DatasetError, match=r"policy.sha256 was '.*', now it is '.*'. Choose another directory"):
        collect_here(["2"], 1)
    with pytest.raises(DatasetError, match=r"policy.name was 'scripted', now it is 'random'"):
        collect_here("random", 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"episodes": 0}, "episodes="),
        ({"seed": -1}, "seed="),
        ({"sessions": 0}, "sessions="),
        ({"max_steps": 0}, "max_steps="),
        ({"policy": 7}, "Expected a Policy, 'random', a list of actions"),
        ({"env_options": {"screen": object()}}, "Expected env_options= to be data"),
        ({"reset_options": {"files": {"a": object()}}}, "Expected reset_options= to be data"),
        ({"env": lambda: None, "env_options": {"a": 1}}, "a callable passes its own"),
    ],
)
def test_invalid_arguments_are_refused_at_once(tmp_path, options, said):
    arguments = {"env": "CodingEnv-v0", "policy": "random", "episodes": 1, "seed": 1, **options}
    with pytest.raises(ConfigurationError, match=said):
        collect(path=tmp_path / "a", **arguments)
    assert not (tmp_path / "a").exists()


def test_unavailable_sandbox_raises_at_once(tmp_path):
    options = {"provider": "docker", "image": "nonexistent/image:none"}
    with pytest.raises(ProviderError):
        collect("CodingEnv-v0", "random", 1, seed=1, path=tmp_path, env_options=options)


def test_token_is_never_written(tmp_path):
    options = {"provider": "remote", "base_url": "http://127.0.0.1:9", "token": "s3cret", "start_timeout": 0.2}
    with pytest.raises(ProviderError):
        collect("CodingEnv-v0", "random", 1, seed=1, path=tmp_path, env_options=options)
    assert "base_url" in (tmp_path / "manifest.json").read_text()
    assert all(b"s3cret" not in file.read_bytes() for file in tmp_path.iterdir())
