"""Diagnosis of the sandbox providers on this machine, by starting one sandbox of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from coding_gym.errors import CodingGymError, ProviderUnavailableError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig

if TYPE_CHECKING:
    import docker

__all__ = ["MEANINGS", "Diagnosis", "diagnose"]

_PROGRAM = """\
print("hello")
import os
if "DISPLAY" in os.environ:
    import xcffib.xproto
    print("a screen of", xcffib.connect().get_setup().roots[0].width_in_pixels)
"""

MEANINGS = {
    "engine": "version and system of the container engine",
    "runtimes": "what runtime= may name",
    "cgroup": "version of control groups; version 2 is required for per-session limits",
    "image": "image of the sandboxes",
    "image built": "if not, the first sandbox builds it, which takes minutes",
    "screen": "programs can open windows",
    "policy": "prefer: as isolated as this machine permits; require: no less than all of it",
    "landlock_abi": "version of the kernel's file rules, a further layer; 0: none",
    "signal_scope": "signals of a session reach its own processes only",
    "seccomp": "system calls that sessions do not need are refused",
    "session_users": "each session has its own user",
    "session_mounts": "each session has its own namespaces and files; otherwise, only one session runs at a time",
    "shared_user_reason": "why sessions have no users",
    "shared_files_reason": "why only one session runs at a time",
    "session_groups": "each session has its own share of memory and CPU time",
    "shared_group_reason": "why sessions compete for memory and CPU time",
    "own_namespaces": "the server made them itself; those of a container come from the engine",
    "no_new_privileges": "programs gain nothing from set-user-id files",
    "capabilities": "the server has privileges, which it should not",
    "kernel": "version of the kernel that sessions see",
    "machine": "architecture of the processor",
}
"""Explanations of the facts of a diagnosis, by name."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Diagnosis of a provider on this machine.

    Attributes:
        provider: ``docker``, ``apptainer`` or ``local``.
        works: Whether a sandbox could be started, ran code and was removed.
        start_seconds: Start time in seconds; None if the sandbox failed.
        isolation: Isolation reported by the server at ``/health``, see ``coding_gym_server.isolation.probe.IsolationReport``.
        facts: Further properties: whether programs have a screen, the engine's version and runtimes.
        problem: Why the provider does not work, or which features it lacks; empty if there are no problems.
    """

    provider: str
    works: bool
    start_seconds: float | None = None
    isolation: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis as a JSON-serializable dict."""
        return asdict(self)


def diagnose(provider: str, *, runtime: str | None = None) -> Diagnosis:
    """Diagnose a provider: start a sandbox, run a step in it, and remove it.

    Args:
        provider: ``docker``, ``apptainer`` or ``local``.
        runtime: The OCI runtime of the docker provider; the engine's default if None.
    """
    facts: dict[str, Any] = {}
    try:
        if provider == "docker":
            facts = _facts_of_engine()
        config = SandboxConfig(provider=provider, preload=(), sessions=2, runtime=runtime if provider == "docker" else None)
        started_at = time.perf_counter()
        with contextlib.closing(start_sandbox(config)) as sandbox:
            seconds = time.perf_counter() - started_at
            isolation = sandbox.health()["isolation"]
            with contextlib.closing(sandbox.connect()) as session:
                session.ask_step(_PROGRAM)
                printed = session.wait(timeout=config.start_timeout).observation.stdout
    except CodingGymError as error:
        problem = (
            f"{error.reason}. {error.remedy}" if isinstance(error, ProviderUnavailableError) and error.remedy else str(error)
        )
        return Diagnosis(provider=provider, works=False, facts=facts, problem=problem)
    works, has_screen = "hello" in printed, "a screen" in printed
    return Diagnosis(
        provider=provider,
        works=works,
        start_seconds=seconds,
        isolation=isolation,
        facts={**facts, "screen": has_screen},
        problem="; ".join(_isolation_gaps(provider, isolation, has_screen)) if works else "a step did not print what it should",
    )


def _isolation_gaps(provider: str, isolation: Mapping[str, Any], has_screen: bool) -> Iterator[str]:
    """Describe the features that a sandbox lacks, and how to remedy that."""
    needed = {"namespaces or Landlock ABI 6": isolation["signal_scope"], "seccomp filters": isolation["seccomp"]}
    if missing := [name for name, there in needed.items() if not there]:
        yield f"it lacks {' and '.join(missing)}: give each session a dedicated sandbox (sessions=1)"
    if not isolation["session_mounts"]:
        reasons = dict.fromkeys((isolation["shared_user_reason"], isolation["shared_files_reason"]))
        yield f"it has one session at a time, without namespaces: {'; '.join(reasons)}"
    elif provider == "docker" and not isolation["session_users"]:
        yield f"its sessions share a user: {isolation['shared_user_reason']}"
    if isolation["capabilities"]:
        yield "its server has capabilities"
    if not has_screen:
        yield "programs have no screen: install Xvfb (apt install xvfb) and xcffib (pip install 'coding-gym[display]')"


def _facts_of_engine() -> dict[str, Any]:
    from coding_gym.sandbox.docker.engine import (
        connect_to_engine,
    )
    from coding_gym.sandbox.docker.images import image_name

    with contextlib.closing(connect_to_engine()) as client:
        info = client.info()
        return {
            "engine": f"{info.get('ServerVersion', '?')} on {info.get('OperatingSystem', '?')}",
            "runtimes": sorted(info.get("Runtimes") or {}),
            "cgroup": info.get("CgroupVersion", "1"),
            "image": image_name(),
            "image built": _has_image(client, image_name()),
        }


def _has_image(client: docker.DockerClient, name: str) -> bool:
    from docker.errors import ImageNotFound

    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True
