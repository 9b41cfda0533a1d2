"""Containers as engines without namespaces for their processes run them, such as gVisor, or Kubernetes without privileges."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.provider import DockerSandbox, start_container

__all__ = ["plain_container"]


@contextlib.contextmanager
def plain_container(**options: object) -> Iterator[DockerSandbox]:
    """Start a container with none of the privileges by which sessions get namespaces."""
    config = SandboxConfig.of({"provider": "docker", "preload": (), "sessions": 4, **options})
    with contextlib.closing(start_container(config, shared_user_reason="this container is a plain one")) as sandbox:
        yield sandbox
