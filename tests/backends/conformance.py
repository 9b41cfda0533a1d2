"""The behaviors listed in ``conformance.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

__all__ = ["BEHAVIORS", "SECTIONS", "Behavior"]


class Behavior(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A behavior that backends are tested for.

    Attributes:
        what: Its name in the table.
        python: The cells that demonstrate it.
        javascript: The same cells in JavaScript; empty if not applicable to the language.
        bash: The same cells in bash.
        stdout: What the last cell prints; None for anything.
        stderr: What the last cell's stderr contains.
        exit_code: The exit code of the last cell.
        outcome: The outcome of the last cell.
        mime: A required MIME type among the results of the last cell; None for no requirement.
        timeout: Time limit of each cell in seconds.
    """

    what: str
    python: tuple[str, ...]
    javascript: tuple[str, ...] = ()
    bash: tuple[str, ...] = ()
    stdout: str | None = None
    stderr: str = ""
    exit_code: int = 0
    outcome: str = "ok"
    mime: str | None = None
    timeout: float = 60.0


_document = tomllib.loads((Path(__file__).parent / "conformance.toml").read_text())

SECTIONS = msgspec.convert(_document, dict[str, list[Behavior]])
BEHAVIORS = [behavior for section in SECTIONS.values() for behavior in section]
