"""The figures, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.table import Table

from coding_gym.bench.plan import Plan

__all__ = ["Row", "build_table", "write_json"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One figure.

    Attributes:
        what: What was measured.
        unit: ``ms``, ``s``, ``steps/s``, ``MB``, ``x`` or ``%``.
        median: The median; None if it could not be measured.
        p95: The 95th percentile, where there are enough samples for one.
        at_most: The bar, where less is better.
        at_least: The bar, where more is better.
        note: Whatever else there is to say, such as why it could not be measured.
    """

    what: str
    unit: str
    median: float | None
    p95: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @classmethod
    def of_samples(cls, what: str, unit: str, samples: Sequence[float], *, at_most: float | None = None, note: str = "") -> Row:
        """Summarise samples."""
        p95 = float(np.percentile(samples, 95)) if len(samples) >= _ENOUGH_FOR_P95 else None
        note = note or (f"n={len(samples)}" if len(samples) > 1 else "")
        return cls(what=what, unit=unit, median=float(np.median(samples)), p95=p95, at_most=at_most, note=note)

    @property
    def met(self) -> bool | None:
        """Whether the bar is reached; None if there is none, or no figure."""
        if self.median is None or (self.at_most is None and self.at_least is None):
            return None
        return (self.at_most is None or self.median <= self.at_most) and (self.at_least is None or self.median >= self.at_least)


_ENOUGH_FOR_P95 = 10


def build_table(rows: Sequence[Row], plan: Plan) -> Table:
    """Return the table of ``rows``."""
    table = Table(title=f"coding-gym bench, provider {plan.provider}{', quick' if plan.quick else ''}, {os.cpu_count()} cores")
    table.add_column("measured")
    for header in ("median", "p95", "must reach"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("met")
    table.add_column("note")
    for row in rows:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.met]
        table.add_row(row.what, _figure(row.median, row.unit), _figure(row.p95, row.unit), _bar(row), met, row.note)
    return table


def write_json(rows: Sequence[Row], plan: Plan, path: Path) -> None:
    """Write ``rows`` and where they come from."""
    report = {
        "provider": plan.provider,
        "quick": plan.quick,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "rows": [{**asdict(row), "met": row.met} for row in rows],
    }
    path.write_text(json.dumps(report, indent=2) + "\n")


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def _bar(row: Row) -> str:
    if row.at_most is not None:
        return f"<= {row.at_most:g} {row.unit}"
    return f">= {row.at_least:g} {row.unit}" if row.at_least is not None else ""
