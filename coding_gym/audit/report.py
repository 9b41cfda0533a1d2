"""``AuditReport``: what an audit has found, as text, JSON and HTML."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from coding_gym._html import Html, caption, document, element, folded, mark, page, preformatted, table
from coding_gym._version import __version__

__all__ = ["AuditReport", "Check", "Finding", "wilson_interval"]

_MAX_CODE_CHARS = 2000
_MAX_SHOWN = 100
"""Maximum number of findings of a check on a page."""


def wilson_interval(count: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a rate, at 95 % by default.

    Args:
        count: Number of successes.
        total: Number of trials.
        z: Quantile of the normal distribution.

    Example:
        >>> [round(bound, 3) for bound in wilson_interval(0, 100)]
        [0.0, 0.037]
    """
    if not total:
        return 0.0, 1.0
    rate = count / total
    center = (rate + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return max(0.0, center - half), min(1.0, center + half)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A submission that was judged otherwise than it should have been.

    Attributes:
        task_id: Id of its task.
        name: What kind of submission it is.
        code: Its code.
        score: The reward; None if the verifier failed.
        why: What the verifier said.
    """

    task_id: str
    name: str
    code: str
    score: float | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """A requirement, and what does not meet it.

    Attributes:
        title: The requirement.
        total: Number of submissions that were judged.
        findings: Those that do not meet it.
        is_failure: Whether the audit fails if there are any.
    """

    title: str
    total: int
    findings: Sequence[Finding]
    is_failure: bool = True

    @property
    def interval(self) -> tuple[float, float]:
        """Rate of submissions that do not meet it, at 95 %, as if they were a sample of all."""
        return wilson_interval(len(self.findings), self.total)

    @property
    def holes(self) -> dict[str, int]:
        """Names of the submissions that do not meet it, with their numbers, most frequent first."""
        counts: dict[str, int] = {}
        for finding in self.findings:
            counts[finding.name] = counts.get(finding.name, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Result of an audit.

    Attributes:
        suite: Name of the suite.
        verifier: Name of the verifier.
        tasks: Number of tasks.
        checks: The requirements.
        date: When it was made.
        version: Version of this package.
        machine: Python and system.
    """

    suite: str
    verifier: str
    tasks: int
    checks: Sequence[Check]
    date: str
    version: str
    machine: str

    @classmethod
    def now(cls, suite: str, verifier: str, tasks: int, checks: Sequence[Check]) -> AuditReport:
        """Return the report of an audit that has just been made."""
        return cls(
            suite=suite,
            verifier=verifier,
            tasks=tasks,
            checks=checks,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
            machine=f"Python {platform.python_version()}, {platform.system()} {platform.release()} {platform.machine()}",
        )

    @property
    def passed(self) -> bool:
        """Whether all requirements are met."""
        return not any(check.findings for check in self.checks if check.is_failure)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values of JSON."""
        checks = [asdict(check) | {"interval": list(check.interval)} for check in self.checks]
        return asdict(self) | {"checks": checks, "passed": self.passed}

    def to_page(self) -> str:
        """Return a page of HTML."""
        return page(f"Audit of {self.suite}", Html(self._repr_html_()))

    def _repr_html_(self) -> str:
        rows = [
            (
                mark(not check.findings or not check.is_failure),
                check.title,
                f"{len(check.findings)} of {check.total}",
                "{:.2%} to {:.2%}".format(*check.interval),
            )
            for check in self.checks
        ]
        found = [
            folded(
                f"{check.title}: {finding.task_id}: {finding.name}",
                preformatted(f"{finding.code[:_MAX_CODE_CHARS]}\n\n{finding.why}".strip()),
            )
            for check in self.checks
            for finding in check.findings[:_MAX_SHOWN]
        ]
        return document(
            caption(
                element("b", self.suite),
                f" judged by {self.verifier}: {self.tasks} tasks, {'passed' if self.passed else 'failed'}",
            ),
            caption(f"{self.date}, coding_gym {self.version}, {self.machine}"),
            table(("", "requirement", "does not meet it", "rate, at 95 %"), rows, total=len(rows)),
            *found,
        )
