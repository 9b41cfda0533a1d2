"""Access policy of tests: what a submission may do with their objects, and how they use the submission's.

A submission must not learn the expected values, nor change the code that decides, and none of its objects may influence the
decision.
"""

from __future__ import annotations

import builtins
import dataclasses
import os
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coding_gym_server.remote_objects import exact_numbers
from coding_gym_server.remote_objects.exceptions import name_of_class
from coding_gym_server.remote_objects.exchange import Failure, Streams
from coding_gym_server.remote_objects.policy import AccessPolicy
from coding_gym_server.remote_objects.proxies import ProxyType, class_of_handle
from coding_gym_server.remote_objects.special_methods import (
    ARITHMETIC,
    COMPARISON,
    IMMUTABLE,
    NUMERIC,
    ORDERING,
    builtin_part,
)
from coding_gym_server.test_runner import assertions, crossing
from coding_gym_server.test_runner.crossing import TESTS_MODULE

if TYPE_CHECKING:
    from coding_gym_server.remote_objects.values import Encoder

__all__ = ["ORIGIN", "TESTS_MODULE", "TestSidePolicy"]

ORIGIN = "__remote_traceback__"
"""Attribute of exceptions of the submission: their traceback, as text."""

_READABLE = frozenset(
    f"__{name}__"
    for name in (
        *("name", "qualname", "module", "doc", "dict", "annotations", "wrapped", "members", "slots", "version", "all", "init"),
        *(
            "dataclass_fields",
            "dataclass_params",
            "match_args",
            "abstractmethods",
            "isabstractmethod",
            "cause",
            "context",
            "notes",
        ),
    )
)
"""Dunder names that tests may look up. Others are hooks by which libraries delegate decisions to objects."""

_PREDICATES = frozenset(("startswith", "endswith", "issubset", "issuperset", "isdisjoint", "equals"))
"""Methods that return a truth value about an expected value."""

_OF_DATA = NUMERIC | {"__len__", "__iter__", "__getitem__", "__contains__"}
"""Operations that are not delegated to an object that holds data, unless its class is under test."""

_OF_ARRAYS = frozenset(("shape", "size", "ndim", "dtype"))
"""Attributes by which NumPy asks a container how much there is to compare."""

_PRODUCTS = frozenset(("__mul__", "__rmul__", "__matmul__", "__rmatmul__"))
"""Operators by which objects such as vectors return numbers; the difference from an expected value is none of them."""

_EXITS = frozenset(("__exit__", "__aexit__"))
_NUMBERS = (int, float, complex)
_SEQUENCES = (list, tuple, str, bytes)
_CLASS_NAME = re.compile("_*[A-Z][A-Za-z0-9]*")
_BUILTINS = {name: getattr(builtins, name) for name in ("input", "print", "open")}


