"""``Task``: a programming problem with hidden tests."""

from __future__ import annotations

import copy
import functools
import hashlib
import keyword
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec

from coding_gym._html import caption, document, element, folded, preformatted, table
from coding_gym.errors import ConfigurationError
from coding_gym.tasks.repository.tests import RepositoryTests
from coding_gym.tasks.screen.tests import ScreenTests
from coding_gym.tasks.submission import complete
from coding_gym_server.protocol.errors import DECODING_ERRORS, reason_of
from coding_gym_server.protocol.grading import Asserts, FileContent, GradingLimits, GradingMode, Programs, UnitTests

__all__ = ["Task", "Tests"]

_MAY_BE_EMPTY = ("prompt", "sample_input")
"""Fields of a tasks file whose empty text is not the same as none."""

_encoder = msgspec.msgpack.Encoder(order="deterministic")

Tests = Asserts | UnitTests | Programs | ScreenTests | RepositoryTests
"""The kinds of tests that a task can have."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A programming problem with hidden tests.

    Attributes:
        id: Unique in its suite.
        prompt: Problem statement given to the agent.
        tests: Tests that determine whether a submission solves the task; never shown to the agent.
        entry_point: The function or class that a submission must define; None if it is a program.
        prefix: Source prepended to a submission that does not define the entry point itself: for HumanEval, the prompt, which
            completions continue. A submission that does define it gets what precedes the entry point, such as imports.
        text_variable: Name of a variable whose value is the text of the answer, for tests that insert it into a program of
            their own, as those of DS-1000 do. If None, the default, the answer is executed.
        files: Initial content of the working directory, for the agent and for the submission: paths to str or bytes.
        limits: Resource limits of a submission.
        reference: Reference solution; None if there is none. Never shown to the agent.
        metadata: Further information: difficulty, tags, source.
        sample_input: Standard input of a public example, for programs; None if there is none. ``CodingTask-v0`` shows it in the
            prompt, and runs each action on it.
        grading: Where ``Asserts`` or ``UnitTests`` run: ``"agreement"``, ``"isolated"`` or ``"faithful"``, which requires a
            reference; see ``GradingMode``. If None, the default, it is ``"agreement"``, or ``"faithful"`` if the reference
            passes together with the tests only, which is found out when the task is first used. For ``RepositoryTests``, it
            is ``"copy"``, ``"layer"`` or ``"session"``; if None, ``"copy"`` for patches, and for scripts ``"session"``, until
            ``coding-gym suites check`` has seen the reference pass in a stricter one.

    Raises:
        ConfigurationError: If there is no id, there are no tests, or an attribute is invalid.
    """

    id: str
    prompt: str
    tests: Tests
    entry_point: str | None = None
    prefix: str = ""
    text_variable: str | None = None
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    limits: GradingLimits = field(default_factory=GradingLimits)
    reference: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sample_input: str | None = None
    grading: GradingMode | str | None = None

    def __post_init__(self) -> None:
        identity: object = self.id
        if not isinstance(identity, str) or not identity:
            message = f"Expected the id of a task to be a str that is not empty, got {identity!r}"
            raise ConfigurationError(message)
        self._expect(isinstance(self.prompt, str), "a prompt that is a str", self.prompt)
        self._expect(
            isinstance(self.tests, Tests),
            "tests that are Asserts, UnitTests, Programs, ScreenTests or RepositoryTests",
            self.tests,
        )
        cases: object = getattr(self.tests, "cases", ())
        self._expect(not isinstance(cases, str), "tests whose cases are a tuple, such as ('assert f() == 1',)", cases)
        if not _has_cases(self.tests):
            message = f"Task {self.id!r} has no tests: any submission would pass"
            raise ConfigurationError(message)
        if self.entry_point is not None:
            is_name = str(self.entry_point).isidentifier() and not keyword.iskeyword(self.entry_point)
            self._expect(is_name, "an entry point that is a name, or None for a program", self.entry_point)
        if self.text_variable is not None:
            is_name = str(self.text_variable).isidentifier() and not keyword.iskeyword(self.text_variable)
            self._expect(is_name, "a text_variable that is a name, or None", self.text_variable)
            is_alone = self.entry_point is None and not self.prefix
            self._expect(
                is_alone, "neither an entry point nor a prefix beside a text_variable", self.entry_point or self.prefix
            )
        if self.sample_input is not None:
            sample: object = self.sample_input
            is_input = isinstance(sample, str) and isinstance(self.tests, Programs)
            self._expect(is_input, "a sample_input that is a str, and tests that are Programs", self.sample_input)
        for path, content in self.files.items():
            self._expect(_is_inside(path), "files whose paths stay below the working directory", path)
            self._expect(isinstance(content, (str, bytes)), f"the content of {path} to be str or bytes", content)
        if self.grading is not None:
            *modes, last = (f"{str(mode)!r}" for mode in GradingMode)
            self._expect(self.grading in list(GradingMode), f"grading {', '.join(modes)} or {last}", self.grading)
            object.__setattr__(self, "grading", GradingMode(self.grading))
        if isinstance(self.tests, RepositoryTests):
            is_fit = self.grading in (None, GradingMode.COPY, GradingMode.LAYER, GradingMode.SESSION)
            self._expect(is_fit, "grading 'copy', 'layer' or 'session' for RepositoryTests", self.grading)
        elif self.grading not in (None, GradingMode.ISOLATED):
            expected = f"Asserts or UnitTests for grading {str(self.grading)!r}"
            self._expect(isinstance(self.tests, Asserts | UnitTests), expected, self.tests)
        if self.grading == GradingMode.FAITHFUL:
            self._expect(self.reference is not None, "a reference for grading 'faithful', which makes questions of it", None)
        try:
            msgspec.json.encode([self.tests, self.prefix, self.sample_input, dict(self.files), self.limits])
        except UnicodeEncodeError as error:
            message = f"Task {self.id!r} has text that is not Unicode (lone surrogates): {error}"
            raise ConfigurationError(message) from None

    @property
    def image(self) -> str | None:
        """The image in which agents work on the task, for ``RepositoryTests``; None for the one of the environment."""
        return self.tests.image if isinstance(self.tests, RepositoryTests) else None

    def submission(self, code: str) -> str:
        """Return the program that is graded for an answer: a whole program, a completion of ``prefix``, or its text."""
        if self.text_variable is not None:
            return f"{self.text_variable} = {code!r}\n"
        return complete(code, prefix=self.prefix, entry_point=self.entry_point)

    @functools.cached_property
    def reference_submission(self) -> str | None:
        """The program of the reference solution, None if there is none."""
        return None if self.reference is None else self.submission(self.reference)

    def with_limits(self, limits: GradingLimits) -> Task:
        """Return the task with other limits."""
        if limits == self.limits:
            return self
        # Nothing else changes, so nothing is checked again.
        task = copy.copy(self)
        object.__setattr__(task, "limits", limits)
        return task

    @functools.cached_property
    def content_digest(self) -> str:
        """SHA-256 of what a submission is graded by: tests, reference, entry point and files, but no limits."""
        content = (self.tests, self.reference_submission, self.entry_point, self.wire_files())
        return hashlib.sha256(_encoder.encode(content)).hexdigest()

    def to_json(self) -> str:
        """Serialize the task as a line of a tasks file.

        Raises:
            ConfigurationError: If ``metadata`` contains a value that JSON cannot represent.
        """
        # In attribute order for readability, without empty values.
        known = {
            "id": self.id,
            "prompt": self.prompt,
            "entry_point": self.entry_point,
            "prefix": self.prefix,
            "text_variable": self.text_variable,
            "tests": self.tests,
            "files": self.wire_files(),
            "limits": msgspec.to_builtins(self.limits) if self.limits != GradingLimits() else None,
            "reference": self.reference,
            "metadata": dict(self.metadata),
            "sample_input": self.sample_input,
            "grading": self.grading,
        }
        try:
            return msgspec.json.encode(
                {name: value for name, value in known.items() if value or (name in _MAY_BE_EMPTY and value is not None)}
            ).decode()
        except (TypeError, ValueError, RecursionError) as error:
            message = f"Task {self.id!r} cannot be written as JSON: {error}"
            raise ConfigurationError(message) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Task:
        """Parse a task written by ``to_json``.

        Raises:
            ConfigurationError: If the text is not a valid task.
        """
        try:
            return _decoder.decode(text).task()
        except DECODING_ERRORS as error:
            message = f"Expected a task as JSON: {reason_of(error)}"
            raise ConfigurationError(message) from error

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Task:
        """Return the task of a decoded line of a tasks file.

        Raises:
            ConfigurationError: If the row is not a valid task.
        """
        try:
            return msgspec.convert(row, _TaskRow).task()
        except msgspec.ValidationError as error:
            message = f"Expected the fields of a task: {reason_of(error)}"
            raise ConfigurationError(message) from error

    def _repr_html_(self) -> str:
        kind = " ".join(part for part in (self.grading, type(self.tests).__name__) if part)
        return document(
            caption(element("b", self.id), f": {self.entry_point or 'a program'}, {kind}"),
            preformatted(self.prompt),
            folded("reference", preformatted(self.reference or "")),
            table(("file", "size"), ((name, len(data)) for name, data in self.files.items()), total=len(self.files)),
        )

    def wire_files(self) -> dict[str, str | FileContent]:
        """Return ``files`` in the form used by the protocol."""
        return {path: content if isinstance(content, str) else FileContent(content) for path, content in self.files.items()}

    def _expect(self, condition: bool, expected: str, found: object) -> None:
        if not condition:
            message = f"Expected task {self.id!r} to have {expected}; got {str(found)[:200]!r}"
            raise ConfigurationError(message)


