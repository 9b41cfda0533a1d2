"""Benchmark results, as a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from benchmarks.plan import BenchPlan

__all__ = ["Row", "build_table", "format_range", "format_value", "measure_and_print"]


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one benchmark.

    Attributes:
        what: Name of the metric.
        unit: Unit, such as ``ms``, ``s``, ``steps/s``, ``MB``, ``x`` or ``%``.
        median: Median; None if the metric could not be measured.
        p95: 95th percentile; None if there are too few samples.
        low: Lowest median of several rounds; None after one round.
        high: Highest median of several rounds; None after one round.
        at_most: Threshold, if lower is better.
        at_least: Threshold, if higher is better.
        note: Further remarks, such as why the metric could not be measured.
        failed: Whether the group could not be measured.
    """

    what: str
    unit: str
    median: float | None
    p95: float | None = None
    low: float | None = None
    high: float | None = None
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

    @classmethod
    def of_rounds(cls, rows: Sequence[Row]) -> Row:
        """Return the row for the same metric in several rounds: the median of their medians, and their range."""
        measured = [row.median for row in rows if row.median is not None]
        if len(measured) < 2:
            return next((row for row in rows if row.median is not None), rows[-1])
        percentiles = [row.p95 for row in rows if row.p95 is not None]
        return replace(
            rows[-1],
            median=float(np.median(measured)),
            p95=float(np.median(percentiles)) if percentiles else None,
            low=min(measured),
            high=max(measured),
        )

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
    rounds: int = 1,
    before_each: Callable[[], None] = lambda: None,
) -> dict[str, list[Row]]:
    """Run the groups one after the other, in rounds, and print one table, after an interrupt with the results so far.

    Args:
        console: Console to print to.
        measures: Benchmarks, by the name of their group.
        plan: Provider and number of repetitions.
        rounds: Number of times that each group is measured.
        before_each: Called before each measurement.

    Returns:
        The results by group.
    """
    measured: dict[str, list[list[Row]]] = {group: [] for group in measures}
    results: dict[str, list[Row]] = {}
    try:
        for number in range(rounds):
            for group, measure in measures.items():
                with console.status(f"Measuring {group} ...{f' round {number + 1} of {rounds}' if rounds > 1 else ''}"):
                    before_each()
                    measured[group].append(_measure(group, measure, plan))
    finally:
        results = {group: _merged(found) for group, found in measured.items() if found}
        if results:
            console.print(build_table([row for rows in results.values() for row in rows], plan))
    return results


def _measure(group: str, measure: Callable[[BenchPlan], Iterable[Row]], plan: BenchPlan) -> list[Row]:
    """Return the results of a group; the last one has the reason if it fails, so that the other groups are measured."""
    rows: list[Row] = []
    try:
        rows.extend(measure(plan))
    except Exception as error:  # noqa: BLE001 - such as a BrokenPipeError, after which click would exit without a message
        rows.append(Row(what=f"{group}: failed", unit="", median=None, note=f"{type(error).__name__}: {error}", failed=True))
    return rows


def _merged(rounds: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the results of a group in several rounds. Some have the same name, and their order tells them apart."""
    by_place: dict[tuple[str, int], list[Row]] = {}
    for rows in rounds:
        seen: dict[str, int] = {}
        for row in rows:
            number = seen[row.what] = seen.get(row.what, 0) + 1
            by_place.setdefault((row.what, number), []).append(row)
    return [Row.of_rounds(rows) for rows in by_place.values()]


def build_table(rows: Sequence[Row], plan: BenchPlan) -> Table:
    """Return the results as a table."""
    table = Table(
        title=f"python -m benchmarks, provider {plan.provider}{', quick' if plan.quick else ''}, {os.cpu_count()} cores"
    )
    has_rounds = any(row.low is not None for row in rows)
    table.add_column("measured")
    for header in ("median", *(["of rounds"] if has_rounds else []), "p95", "must reach"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("met")
    table.add_column("note")
    for row in rows:
        met = {True: "[green]yes[/]", False: "[red]no[/]", None: ""}[row.met]
        table.add_row(
            escape(row.what),
            format_value(row.median, row.unit),
            *([format_range(row)] if has_rounds else []),
            format_value(row.p95, row.unit),
            _threshold(row),
            met,
            escape(row.note),
        )
    return table


def format_value(value: float | None, unit: str) -> str:
    """Return a value with its unit, with three digits that matter; empty for None."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
    return f"{value:,.{digits}f} {unit}".rstrip()


def format_range(row: Row) -> str:
    """Return the range of several rounds; empty after one round."""
    if row.low is None or row.high is None:
        return ""
    return f"{format_value(row.low, '')} to {format_value(row.high, '')}"


def _threshold(row: Row) -> str:
    if row.at_most is not None:
        return f"<= {row.at_most:g} {row.unit}"
    return f">= {row.at_least:g} {row.unit}" if row.at_least is not None else ""