def _fields(described: Any) -> dict[str, Any]:
    """Return the fields of a data class, as ``dataclasses`` reads them, for those of a class of the submission."""
    fields = {}
    for name, remote in described.items():
        field: Any = dataclasses.field(init=remote.init)
        field.name, field.type, field.kw_only = name, remote.type, remote.kw_only
        field._field_type = getattr(dataclasses, remote._field_type.name)
        fields[name] = field
    return fields


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
        self._streams = sys.stdin, sys.stdout, sys.stderr
        # Tracked by identity: comparing proxies would call the submission's code.
        self._subjects: set[int] = set()
        self._tainted: set[int] = set()

    def put_under_test(self, name: str, value: Any) -> None:
        """Mark a class as under test if tests know it by a class-style name; under others, it may stand in for a function."""
        if isinstance(value, ProxyType) and _CLASS_NAME.fullmatch(name):
            self._subjects.add(id(value))

    # Operations of the submission on objects of the tests.

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        crossing.check_call(function)
        return function(*arguments, **keywords)

    def operate(self, name: str, target: Any, arguments: list[Any]) -> Any:
        match name:
            case "__call__":
                return self.call(target, arguments, {})
            case "__setattr__" | "__delattr__":
                crossing.check_assignment(target, arguments[0])
            case "__getstate__" | "__await__":
                # Checked by the methods below.
                pass
            case _:
                crossing.check_operation(target, name)
        return super().operate(name, target, arguments)

    def get(self, target: Any, name: str) -> Any:
        return crossing.get_attribute(target, name)

    def plain(self, target: Any) -> Any:
        if isinstance(target, BaseException):
            return self.exception_state(target)
        if not crossing.is_own_instance(target):
            raise crossing.refusal(target, "its data")
        return super().plain(target)

    def run(self, awaitable: Any) -> Any:
        message = "a submission cannot wait for a coroutine of its tests"
        raise TypeError(message)

    def traceback(self, error: BaseException) -> list[str]:
        # A traceback would reveal the source code of the tests.
        return []

    def raised(self, error: BaseException) -> None:
        if assertions.is_failure(error) and not self.peer.is_received(error):
            assertions.record(error)

    def exception_class(self, error: BaseException) -> type[BaseException] | None:
        if type(error).__module__ == TESTS_MODULE:
            return None
        return next(base for base in type(error).__mro__ if name_of_class(base))

    def exception_state(self, error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # The message of an assertion would reveal the expected value.
        if assertions.is_failure(error):
            return (), {}
        arguments, attributes = super().exception_state(error)
        # What the tests have handled before may quote expected values as well.
        return arguments, {name: value for name, value in attributes.items() if not name.startswith("__")}

    def admit(self, value: Any) -> None:
        if not crossing.may_cross(value):
            kind = type(value)
            message = (
                f"a {kind.__module__}.{kind.__qualname__} cannot cross from the tests to the submission: expected data, or a "
                "function, generator, mock or instance of a class that the tests define; tests that share other objects need "
                'grading="faithful"'
            )
            raise TypeError(message)

    def find(self, module: str, name: str) -> Any:
        # The submission would choose what the tests call.
        message = f"a submission cannot name {module}.{name}"
        raise ValueError(message)

    def name_of(self, value: Any) -> tuple[str, str] | None:
        return crossing.name_of(value)

    def adapt(self, value: Any) -> Any:
        return exact_numbers.exact(value)

    # Operations of the tests on objects of the submission.

    def call_handle(self, handle: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if id(handle) in self._tainted:
            raise self._denied_operation(handle, "__call__")
        return self._ask(self.peer.call, handle, arguments, keywords)

    def look_up(self, handle: Any, name: str) -> Any:
        if name.startswith("__") and name.endswith("__") and name not in _READABLE:
            message = f"{type(handle).__name__!r} object has no attribute {name!r}"
            raise AttributeError(message)
        if name == "__dataclass_fields__":
            return _fields(self._ask(self.peer.get, handle, name))
        if isinstance(handle, ProxyType):
            value = self._ask(self.peer.get, handle, name)
            self.put_under_test(name, value)
            return value
        if not self._is_subject(handle):
            if id(handle) in self._tainted:
                raise AttributeError(str(self._denied_operation(handle, name)))
            if name in _OF_ARRAYS and (self._has_data(handle) or self.peer.plain(handle) is not None):
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
        if name in _EXITS and isinstance(arguments[1], BaseException):
            assertions.leave_block(arguments[1], arguments[2], is_received=self.peer.is_received(arguments[1]))
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
            kinds = (*_SEQUENCES, *_NUMBERS) if name in _PRODUCTS else _SEQUENCES
            if not (self._is_subject(handle) and isinstance(result, kinds)):
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
        return Streams(text, captured, {name: self.peer.encode(function) for name, function in replaced.items()})

    def echo(self, stdout: str, stderr: str) -> None:
        for text, stream, own in zip((stdout, stderr), (sys.stdout, sys.stderr), self._streams[1:], strict=True):
            if text and stream is not own:
                stream.write(text)

    def note(self, error: BaseException, failure: Failure) -> None:
        if failure.traceback:
            object.__setattr__(error, ORIGIN, f"In the submission:\n{failure.traceback}")

    @staticmethod
    def _has_data(handle: Any) -> bool:
        return isinstance(handle, IMMUTABLE)

    @staticmethod
    def _denied_operation(handle: Any, name: str) -> TypeError:
        return TypeError(
            f"{name} of a {type(handle).__name__}, an object of the submission, cannot decide a comparison with a number or "
            "other data: expected data as the result"
        )
