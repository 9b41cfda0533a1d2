"""Containers as engines without namespaces for their processes run them, such as gVisor, or Kubernetes without privileges."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from unittest import mock

from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker import provider

__all__ = ["plain_container"]


@contextlib.contextmanager
def plain_container(*, landlock: bool = True, **options: object) -> Iterator[provider.DockerSandbox]:
    """Start a container with none of the privileges by which sessions get namespaces.

    Args:
        landlock: Whether it has Landlock, which kernels before Linux 5.13 lack, and its scopes, which those before 6.12 lack.
        **options: Options of the sandbox.
    """
    config = SandboxConfig.of({"provider": "docker", "preload": (), "sessions": 16, **options})
    with contextlib.ExitStack() as stack:
        if not landlock:
            security = ["no-new-privileges", f"seccomp={_profile_without_landlock()}"]
            stack.enter_context(mock.patch.object(provider, "_user_options", return_value={"security_opt": security}))
        sandbox = provider.start_container(config, shared_user_reason="this container is a plain one")
        yield stack.enter_context(contextlib.closing(sandbox))


def _profile_without_landlock() -> str:
    profile = json.loads(provider._SECCOMP_PROFILE.read_text())
    for entry in profile["syscalls"]:
        entry["names"] = [name for name in entry["names"] if name != "unshare" and not name.startswith("landlock")]
    return json.dumps(profile)
