"""Fixtures with real sandboxes, shared by the tests of a process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import psutil
import pytest

from coding_gym.client.session import SessionHttp
from coding_gym.errors import ProviderUnavailableError
from coding_gym.sandbox import Sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.cleanup import our_containers
from coding_gym.sandbox.docker.engine import connect_to_engine
from coding_gym.sandbox.ownership import OwnerProcess
from coding_gym.sandbox.pool import SandboxPool
from coding_gym_server.protocol import Observation, ResetOptions, StepAction, StepRequest
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.requirements import require_display, require_docker
from tests.support.timing import eventually

pytest_plugins = [
    "tests.support.durations",
    "tests.support.tiers",
    "tests.support.order",
    "tests.support.browser.fixtures",
    *(["plugins.trainers.tests.compat"] if "CODING_GYM_COMPAT" in os.environ else []),
]

# What the terminal and the network of this machine are like changes neither what programs print, nor how tests reach servers.
for _name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR"):
    os.environ.pop(_name, None)
os.environ["no_proxy"] = os.environ["NO_PROXY"] = f"{os.environ.get('no_proxy', '')},localhost,127.0.0.1".lstrip(",")

_PR_SET_CHILD_SUBREAPER = 36
_ANSWER_WITHIN = 30.0


class TestSession:
    """Session with a default step timeout of 30 s."""

    __test__ = False

    def __init__(self, sandbox: Sandbox) -> None:
        self._session = sandbox.connect()

    def reset(self, **options: Any) -> Observation:
        self._session.ask_reset(ResetOptions(**options))
        return self._session.wait(timeout=_ANSWER_WITHIN).observation

    def run(self, code: str, timeout: float | None = 30.0, **options: Any) -> Observation:
        self.begin(code, timeout, **options)
        return self._session.wait(timeout=(timeout or 0) + _ANSWER_WITHIN).observation

    def begin(self, code: str, timeout: float | None = 30.0, **options: Any) -> None:
        """Send a step without waiting for its end."""
        # ask_step has no timeout parameter.
        self._session._ask(StepRequest(StepAction(code=code, timeout_s=timeout, **options)))

    def clone(self) -> str:
        """Return the id of a new snapshot."""
        return self._session.clone().snapshot

    def restore(self, snapshot: str, *, seed: int | None = None, release: bool = False) -> Observation:
        """Continue from a snapshot."""
        self._session.ask_restore(snapshot, seed=seed, release=release)
        return self._session.wait(timeout=_ANSWER_WITHIN).observation

    def release(self, *snapshots: str) -> None:
        for snapshot in snapshots:
            self._session.release(snapshot)

    @property
    def id(self) -> str | None:
        return self._session._connection.session_id

    @property
    def http(self) -> SessionHttp:
        return self._session.http

    def close(self) -> None:
        self._session.close()


@pytest.fixture(scope="session", autouse=True)
def no_leftovers() -> Iterator[None]:
    # Orphans of sandboxes become children of this process, which distinguishes them from unrelated processes.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    left = _wait_until_none(_our_servers)
    with contextlib.suppress(ProviderUnavailableError):
        client = connect_to_engine()
        left += _wait_until_none(lambda: _our_containers(client))
        client.close()
    assert not left


@pytest.fixture(scope="session", autouse=True)
def delivered_interrupts() -> None:
    """Handle SIGINT, which shells start background jobs without; tests interrupt this process."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def frozen_imports() -> None:
    """Exclude the hundreds of thousands of objects of imported libraries from garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[docker.DockerClient]:
    require_docker()
    client = connect_to_engine()
    yield client
    client.close()


@pytest.fixture(scope="session")
def xvfb() -> None:
    """Require Xvfb for the screens of local sandboxes."""
    require_display()


@pytest.fixture(scope="session")
def provider(request: pytest.FixtureRequest) -> str:
    """Name of the provider; ``tests/support/tiers.py`` selects the providers of each test."""
    if request.param == "docker":
        require_docker()
    return request.param


@pytest.fixture(scope="session")
def screen_provider(provider: str) -> str:
    """Name of a provider whose sandboxes have screens."""
    if provider == "local":
        require_display()
    return provider


@pytest.fixture(scope="session")
def sandbox_of() -> Iterator[Callable[..., Sandbox]]:
    """Function that returns the sandbox for a configuration, which all tests of this process share.

    It is for tests without lasting effects: they close their sessions, and neither kill the sandbox nor exhaust its limits.
    """
    with contextlib.ExitStack() as stack:
        started: dict[SandboxConfig, Sandbox] = {}

        def get(**options: Any) -> Sandbox:
            options = {"preload": (), "sessions": 16, **options}
            config = SandboxConfig(**options)
            if config not in started:
                started[config] = stack.enter_context(lasting_sandbox(**options))
            return started[config]

        yield get


@pytest.fixture(scope="session")
def sandbox(provider: str, sandbox_of: Callable[..., Sandbox]) -> Sandbox:
    """Shared sandbox with the default preloaded modules."""
    return sandbox_of(provider=provider, preload=SandboxConfig().preload)


@pytest.fixture(scope="session")
def pool() -> Iterator[SandboxPool]:
    """Pool with one small sandbox, for tests that close their environments."""
    with SandboxPool(1, provider="local", preload=(), sessions=4, acquire_timeout=60) as pool:
        yield pool


@pytest.fixture
def connect() -> Iterator[Callable[[Sandbox], TestSession]]:
    with contextlib.ExitStack() as stack:
        yield lambda sandbox: stack.enter_context(contextlib.closing(TestSession(sandbox)))
    _reap_adopted()


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that all users can read, also those of sessions, unlike ``tmp_path``."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        yield Path(directory)


@pytest.fixture
def open_session(connect: Callable[[Sandbox], TestSession], sandbox: Sandbox) -> Callable[[], TestSession]:
    return lambda: connect(sandbox)


@pytest.fixture
def session(open_session: Callable[[], TestSession]) -> TestSession:
    return open_session()


def _reap_adopted() -> None:
    # As a subreaper, this process must reap orphans. Zombies count towards the process limit.
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
    return [f"container {container.name}" for container, owner in our_containers(client) if owner == OwnerProcess.current()]


def _wait_until_none(find: Callable[[], list[str]]) -> list[str]:
    eventually(lambda: not find())
    return find()
