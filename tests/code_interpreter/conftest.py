"""A container as started by ``docker run -p``, and a local server, for clients of the code interpreter API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coding_gym.sandbox.docker import images as image
from tests.support.interpreter_client import InterpreterClient
from tests.support.running_server import RunningServer, is_healthy
from tests.support.timing import eventually


@pytest.fixture(scope="session")
def container_url(docker_engine) -> Iterator[str]:
    """URL of a plain container of the image, whose programs may use its network, as JavaScript's kernel must."""
    container = docker_engine.containers.run(
        image.ensure_image(docker_engine, None),
        ["--network"],
        detach=True,
        auto_remove=True,
        ports={"8000/tcp": ("127.0.0.1", None)},
    )
    try:
        container.reload()
        port = container.attrs["NetworkSettings"]["Ports"]["8000/tcp"][0]["HostPort"]
        url = f"http://127.0.0.1:{port}"
        assert eventually(lambda: is_healthy(url)), container.logs()
        yield url
    finally:
        container.kill()


@pytest.fixture(scope="session")
def local_url(tmp_path_factory) -> Iterator[str]:
    with RunningServer(tmp_path_factory.mktemp("interpreter"), "--preload", "numpy") as server:
        yield server.url


@pytest.fixture(scope="session")
def url(provider: str, request: pytest.FixtureRequest) -> str:
    """URL of a server in a container or of a local one, depending on the provider."""
    return request.getfixturevalue("container_url" if provider == "docker" else "local_url")


@pytest.fixture
def interpreter(url) -> Iterator[InterpreterClient]:
    with InterpreterClient(url) as client:
        yield client


@pytest.fixture
def context(interpreter) -> str:
    """A fresh context, in which all cells of the test run."""
    interpreter.use_fresh_context()
    return interpreter.context
