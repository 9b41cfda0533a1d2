"""Real sandboxes, shared by all tests: one per provider."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import docker
import psutil
import pytest

from coding_gym.config import SandboxConfig
from coding_gym.errors import ProviderUnavailableError
from coding_gym.pool import SandboxPool
from coding_gym.providers import Sandbox, start_sandbox
from coding_gym.providers.docker import connect_to_engine, our_containers
from coding_gym.providers.owner import Owner
from coding_gym_server.protocol import Observation, ResetOptions, Step, StepAction

_PR_SET_CHILD_SUBREAPER = 36
_GONE_WITHIN = 5.0
_ANSWER_WITHIN = 30.0


class TestSession:
    """A session whose steps take 10 s at most unless told otherwise."""

    __test__ = False

    def __init__(self, sandbox: Sandbox) -> None:
        self._session = sandbox.connect()

    def reset(self, **options: Any) -> Observation:
        self._session.ask_reset(ResetOptions(**options))
        return self._session.wait(timeout=_ANSWER_WITHIN).observation

    def run(self, code: str, timeout: float | None = 10.0, **options: Any) -> Observation:
        self.begin(code, timeout, **options)
        return self._session.wait(timeout=(timeout or 0) + _ANSWER_WITHIN).observation

    def begin(self, code: str, timeout: float | None = 10.0, **options: Any) -> None:
        """Send a step and do not wait for its end."""
        # ask_step has no time limit of its own.
        self._session._ask(Step(StepAction(code=code, timeout_s=timeout, **options)))

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="session", autouse=True)
def no_leftovers() -> Iterator[None]:
    # Whatever a sandbox leaves behind becomes a child of this process, and so can be told from other people's.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    left = _wait_until_none(_our_servers)
    with contextlib.suppress(ProviderUnavailableError):
        client = connect_to_engine()
        left += _wait_until_none(lambda: _our_containers(client))
        client.close()
    assert not left


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerClient]:
    try:
        client = connect_to_engine()
    except ProviderUnavailableError as error:
        if "docker" in os.environ.get("CODING_GYM_REQUIRE", "").split(","):
            pytest.fail(str(error))
        pytest.skip(str(error))
    yield client
    client.close()


@pytest.fixture(scope="session")
def xvfb() -> None:
    """What the local provider's screens want."""
    if shutil.which("Xvfb") is None:
        reason = "the local provider's screens want Xvfb"
        if "display" in os.environ.get("CODING_GYM_REQUIRE", "").split(","):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(scope="session", params=[pytest.param("docker", marks=pytest.mark.docker), "local"])
def provider(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("docker_engine")
    return request.param


@pytest.fixture(scope="session")
def screen_provider(provider: str, request: pytest.FixtureRequest) -> str:
    """A provider whose sandboxes have screens."""
    if provider == "local":
        request.getfixturevalue("xvfb")
    return provider


@pytest.fixture(scope="session")
def sandbox(provider: str) -> Iterator[Sandbox]:
    # It does not end by itself while other tests run.
    config = SandboxConfig(provider=provider, sessions=16, idle_timeout=3600)
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    """One small sandbox for all environments of a module."""
    with SandboxPool(1, provider="local", preload=(), sessions=4, acquire_timeout=60) as pool:
        yield pool


@pytest.fixture
def connect() -> Iterator[Callable[[Sandbox], TestSession]]:
    with contextlib.ExitStack() as stack:
        yield lambda sandbox: stack.enter_context(contextlib.closing(TestSession(sandbox)))
    _reap_adopted()


@pytest.fixture
def open_session(connect: Callable[[Sandbox], TestSession], sandbox: Sandbox) -> Callable[[], TestSession]:
    return lambda: connect(sandbox)


@pytest.fixture
def session(open_session: Callable[[], TestSession]) -> TestSession:
    return open_session()


def _reap_adopted() -> None:
    # What init would do. Zombies count against the limit of processes.
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error, ChildProcessError):
            if process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)


def _our_servers() -> list[str]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if "coding_gym_server" in command:
                found.append(f"process {process.pid}: {command}")
    return found


def _our_containers(client: docker.DockerClient) -> list[str]:
    return [f"container {container.name}" for container, owner in our_containers(client) if owner == Owner.current()]


def _wait_until_none(find: Callable[[], list[str]]) -> list[str]:
    deadline = time.monotonic() + _GONE_WITHIN
    while (found := find()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found
