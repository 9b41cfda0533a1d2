"""The fields of a row of a data set, whatever they are called there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym_server.grading.messages import GradingLimits

__all__ = ["LoadOptions", "Row", "RowError", "is_list", "literal", "plain"]

_MOST_FIELDS_TOLD = 30


class RowError(ConfigurationError):
    """A row of a data set that is no task. Whoever reads the rows says which one it is."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """What a loader of rows may be told.

    Attributes:
        limits: What submissions may use.
        show_tests: How many of the tests a prompt shows, where tests are a list of asserts.
        tolerance: How far numbers that programs print may be off; None is ``1e-6`` where decimal fractions are expected, and
            exact where not.
        instruct: Of BigCodeBench, whether to take the prompt for chat models rather than the one to complete.
    """

    limits: GradingLimits = field(default_factory=GradingLimits)
    show_tests: int = 3
    tolerance: float | None = None
    instruct: bool = False


class Row:
    """A row of a data set.

    Args:
        fields: Its fields.
        number: Its number, from 0 on.
        source: What names tasks that have no id: ``source/number``.
        options: What the loader was told.
    """

    def __init__(self, fields: Mapping[str, Any], *, number: int, source: str, options: LoadOptions) -> None:
        # What says nothing is as good as not there; a table has all columns in all rows.
        self.fields = {name: value for name, value in fields.items() if value is not None}
        self.options = options
        self._name = f"{source}/{number}"

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    @property
    def id(self) -> str:
        """The id that the row has, else its name."""
        for name in ("id", "task_id", "question_id", "problem_id"):
            value = self.fields.get(name)
            if isinstance(value, (str, int)) and value != "":
                return str(value)
        return self._name

    def text(self, *names: str, default: str | None = None) -> str:
        """Return the first of some fields that is a text.

        Raises:
            RowError: None is, and there is no default.
        """
        for name in names:
            if isinstance(value := self.fields.get(name), str):
                return value
        if default is not None:
            return default
        message = f"expected a text in {' or '.join(names)}; {self.describe()}"
        raise RowError(message)

    def texts(self, *names: str) -> list[str]:
        """Return the first of some fields that is there, as a list of texts; empty if none is.

        Raises:
            RowError: It is something else.
        """
        for name in names:
            if (value := self.decoded(name)) is not None:
                found = [value] if isinstance(value, str) else value
                if not is_list(found) or not all(isinstance(entry, str) for entry in found):
                    message = f"expected {name} to be a list of texts, got {str(value)[:100]!r}"
                    raise RowError(message)
                return list(found)
        return []

    def decoded(self, name: str) -> Any:
        """Return a field, decoded if it is the text of a JSON array or object; None if it is not there."""
        value = self.fields.get(name)
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                return json.loads(value)
            except ValueError:
                return value
        return value

    def metadata(self, *names: str, source: str) -> dict[str, Any]:
        """Return those of some fields that are there, with what the row's format is called."""
        return {"source": source, **{name: plain(self.fields[name]) for name in names if name in self.fields}}

    def describe(self) -> str:
        """Say which fields there are."""
        names = list(self.fields)
        more = f" and {len(names) - _MOST_FIELDS_TOLD} more" if len(names) > _MOST_FIELDS_TOLD else ""
        return f"the fields are {', '.join(names[:_MOST_FIELDS_TOLD])}{more}" if names else "it has no fields"


def is_list(value: object) -> bool:
    """Say whether a value is a list, as JSON, arrow or numpy have it."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def plain(value: Any) -> Any:
    """Return a value as JSON can have it, or as text."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if is_list(value):
        return [plain(entry) for entry in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def literal(value: Any) -> str:
    """Return source that makes a value that came from JSON."""
    text = repr(plain(value))
    # Python has no literals for some of what floats may be.
    has_no_literal = "nan" in text or "inf" in text
    return f"__import__('json').loads({json.dumps(plain(value))!r})" if has_no_literal else text
