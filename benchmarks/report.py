"""Benchmark results, as a table and as JSON."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.plan import BenchPlan

__all__ = ["Row", "build_table", "measure_and_print", "write_json"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one benchmark.

    Attributes:
        what: Name of the metric.
        unit: Unit, such as ``ms``, ``s``, ``steps/s``, ``MB``, ``x`` or ``%``.
        median: Median; None if the metric could not be measured.
        p95: 95th percentile; None if there are too few samples.
        at_most: Threshold, if lower is better.
        at_least: Threshold, if higher is better.
        note: Further remarks, such as why the metric could not be measured.
        failed: Whether the group could not be measured.
    """

    what: str
    unit: str
    median: float | None
    p95: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""
    failed: bool = False

    @classmethod
    def of_samples(cls, what: str, unit: str, samples: Sequence[float], *, at_most: float | None = None, note: str = "") -> Row:
        """Return the row for a set of samples."""
        p95 = float(np.percentile(samples, 95)) if len(samples) >= _MIN_SAMPLES_FOR_P95 else None
        note = note or (f"n={len(samples)}" if len(samples) > 1 else "")
        return cls(what=what, unit=unit, median=float(np.median(samples)), p95=p95, at_most=at_most, note=note)

    @property
    def met(self) -> bool | None:
        """Whether the threshold is met; None if there is no threshold, or no result."""
        if self.median is None or (self.at_most is None and self.at_least is None):
            return None
        return (self.at_most is None or self.median <= self.at_most) and (self.at_least is None or self.median >= self.at_least)


_MIN_SAMPLES_FOR_P95 = 10


def measure_and_print(
    console: Console,
    measures: Mapping[str, Callable[[BenchPlan], Iterable[Row]]],
    plan: BenchPlan,
    *,
    title: str,
    json_path: Path | None = None,
) -> list[Row]:
    """Run the groups one after the other and print one table, after an interrupt with the results so far.

    Args:
        console: Console to print to.
        measures: Benchmarks, by the name of their group.
        plan: Provider and number of repetitions.
        title: Beginning of the table's title.
        json_path: Additional JSON file for the results.

    Returns:
        The results.
    """
    rows: list[Row] = []
    try:
        for group, measure in measures.items():
            with console.status(f"Measuring {group} ..."):
                rows += _measure(group, measure, plan)
    finally:
        if rows:
            console.print(build_table(rows, plan, title=title))
            if json_path is not None:
                write_json(rows, plan, json_path)
    return rows


def _measure(group: str, measure: Callable[[BenchPlan], Iterable[Row]], plan: BenchPlan) -> Iterator[Row]:
    """Yield the results of a group, and a row with the reason if it fails, so that the other groups are measured."""
    try:
        yield from measure(plan)
    except Exception as error:  # noqa: BLE001 - such as a BrokenPipeError, after which click would exit without a message
        yield Row(what=f"{group}: failed", unit="", median=None, note=f"{type(error).__name__}: {error}", failed=True)


def build_table(rows: Sequence[Row], plan: BenchPlan, *, title: str) -> Table:
    """Return the results as a table."""
    table = Table(title=f"{title}, provider {plan.provider}{', quick' if plan.quick else ''}, {os.cpu_count()} cores")
    table.add_column("measured")
    for header in ("median", "p95", "must reach"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("met")
    table.add_column("note")
    for row in rows:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.met]
        table.add_row(
            escape(row.what),
            _format_value(row.median, row.unit),
            _format_value(row.p95, row.unit),
            _threshold(row),
            met,
            escape(row.note),
        )
    return table


def write_json(rows: Sequence[Row], plan: BenchPlan, path: Path) -> None:
    """Write the results to a JSON file, with a description of the machine and the run."""
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


def _format_value(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}"


def _threshold(row: Row) -> str:
    if row.at_most is not None:
        return f"<= {row.at_most:g} {row.unit}"
    return f">= {row.at_least:g} {row.unit}" if row.at_least is not None else ""
