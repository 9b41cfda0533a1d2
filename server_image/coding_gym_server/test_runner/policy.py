"""Access policy of tests: what a submission may do with their objects, and how they use the submission's.

A submission must not learn the expected values, nor change the code that decides, and none of its objects may influence the
decision.
"""

from __future__ import annotations

import builtins
import os
import re
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from unittest.mock import NonCallableMock

from coding_gym_server.remote_objects.exchange import Failure, Streams
from coding_gym_server.remote_objects.policy import AccessPolicy
from coding_gym_server.remote_objects.proxies import ProxyType, class_of_handle
from coding_gym_server.remote_objects.special_methods import (
    ARITHMETIC,
    COMPARISON,
    IMMUTABLE,
    NUMERIC,
    ORDERING,
    SPECIAL_METHODS,
    builtin_part,
)

if TYPE_CHECKING:
    from coding_gym_server.remote_objects.values import Encoder

__all__ = ["TESTS_MODULE", "TestSidePolicy"]

TESTS_MODULE = "tests"
"""Name of the module that tests run as."""

_OPAQUE = (
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, types.CodeType, types.FrameType),
    *(types.TracebackType, types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType, type),
)
"""Types that a submission may call or iterate over, but not inspect: they would give access to much of the process."""

_LABELS = frozenset(("__name__", "__qualname__", "__doc__", "__module__"))

_READABLE = frozenset(
    f"__{name}__"
    for name in (
        *("name", "qualname", "module", "doc", "dict", "annotations", "wrapped", "members", "slots", "match_args", "version"),
        *("dataclass_fields", "dataclass_params", "all", "author", "defaults", "kwdefaults", "closure", "code", "self", "func"),
        *(
            "abstractmethods",
            "isabstractmethod",
            "bases",
            "mro",
            "init",
            "new",
            "signature",
            "cause",
            "context",
            "notes",
            "path",
        ),
    )
)
"""Dunder names that tests may look up. Others are hooks by which libraries delegate decisions to objects."""

_PREDICATES = frozenset(("startswith", "endswith", "issubset", "issuperset", "isdisjoint", "equals"))
"""Methods that return a truth value about an expected value."""

_OF_DATA = NUMERIC | {"__len__", "__iter__", "__getitem__", "__contains__"}
"""Operations that are not delegated to an object that holds data, unless its class is under test."""

_COPIES = frozenset(("__copy__", "__deepcopy__"))
_NUMBERS = (int, float, complex)
_SEQUENCES = (list, tuple, str, bytes)
_CLASS_NAME = re.compile("[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")
_BUILTINS = {name: getattr(builtins, name) for name in ("input", "print", "open")}


