"""Known differences between forms, and the comparison that finds all others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.conformance.forms import Observed

__all__ = [
    "KNOWN",
    "KNOWN_BEFORE_PYTHON_3_13",
    "KNOWN_BETWEEN_EPISODES",
    "KNOWN_BETWEEN_PROVIDERS",
    "OF_THE_MACHINE",
    "Comparison",
    "Known",
]


@dataclass(frozen=True)
class Known:
    """Behaviors that differ in some forms from the first form.

    Attributes:
        behaviors: Names of the behaviors.
        forms: Names of the forms, in all of whose sessions they differ.
        reason: Why they differ.
    """

    behaviors: tuple[str, ...]
    forms: tuple[str, ...]
    reason: str


class Comparison:
    """Comparison of what sessions saw with what the first session of the first form saw.

    Args:
        observed: What the sessions saw.
        known: The known differences.
        ignored: Behaviors that are not compared.

    Attributes:
        unknown: Descriptions of the differences that are not known.
        obsolete: Known differences that at least one session does not show, as pairs of form and behavior.
    """

    def __init__(self, observed: Observed, known: Sequence[Known], *, ignored: Collection[str] = ()) -> None:
        first, *others = observed
        self._observed = observed
        self._reference = {behavior: seen[0] for behavior, seen in observed[first].items()}
        documented = {(form, behavior) for entry in known for form in entry.forms for behavior in entry.behaviors}
        self.unknown = [
            f"{form}, session {session}: {behavior}: expected {self._reference[behavior]}, found {found}"
            for form in others
            for behavior, seen in observed[form].items()
            for session, found in enumerate(seen)
            if found != self._reference[behavior] and (form, behavior) not in documented and behavior not in ignored
        ]
        self.obsolete = sorted(pair for pair in documented if not self._differs(*pair))

    @property
    def with_errors(self) -> set[str]:
        """Behaviors that write to stderr or do not exit with 0 in the first session."""
        return {behavior for behavior, seen in self._reference.items() if seen.stderr or seen.exit_code}

    def _differs(self, form: str, behavior: str) -> bool:
        """Return whether a behavior differs in all sessions of a form."""
        seen = self._observed.get(form, {}).get(behavior)
        return seen is not None and self._reference[behavior] not in seen

    def __str__(self) -> str:
        return f"{len(self._reference)} behaviors, {len(self._observed)} forms, {len(self.unknown)} differences"


KNOWN = [
    Known(
        ("arguments", "uncaught exception", "flags", "buffers of standard streams", "exit handlers of forked children"),
        ("process",),
        "A process has the arguments of its command, and Python's defaults. A cell has an interpreter with the option -P, "
        "flushes each line, in case it is killed, prints lone surrogates, and ends children that it has forked without the "
        "handlers of an interpreter's exit.",
    ),
    Known(
        (
            *("arguments", "uncaught exception", "exit handlers of forked children", "module"),
            *("kind of standard input", "display", "initial contents", "names of environment variables"),
        ),
        ("submission",),
        "A submission is a file, which an interpreter runs to its end, with a test's input and without a screen.",
    ),
    Known(("stack limit",), ("submission",), "Calls of programs in contests may be nested deeply."),
    Known(
        ("uncaught exception", "exit message", "input", "hooks", "built-in names", "attributes of main", "initial contents"),
        ("context",),
        "A context is a notebook: it has the names and hooks of IPython, reports exceptions as messages, and cannot ask for "
        "input. Contexts share a directory with the X authority files of their screens.",
    ),
]
"""Known differences from an environment with its own sandbox, with every provider."""

KNOWN_BEFORE_PYTHON_3_13 = [
    Known(
        ("source lines of tracebacks", "source of own functions"), ("process",), "Python does not keep the source of option -c."
    ),
]
"""Further differences if the sandbox has an older Python."""

KNOWN_BETWEEN_EPISODES: list[Known] = []
"""Known differences between environments without screens that share a local sandbox."""

KNOWN_BETWEEN_PROVIDERS = [
    Known(("more than the disk", "limits"), ("local",), "Limits of memory and files apply to each process."),
]
"""Known differences of a local sandbox from a container."""

OF_THE_MACHINE = frozenset(
    {
        *("initial contents", "unlisted directories", "owners of system files", "device nodes", "user name", "shell"),
        *("security attributes", "values of environment variables", "kernel settings", "interpreter", "machine", "time zone"),
    }
)
"""Behaviors of a local sandbox that depend on the settings and the programs of the machine."""
