"""Defaults of sessions."""

from __future__ import annotations

from dataclasses import dataclass

from coding_gym_server.server.supervisor.worker_handle import DEFAULT_MAX_OUTPUT_CHARS

__all__ = ["SessionDefaults"]


@dataclass(frozen=True, kw_only=True)
class SessionDefaults:
    """Defaults for reset options.

    Attributes:
        step_timeout: Wall-clock limit of a step in seconds.
        cpu_timeout: CPU-time limit of a step in seconds, None for no limit.
        max_output_chars: Maximum number of code points of stdout, and of stderr, in an observation.
        backend: Name of the backend that executes the cells.
        rewards: Names from ``protocol.REWARDS`` whose sum is the reward of a step.
        root: Whether programs are root.
        private_network: Whether nothing but a session's own programs can reach ports of its loopback interface.
    """

    step_timeout: float = 30.0
    cpu_timeout: float | None = None
    max_output_chars: int = DEFAULT_MAX_OUTPUT_CHARS
    backend: str = "python"
    rewards: tuple[str, ...] = ()
    root: bool = False
    private_network: bool = False
