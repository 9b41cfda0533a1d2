"""Servers in real containers for the real client: one of the docker provider, and one started manually."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import docker
import pytest

from coding_gym.sandbox.docker import provider
from coding_gym.sandbox.docker.cleanup import remove_container
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym.sandbox.docker.provider import LABEL_OWNER
from coding_gym.sandbox.ownership import OwnerProcess
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.running_server import is_healthy
from tests.support.timing import eventually


@pytest.fixture(scope="session", autouse=True)
def openenv() -> None:
    """Require OpenEnv's client, and import it before the tests, each of which is given a time limit."""
    importlib.import_module("tests.openenv.coding_env")


@dataclass(frozen=True)
class Server:
    """Address of a server, and the headers that its clients must send."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> dict[str, object]:
        """Arguments for OpenEnv's clients."""
        return {"base_url": self.url, **({"headers": self.headers} if self.headers else {})}


@pytest.fixture(scope="session")
def run_by_hand(docker_engine: docker.DockerClient) -> Iterator[Callable[..., Server]]:
    """Function like ``docker run -p 127.0.0.1:0:8000 -e NAME=VALUE IMAGE ARGUMENTS`` that waits for ``/health``."""
    image = ensure_image(docker_engine, None)
    with contextlib.ExitStack() as stack:

        def run(*arguments: str, privileges: dict[str, Any] | None = None, **environment: str) -> Server:
            api = docker_engine.api
            host = api.create_host_config(auto_remove=True, port_bindings={8000: ("127.0.0.1", None)})
            created = api.create_container(
                image,
                ["--preload", "", *arguments],
                labels={LABEL_OWNER: str(OwnerProcess.current())},
                ports=[8000],
                environment=environment,
                host_config={**host, **(privileges or {})},
                user=None if privileges is None else "0:0",
            )
            container = docker_engine.containers.get(created["Id"])
            stack.callback(remove_container, container)
            container.start()
            container.reload()
            server = Server(f"http://127.0.0.1:{container.ports['8000/tcp'][0]['HostPort']}")
            assert eventually(lambda: is_healthy(server.url))
            return server

        yield run


@pytest.fixture(scope="session")
def plain(run_by_hand: Callable[..., Server]) -> Server:
    """Server that was started as docs/sandboxes.md shows it for several sessions."""
    privileges = {
        "CapAdd": ["SETUID", "SETGID"],
        "SecurityOpt": [f"seccomp={provider._SECCOMP_PROFILE.read_text()}"],
        # As docker run does with --security-opt systempaths=unconfined.
        "MaskedPaths": [],
        "ReadonlyPaths": [],
    }
    return run_by_hand(privileges=privileges)


@pytest.fixture(scope="session")
def small(run_by_hand: Callable[..., Server]) -> Server:
    """Server with one session slot in a container without privileges."""
    return run_by_hand("--max-sessions", "1")


@pytest.fixture(scope="session")
def provided(docker_engine: docker.DockerClient) -> Iterator[Server]:
    """Container of the docker provider: hardened, with a token."""
    with lasting_sandbox(provider="docker", transport="tcp", sessions=16) as sandbox:
        yield Server(sandbox.address.url, sandbox.address.headers)


@pytest.fixture(scope="session", params=["plain", "provided"])
def server(request: pytest.FixtureRequest) -> Server:
    return request.getfixturevalue(request.param)
