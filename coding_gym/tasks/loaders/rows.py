"""Access to the fields of data set rows, independent of their names in a particular data set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol.grading import GradingLimits, GradingMode

__all__ = ["LoadOptions", "RowError", "TaskRow", "is_list", "literal", "plain"]

_MAX_LISTED_FIELDS = 30


class RowError(ConfigurationError):
    """A row of a data set is not a task. The reader of the rows adds the location of the row."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options of the row loaders.

    Attributes:
        limits: Resource limits of submissions.
        show_tests: Number of tests that a prompt shows, where tests are a list of asserts.
        tolerance: Tolerance for numbers that programs print; None means ``1e-6`` where decimal fractions are expected, and
            exact comparison elsewhere.
        instruct: For BigCodeBench, whether to use the prompt for chat models instead of the completion prompt.
        grading: Where the tests run, ``isolated`` or ``faithful``, see ``Task``; None for the default of the row format.
    """

    limits: GradingLimits = field(default_factory=GradingLimits)
    show_tests: int = 3
    tolerance: float | None = None
    instruct: bool = False
    grading: GradingMode | str | None = None


class TaskRow:
    """A row of a data set.

    Args:
        fields: Its fields.
        number: Its index, from 0.
        source: Name from which the id of a row without one is derived: ``source/number``.
        options: Loader options.
    """

    def __init__(self, fields: Mapping[str, Any], *, number: int, source: str, options: LoadOptions) -> None:
        # A null is equivalent to a missing field; in a table, every row has all columns.
        self.fields = {name: value for name, value in fields.items() if value is not None}
        self.options = options
        self._name = f"{source}/{number}"

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    @property
    def id(self) -> str:
        """Id of the row; ``source/number`` if it has none."""
        for name in ("id", "task_id", "question_id", "problem_id"):
            value = self.fields.get(name)
            if isinstance(value, (str, int)) and value != "":
                return str(value)
        return self._name

    def text(self, *names: str, default: str | None = None) -> str:
        """Return the first of the named fields that is a string.

        Raises:
            RowError: If none is, and there is no default.
        """
        for name in names:
            if isinstance(value := self.fields.get(name), str):
                return value
        if default is not None:
            return default
        message = f"expected a text in {' or '.join(names)}; {self.describe()}"
        raise RowError(message)

    def texts(self, *names: str) -> list[str]:
        """Return the first of the named fields that is present as a list of strings; empty if none is.

        Raises:
            RowError: If the field is neither a string nor a list of strings.
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
        """Return a field, decoded if it is a JSON array or object in a string; None if it is missing."""
        value = self.fields.get(name)
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                return json.loads(value)
            except ValueError:
                return value
        return value

    def metadata(self, *names: str, source: str) -> dict[str, Any]:
        """Return those of the named fields that are present, with the name of the row's format."""
        return {"source": source, **{name: plain(self.fields[name]) for name in names if name in self.fields}}

    def describe(self) -> str:
        """Return a description of the fields, for error messages."""
        names = list(self.fields)
        more = f" and {len(names) - _MAX_LISTED_FIELDS} more" if len(names) > _MAX_LISTED_FIELDS else ""
        return f"the fields are {', '.join(names[:_MAX_LISTED_FIELDS])}{more}" if names else "it has no fields"


def is_list(value: object) -> bool:
    """Return whether a value is list-like: a JSON list, or an Arrow or NumPy array."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


def plain(value: Any) -> Any:
    """Convert a value to a form that JSON can represent; unsupported types become strings."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if is_list(value):
        return [plain(entry) for entry in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def literal(value: Any) -> str:
    """Return a Python expression for a value that was decoded from JSON."""
    text = repr(plain(value))
    # Python has no literals for NaN and infinity.
    has_no_literal = "nan" in text or "inf" in text
    return f"__import__('json').loads({json.dumps(plain(value))!r})" if has_no_literal else text
