"""Limits of time and memory that contests give their problems, in the units of their data sets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from coding_gym.tasks.loaders.rows import LoadOptions, RowError
from coding_gym_server.protocol.grading import GradingLimits

__all__ = ["memory_bytes", "seconds_of", "site_limits"]

_MIB = 1 << 20

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?)\s*(\w*)\s*")
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "millisecond": 1e-3}
_BYTES = {
    "": _MIB,
    "mb": _MIB,
    "megabyte": _MIB,
    "mib": _MIB,
    "kb": 1 << 10,
    "kilobyte": 1 << 10,
    "gb": 1 << 30,
    "gigabyte": 1 << 30,
}
_MIN_MILLISECONDS = 100
"""Numbers of at least this are milliseconds: no time limit is that many seconds, or fewer milliseconds."""

_WALL_FACTOR = 3


def site_limits(options: LoadOptions, *, seconds: float | None = None, memory: int | None = None) -> GradingLimits:
    """Return the limits of submissions to a problem.

    Args:
        options: Loader options: ``limits`` takes precedence.
        seconds: CPU time that the site gives a run; None if it is not known.
        memory: Memory that it gives a run, in bytes; None if it is not known.
    """
    if options.limits is not None:
        return options.limits
    default = GradingLimits()
    cpu_timeout = default.cpu_timeout if seconds is None else seconds * options.time_factor
    return GradingLimits(
        cpu_timeout=cpu_timeout,
        wall_timeout=max(default.wall_timeout, _WALL_FACTOR * cpu_timeout),
        max_memory_bytes=memory,
    )


def seconds_of(value: Any) -> float | None:
    """Return a time: of a number of seconds, or of milliseconds if it is large; ``2.0 seconds``; ``{seconds, nanos}``.

    Raises:
        RowError: If it is none of these.
    """
    if isinstance(value, Mapping):
        value = (value.get("seconds") or 0) + (value.get("nanos") or 0) / 1e9
    found = _amount(value, _SECONDS, "time_limit")
    return found / 1e3 if found is not None and found >= _MIN_MILLISECONDS else found


def memory_bytes(value: Any) -> int | None:
    """Return an amount of memory: of a number of MiB, or of bytes if it is large; ``256 megabytes``.

    Raises:
        RowError: If it is neither.
    """
    found = _amount(value, _BYTES, "memory_limit")
    if found is None:
        return None
    return int(found / _MIB if found >= _MIB**2 else found)


def _amount(value: Any, units: Mapping[str, float], name: str) -> float | None:
    """Return a positive number in the unit that it has; None for none, as some rows have 0 or no number."""
    if value is None or value == "":
        return None
    found = _AMOUNT.fullmatch(str(value))
    name_of_unit = "" if found is None else found[2].lower()
    unit = units.get(name_of_unit, units.get(name_of_unit.removesuffix("s")))
    if found is None or unit is None or not math.isfinite(float(found[1])):
        message = f"expected {name} to be a number with a unit such as {' or '.join(list(units)[2:4])}, got {value!r:.100}"
        raise RowError(message)
    return float(found[1]) * unit or None
