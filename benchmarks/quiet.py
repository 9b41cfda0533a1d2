"""Waiting until the machine does nothing else."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["BusyError", "wait_for_quiet"]

_BUSY = 0.05
"""Fraction of the processors' time above which the machine is busy."""
_SECONDS = 2.0
_IDLE_FIELDS = slice(3, 5)


class BusyError(RuntimeError):
    """The machine did not become quiet."""


def wait_for_quiet(patience: float) -> None:
    """Wait until the processors have been idle for two seconds.

    Args:
        patience: Seconds after which it gives up.

    Raises:
        BusyError: If they do not become idle in time.
    """
    deadline = time.monotonic() + patience
    while (busy := _busy_fraction()) > _BUSY:
        if time.monotonic() > deadline:
            message = f"Expected a machine that does nothing else; its processors were {busy:.0%} busy for {patience:g} s"
            raise BusyError(message)


def _busy_fraction() -> float:
    """Return the fraction of time that the processors were busy during the next seconds."""
    before = _times()
    time.sleep(_SECONDS)
    passed = [after - earlier for earlier, after in zip(before, _times(), strict=True)]
    return 1 - sum(passed[_IDLE_FIELDS]) / max(sum(passed), 1)


def _times() -> list[int]:
    """Return the times of all processors by use: user, nice, system, idle, waiting for disks ...; see proc(5)."""
    return [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
