"""Access to the fields of data set rows, independent of their names in a particular data set."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.loaders.integers import MAX_DECIMAL_BITS, decode_json
from coding_gym_server.languages import PYTHON, UnknownLanguageError, find_language
from coding_gym_server.protocol.grading import GradingLimits, GradingMode, OutputRule

__all__ = ["EntryPoint", "LoadOptions", "RowError", "TaskRow", "is_language", "is_list", "known_language", "literal", "plain"]

_SOLUTIONS = ("reference", "canonical_solution", "solution", "solution_code", "code", "gold_standard_solution", "completion")
_FENCED = re.compile(r"```\w*\n(.*\n)```", re.DOTALL)
_MAX_LISTED_FIELDS = 30


class RowError(ConfigurationError):
    """A row of a data set is not a task. The reader of the rows adds the location of the row."""


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Options of the row loaders.

    Attributes:
        limits: Resource limits of submissions. None for those of the data set, or else those of ``GradingLimits()``.
        time_factor: Factor of the time limits of the data set, for machines or languages that are slower than its site's.
        language: Language of programs. None for that of the data set, or else Python.
        unsupported: Whether to ``"refuse"`` a data set with a row that is no task, or uses what is not supported, or to
            ``"skip"`` the row with a warning.
        testlib: Path of testlib.h, which the checkers of some data sets include.
        generated_tests: For Codeforces, directory of the generated tests of the data set, which are added to the official ones.
        show_tests: Number of tests that a prompt shows, where tests are a list of asserts.
        tolerance: Tolerance for decimal fractions that programs print. None for that of the data set: ``1e-6``, and none for
            LiveCodeBench.
        compare: Which outputs of programs match, see ``OutputRule``. None for the rule of the data set.
        random_seed: Seed of ``random`` in programs; None for another one in each run.
        instruct: For BigCodeBench, whether to use the prompt for chat models instead of the completion prompt.
        grading: Where the tests run, ``isolated`` or ``faithful``, see ``Task``; None for the default of the row format.
    """

    limits: GradingLimits | None = None
    time_factor: float = 1.0
    language: str | None = None
    unsupported: Literal["refuse", "skip"] = "refuse"
    testlib: str | Path | None = None
    generated_tests: str | Path | None = None
    show_tests: int = 3
    tolerance: float | None = None
    compare: OutputRule | str | None = None
    random_seed: int | None = 0
    instruct: bool = False
    grading: GradingMode | str | None = None

    def __post_init__(self) -> None:
        if self.compare is not None and self.compare not in list(OutputRule):
            message = f"Expected compare= to be one of {', '.join(OutputRule)}, got {self.compare!r:.100}"
            raise ConfigurationError(message)
        if self.unsupported not in ("refuse", "skip"):
            message = f"Expected unsupported= to be 'refuse' or 'skip', got {self.unsupported!r:.100}"
            raise ConfigurationError(message)
        if not 0 < self.time_factor < math.inf:
            message = f"Expected time_factor= to be a positive number, got {self.time_factor!r:.100}"
            raise ConfigurationError(message)
        try:
            known_language(self.language or PYTHON)
        except UnknownLanguageError as error:
            message = f"Expected language= to be None or a language: {error}"
            raise ConfigurationError(message) from error


@dataclass(frozen=True)
class EntryPoint:
    """What tests call.

    Attributes:
        expression: The callable: ``double``, or ``Solution().double``, a method of a class.
    """

    expression: str

    @property
    def name(self) -> str:
        """The function or class that a submission must define."""
        return self.expression.partition(".")[0].removesuffix("()")

    @property
    def function(self) -> str:
        """Name of the function or method."""
        return self.expression.rpartition(".")[2]


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

    @property
    def limits(self) -> GradingLimits:
        """The limits of submissions to a row that has none of its own."""
        return self.options.limits or GradingLimits()

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

    @property
    def entry_point(self) -> EntryPoint | None:
        """What the tests of the row call; None if it does not say."""
        return EntryPoint(name) if (name := self.text("entry_point", default="").strip()) else None

    @property
    def solution(self) -> str | None:
        """A solution of the row, the first one of several; None if it has none."""
        found: Any = self.text(*_SOLUTIONS, default="")
        if not found and is_list(solutions := self.decoded("solutions")):
            found = next(iter(solutions), None)
        if not isinstance(found, str) or not found:
            return None
        fenced = _FENCED.fullmatch(found.strip())
        return fenced[1] if fenced else found

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
                return decode_json(value)
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


def known_language(name: str) -> str:
    """Return the name under which the table of languages has a language, or ``python``.

    Raises:
        UnknownLanguageError: If it does not.
    """
    return PYTHON if name.lower() in (PYTHON, "py", "python3", "py3") else find_language(name).name


def is_language(name: str, language: str) -> bool:
    """Return whether a language is another one, or a version of it: ``cpp20`` is ``cpp``."""
    return language == name or (language.startswith(name) and language.removeprefix(name).isdigit())


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
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{literal(key)}: {literal(entry)}' for key, entry in value.items())}}}"
    if is_list(value):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"__import__('json').loads({json.dumps(value)!r})"
    if isinstance(value, int) and value.bit_length() > MAX_DECIMAL_BITS:
        return hex(value)
    return repr(value if value is None or isinstance(value, (str, int, float)) else str(value))