class TestSidePolicy(AccessPolicy):
    """Access policy of tests.

    Args:
        expects_stop: Whether the tests refer to ``StopIteration``. Otherwise it is converted to a ``RuntimeError``, because it
            would end their loops before any comparison.
    """

    is_open = False

    def __init__(self, *, expects_stop: bool = False) -> None:
        super().__init__()
        self._expects_stop = expects_stop
        self._failed: AssertionError | None = None
        self._received: BaseException | None = None
        self._streams = sys.stdin, sys.stdout, sys.stderr
        # Tracked by identity: comparing proxies would call the submission's code.
        self._subjects: set[int] = set()
        self._tainted: set[int] = set()

    def put_under_test(self, name: str, value: Any) -> None:
        """Mark a class as under test if tests know it by a class-style name; under others, it may stand in for a function."""
        if isinstance(value, ProxyType) and _CLASS_NAME.fullmatch(name):
            self._subjects.add(id(value))

    def take_failed_assertion(self) -> AssertionError | None:
        """Return and clear the assertion failure of a callback that the submission suppressed; None if there is none."""
        failed, self._failed = self._failed, None
        return failed

    # Operations of the submission on objects of the tests.

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        try:
            return function(*arguments, **keywords)
        except AssertionError as error:
            if error is not self._received:
                self._failed = error
                # The message would reveal the expected value.
                raise AssertionError from None
            raise

    def operate(self, name: str, target: Any, arguments: list[Any]) -> Any:
        if name not in SPECIAL_METHODS | _COPIES or isinstance(
            target, types.ModuleType | types.CodeType | types.FrameType | types.TracebackType
        ):
            raise self._refusal(target, name)
        if name == "__call__":
            return self.call(target, arguments, {})
        return super().operate(name, target, arguments)

    def get(self, target: Any, name: str) -> Any:
        if name in _LABELS and isinstance(target, types.FunctionType | type):
            return getattr(target, name)
        if name.startswith("_") or isinstance(target, _OPAQUE) or _is_mock_attribute(target, name):
            raise self._refusal(target, name)
        return getattr(target, name)

    def set(self, target: Any, name: str, value: Any) -> None:
        kind = type(target)
        if (
            name.startswith("_")
            or isinstance(target, _OPAQUE)
            or kind.__module__ != TESTS_MODULE
            or callable(getattr(kind, name, None))
        ):
            raise self._refusal(target, name)
        setattr(target, name, value)

    def delete(self, target: Any, name: str) -> None:
        self.set(target, name, None)
        delattr(target, name)

    def run(self, awaitable: Any) -> Any:
        message = "a submission cannot wait for a coroutine of its tests"
        raise TypeError(message)

    def traceback(self, error: BaseException) -> list[str]:
        # A traceback would reveal the source code of the tests.
        return []

    def find(self, module: str, name: str) -> Any:
        # The submission would choose what the tests call.
        message = f"a submission cannot name {module}.{name}"
        raise ValueError(message)

    def name_of(self, value: Any) -> tuple[str, str] | None:
        if isinstance(value, types.ModuleType):
            return value.__name__, ""
        owner = getattr(value, "__objclass__", None)
        name = getattr(value, "__qualname__", None)
        module = getattr(owner or value, "__module__", None)
        if not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and owner is None:
            return None
        if not isinstance(module, str) or module.partition(".")[0] not in sys.stdlib_module_names | {"numpy"}:
            return None
        found: Any = sys.modules.get(module)
        for part in str(name).split("."):
            found = getattr(found, part, None)
        return (module, str(name)) if found is value else None

    # Operations of the tests on objects of the submission.

    def make(self, kind: ProxyType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return self._ask(self.peer.call, kind, arguments, keywords)

    def call_handle(self, handle: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if id(handle) in self._tainted:
            raise self._denied_operation(handle, "__call__")
        return self._ask(self.peer.call, handle, arguments, keywords)

    def look_up(self, handle: Any, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in _READABLE:
            message = f"{type(handle).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)
        if isinstance(handle, ProxyType):
            value = self._ask(self.peer.get, handle, name)
            self.put_under_test(name, value)
            return value
        if not self._is_subject(handle):
            if id(handle) in self._tainted:
                raise AttributeError(str(self._denied_operation(handle, name)))
            if name in _PREDICATES:
                return getattr(builtin_part(handle) if self._has_data(handle) else self.peer.plain(handle), name)
            if self._has_data(handle) and hasattr(own := builtin_part(handle), name):
                value = self._ask(self.peer.get, handle, name)
                return value if class_of_handle(value) is None else getattr(own, name)
        return self._ask(self.peer.get, handle, name)

    def operate_on_handle(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> Any:
        """Perform an operation of a remote object, unless it could learn an expected value and answer accordingly.

        * It is never asked whether it equals data, nor, unless its class is under test, how it compares with data.
        * The result of an operation with a number that it received is not accepted as a number, nor can it be converted to one;
          few other operations on the result are permitted.
        * An object that equals another one must not also differ from it.
        """
        has_data = bool(arguments) and class_of_handle(arguments[0]) is None
        if name in COMPARISON and has_data:
            return self._compare(name, handle, arguments[0])
        is_number_like = name in NUMERIC or name in ORDERING
        if id(handle) in self._tainted and name not in ARITHMETIC and (is_number_like or not self._is_subject(handle)):
            raise self._denied_operation(handle, name)
        if name in COMPARISON:
            return self._compare_objects(name, handle, arguments)
        if name in ORDERING and has_data and not self._has_data(handle) and not self._is_subject(handle):
            raise self._denied_operation(handle, name)
        if name in ORDERING and has_data and self._has_data(handle):
            return getattr(builtin_part(handle), name)(arguments[0])
        if name == "__contains__" and has_data and not self._is_subject(handle):
            return any(item is arguments[0] or item == arguments[0] for item in handle)
        if (
            name in _OF_DATA
            and not self._is_subject(handle)
            and self._has_data(handle)
            and hasattr(data := builtin_part(handle), name)
        ):
            return getattr(data, name)(*arguments)
        if name == "__next__":
            return self.peer.operate(name, handle, arguments)
        result = self._ask(self.peer.operate, name, handle, arguments)
        if name in ARITHMETIC and result is not NotImplemented:
            self._note_result(name, handle, arguments, result)
        return result

    def _note_result(self, name: str, handle: Any, arguments: tuple[Any, ...], result: Any) -> None:
        has_data = any(class_of_handle(value) is None for value in arguments)
        if not has_data and self._tainted.isdisjoint(map(id, (handle, *arguments))):
            return
        if class_of_handle(result) is None:
            if not (self._is_subject(handle) and isinstance(result, _SEQUENCES)):
                raise self._denied_operation(handle, name)
        elif isinstance(result, (*_NUMBERS, frozenset)):
            operands = [
                builtin_part(value) if class_of_handle(value) and self._has_data(value) else value
                for value in (handle, *arguments)
            ]
            if class_of_handle(operands[0]) or getattr(operands[0], name)(*operands[1:]) != builtin_part(result):
                raise self._denied_operation(handle, name)
        self._tainted.add(id(result))

    def _compare(self, name: str, handle: Any, other: Any) -> Any:
        if self._has_data(handle):
            return getattr(builtin_part(handle), name)(other)
        if not isinstance(other, dict | list | set | bytearray) or id(handle) in self._tainted:
            return NotImplemented
        plain = self.peer.plain(handle)
        return getattr(plain, name)(other) if class_of_handle(plain) is None and plain is not None else NotImplemented

    def _compare_objects(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> Any:
        # In random order, which the submission cannot predict.
        names = sorted(COMPARISON, reverse=os.urandom(1)[0] % 2 == 1)
        results = {each: self._ask(self.peer.operate, each, handle, arguments) for each in names}
        if any(class_of_handle(result) for result in results.values()):
            raise self._denied_operation(handle, name)
        if all(isinstance(result, bool) for result in results.values()) and len(set(results.values())) == 1:
            message = f"a {type(handle).__name__} that equals another object, and differs from it, or neither"
            raise TypeError(message)
        return results[name]

    def _is_subject(self, handle: Any) -> bool:
        return any(id(kind) in self._subjects for kind in type(handle).__mro__)

    def _ask(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return ask(*arguments)
        except StopIteration as stop:
            if self._expects_stop:
                raise
            message = "the submission raised StopIteration"
            raise RuntimeError(message) from stop

    def streams(self, encoder: Encoder) -> Streams | None:
        stdin, stdout, stderr = self._streams
        replaced = {name: getattr(builtins, name) for name, own in _BUILTINS.items() if getattr(builtins, name) is not own}
        captured = sys.stdout is not stdout or sys.stderr is not stderr
        if sys.stdin is stdin and not captured and not replaced:
            return None
        text = None if sys.stdin is stdin else sys.stdin.read()
        return Streams(text, captured, {name: self.peer.export(function) for name, function in replaced.items()})

    def echo(self, stdout: str, stderr: str) -> None:
        for text, stream, own in zip((stdout, stderr), (sys.stdout, sys.stderr), self._streams[1:], strict=True):
            if text and stream is not own:
                stream.write(text)

    def note(self, error: BaseException, failure: Failure) -> None:
        self._received = error
        if isinstance(error, AssertionError):
            # The submission passed the assertion failure on to the tests.
            self._failed = None
        if failure.traceback:
            error.add_note(f"In the submission:\n{failure.traceback}")

    @staticmethod
    def _has_data(handle: Any) -> bool:
        return isinstance(handle, IMMUTABLE)

    @staticmethod
    def _refusal(target: Any, name: str) -> AttributeError:
        return AttributeError(f"{name!r} of a {type(target).__name__} of the tests is not accessible to the submission")

    @staticmethod
    def _denied_operation(handle: Any, name: str) -> TypeError:
        return TypeError(
            f"{name} of a {type(handle).__name__}, an object of the submission, cannot decide a comparison with a number or "
            "other data: expected data as the result"
        )


def _is_mock_attribute(target: Any, name: str) -> bool:
    return isinstance(target, NonCallableMock) and hasattr(NonCallableMock, name)