class _TaskRow(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Schema of a line of a tasks file."""

    id: str
    prompt: str
    tests: Asserts | UnitTests | Programs | ScreenTests | RepositoryTests
    entry_point: str | None = None
    prefix: str = ""
    text_variable: str | None = None
    files: dict[str, str | FileContent] = {}
    limits: GradingLimits = GradingLimits()
    reference: str | None = None
    metadata: dict[str, Any] = {}
    sample_input: str | None = None
    grading: GradingMode | None = None

    def task(self) -> Task:
        fields = msgspec.structs.asdict(self)
        files = {path: content if isinstance(content, str) else content.base64 for path, content in self.files.items()}
        return Task(**{**fields, "files": files})


_decoder = msgspec.json.Decoder(_TaskRow)


def _has_cases(tests: Tests) -> bool:
    match tests:
        case UnitTests():
            return bool(tests.source.strip())
        case Asserts() | Programs():
            return bool(tests.cases)
        case RepositoryTests():
            return bool(tests.commands)
        case _:
            return bool(tests.steps)


def _is_inside(path: object) -> bool:
    if not isinstance(path, str) or "\0" in path:
        return False
    parts = PurePosixPath(path)
    return bool(parts.parts) and not parts.is_absolute() and ".." not in parts.parts and not path.endswith("/")
