"""What this machine offers for sandboxes, found out by starting one of each kind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from coding_gym.config import SandboxConfig
from coding_gym.errors import CodingGymError, ProviderUnavailableError
from coding_gym.providers import start_sandbox

if TYPE_CHECKING:
    import docker

__all__ = ["Diagnosis", "diagnose"]

_PROGRAM = """\
print("hello")
import os
if "DISPLAY" in os.environ:
    from Xlib.display import Display
    print("a screen of", Display().screen().width_in_pixels)
"""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """How a provider fares on this machine.

    Attributes:
        provider: ``docker`` or ``local``.
        works: Whether a sandbox could be started, ran code and was removed.
        start_seconds: How long the start took; None if it failed.
        isolation: What the server says of itself at ``/health``, see ``coding_gym_server.isolation.probe.IsolationReport``.
        facts: What else there is to know: whether programs have a screen, the engine's version and runtimes.
        problem: Why it does not work, or what it lacks; empty if there is nothing to say.
    """

    provider: str
    works: bool
    start_seconds: float | None = None
    isolation: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as a dict that JSON can hold."""
        return asdict(self)


def diagnose(provider: str, *, runtime: str | None = None) -> Diagnosis:
    """Start a sandbox, run a step in it, and remove it.

    Args:
        provider: ``docker`` or ``local``.
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
        problem = error.reason if isinstance(error, ProviderUnavailableError) else str(error)
        return Diagnosis(provider=provider, works=False, facts=facts, problem=problem)
    works, has_screen = "hello" in printed, "a screen" in printed
    return Diagnosis(
        provider=provider,
        works=works,
        start_seconds=seconds,
        isolation=isolation,
        facts={**facts, "screen": has_screen},
        problem="; ".join(_weaknesses(isolation, has_screen)) if works else "a step did not print what it should",
    )


def _weaknesses(isolation: Mapping[str, Any], has_screen: bool) -> Iterator[str]:
    """Say what a sandbox lacks, and what to do about it."""
    if not isolation["signal_scope"] or not isolation["seccomp"]:
        lacking = [
            name
            for name, there in (("Landlock ABI 6", isolation["signal_scope"]), ("seccomp filters", isolation["seccomp"]))
            if not there
        ]
        yield f"its kernel lacks {' and '.join(lacking)}: give each session a sandbox of its own (sessions=1)"
    if isolation["capabilities"]:
        yield "its server has capabilities"
    if not has_screen:
        yield "programs have no screen: install Xvfb (apt install xvfb) and python-xlib (pip install 'coding-gym[display]')"


def _facts_of_engine() -> dict[str, Any]:
    from coding_gym.providers.docker import connect_to_engine
    from coding_gym.providers.image import image_name

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
