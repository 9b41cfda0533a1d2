"""Providers that are not available say what to do, at once."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import textwrap

import gymnasium as gym
import pytest

from coding_gym import CodeInterpreter, CodingClient, SandboxConfig, SandboxPool
from coding_gym.errors import ConfigurationError, ProviderUnavailableError, SandboxStartError, TransportError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.docker.engine import connect_to_engine
from tests.support.timing import promptly

_SERVE = "Start a server with 'coding-gym serve', or correct the URL"


@pytest.fixture
def closed_url():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        # Bound, but not listening: nothing else can take the port.
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def test_closed_port_fails_soon(closed_url):
    with (
        promptly(),
        gym.make("CodingEnv-v0", provider="remote", base_url=closed_url) as env,
        pytest.raises(SandboxStartError, match=f"There is no server at base_url=: .*Connection refused. {_SERVE}"),
    ):
        env.reset()


def test_clients_of_closed_port_name_the_command(closed_url):
    with pytest.raises(TransportError, match=_SERVE):
        CodingClient(closed_url)
    with CodeInterpreter(closed_url) as interpreter, pytest.raises(TransportError, match=_SERVE):
        interpreter.execute("1")


def test_root_does_without_no_container(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    with pytest.raises(ProviderUnavailableError, match="docker"):
        start_sandbox(SandboxConfig(root=True))


@pytest.mark.parametrize("host", ["unix:///no/such.sock", "tcp://127.0.0.1:1", "nonsense://"])
def test_wrong_engine_address_is_explained(monkeypatch, host):
    monkeypatch.setenv("DOCKER_HOST", host)
    with pytest.raises(ProviderUnavailableError, match="Correct or unset DOCKER_HOST; or pass provider='local'"):
        start_sandbox(SandboxConfig(provider="docker"))


def test_engine_problems_have_remedies(monkeypatch, tmp_path):
    from coding_gym.sandbox.docker import engine

    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "_engine_hosts", lambda: iter([f"unix://{tmp_path}/none.sock"]))
    with pytest.raises(ProviderUnavailableError, match="Install Docker or Podman, and start it"):
        connect_to_engine()
    monkeypatch.setattr(engine, "socket_error", lambda host: "Permission denied")
    with pytest.raises(ProviderUnavailableError, match="Add your user to the group of the socket"):
        connect_to_engine()


def test_automatic_fallback_says_what_is_missing(monkeypatch, caplog):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    monkeypatch.setenv("PATH", "/nowhere")
    config = SandboxConfig(preload=("no_such_module",), image="mine")
    with caplog.at_level(logging.WARNING, "coding_gym"), contextlib.closing(start_sandbox(config)):
        pass
    [said] = [record.getMessage() for record in caplog.records if "no Docker engine" in record.getMessage()]
    for missing in ("limits of a container", "a screen (apt install xvfb", "modules no_such_module", "the effect of image="):
        assert missing in said


def start_limited(limit):
    """Start a local sandbox in a process with a limit, and return its error."""
    code = f"""
        import resource
        from coding_gym.errors import SandboxStartError
        from coding_gym.sandbox import start_sandbox
        from coding_gym.sandbox.config import SandboxConfig
        {limit}
        try:
            start_sandbox(SandboxConfig(provider="local", preload=())).close()
        except SandboxStartError as error:
            print(error)
    """
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    # Only a process with a single thread can join a namespace.
    environment["OPENBLAS_NUM_THREADS"] = "1"
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_missing_directory_for_temporary_files_has_a_remedy():
    # No file can be written, as on a file system that is read-only.
    found = start_limited("resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))")
    assert "mount one at /tmp (docker run --tmpfs /tmp, or an emptyDir of the pod), or set XDG_RUNTIME_DIR" in found


def test_setting_that_forbids_namespaces_is_named():
    # In a user namespace whose only user is not root, and which may lower the limit.
    forbid = """
        import os
        from coding_gym_server.linux import mounts, user_namespaces
        mounts.join(user_namespaces.create([(54321, os.geteuid(), 1)], [(54321, os.getegid(), 1)]), mounts.NEW_USERS)
        open("/proc/sys/user/max_user_namespaces", "w").write("0")
    """
    found = start_limited(textwrap.indent(textwrap.dedent(forbid), " " * 8).strip())
    assert "sysctl user.max_user_namespaces is 0: raise it" in found


@pytest.mark.parametrize("option", ["image", "runtime", "network"])
def test_option_of_containers_is_refused_elsewhere(option):
    with pytest.raises(ConfigurationError, match=f"provider='local' does not have {option}="):
        SandboxPool(provider="local", **{option: "x"})


@pytest.mark.docker
@pytest.mark.parametrize(("mem", "reason"), [("1m", "[Mm]emory"), ("8m", "ran out of memory"), ("24m", "ran out of memory")])
def test_too_little_memory_is_named(docker_engine, mem, reason):
    """In the words of the engine, which refuses the container or sees it end."""
    with pytest.raises(SandboxStartError, match=reason) as caught:
        start_sandbox(SandboxConfig(provider="docker", mem=mem))
    assert "mem=" in str(caught.value)


@pytest.mark.docker
def test_engine_that_starts_no_container_is_not_chosen(docker_engine, caplog):
    # More processors than any machine has: Docker refuses, and local sandboxes have no such limit.
    config = SandboxConfig(cpu=1e6, preload=())
    with caplog.at_level(logging.WARNING, "coding_gym"), contextlib.closing(start_sandbox(config)) as sandbox:
        assert sandbox.description.startswith("a local sandbox")
    assert any("no Docker engine starts a container (The container cannot be created" in message for message in caplog.messages)


@pytest.mark.docker
def test_option_of_containers_forbids_another_provider(docker_engine):
    with pytest.raises(SandboxStartError, match="no-such-runtime"):
        start_sandbox(SandboxConfig(runtime="no-such-runtime"))
