"""Allow-list of what a submission may do with the objects of tests.

Data crosses by value, and what libraries define by name. Of all other objects, only those that the tests' own source defines
cross: their functions can be called, their generators and plain iterators advanced, and instances of their classes be used by
the names that these classes define. An object of a library would give access to code that runs in the process of the tests:
``DataFrame.eval`` executes text.
"""

from __future__ import annotations

import abc
import collections
import enum
import functools
import sys
import types
import typing
from collections.abc import Iterator
from typing import Any
from unittest.mock import NonCallableMock

from coding_gym_server.remote_objects.proxies import ProxyType, class_of_handle
from coding_gym_server.remote_objects.special_methods import SPECIAL_METHODS

__all__ = [
    "TESTS_MODULE",
    "check_assignment",
    "check_call",
    "check_operation",
    "get_attribute",
    "is_own_instance",
    "may_cross",
    "name_of",
    "refusal",
]

TESTS_MODULE = "tests"
"""Name of the module that tests run as."""

_CONTAINERS = frozenset(
    (
        *(list, dict, set, bytearray, types.SimpleNamespace),
        *(collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter),
    )
)
"""Types that classes of tests may extend, and whose methods change nothing but the object itself.

Not so those of strings: ``str.format`` reads attributes.
"""

_DATA = _CONTAINERS | {frozenset, tuple, str, bytes, int, float, complex}
_NEUTRAL = frozenset((object, abc.ABC, typing.Generic, typing.Protocol))
_LABELS = frozenset(("__name__", "__qualname__", "__doc__", "__module__"))
_OF_ITERATORS = frozenset(("__iter__", "__next__", "__repr__"))
_OF_FUNCTIONS = frozenset(("__call__", "__repr__"))
_COPIES = frozenset(("__copy__", "__deepcopy__"))
_MOCKS = "unittest.mock"


def name_of(value: Any) -> tuple[str, str] | None:
    """Return the module and name of a module, function, class or constant of a library; None if it is something else."""
    if isinstance(value, types.ModuleType):
        return (value.__name__, "") if value in sys.modules.values() else None
    if isinstance(value, enum.Enum):
        module, name = type(value).__module__, f"{type(value).__qualname__}.{value.name}"
    elif isinstance(value, NonCallableMock) or not callable(value) or type(value).__module__ == TESTS_MODULE:
        return None
    else:
        owner = getattr(value, "__objclass__", None)
        if owner is None and isinstance(value, types.BuiltinMethodType) and isinstance(value.__self__, type):
            # A class method of a type that is implemented in C, such as datetime.now.
            owner = value.__self__
        module = getattr(owner or value, "__module__", None) or type(value).__module__
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or ""
    found: Any = sys.modules.get(str(module)) if module not in (TESTS_MODULE, "__main__") else None
    for part in str(name).split("."):
        found = getattr(found, part, None)
    # Each access to a method of a class makes another object.
    is_same = found == value if isinstance(value, types.BuiltinMethodType) else found is value
    return (str(module), str(name)) if is_same else None


def may_cross(value: Any) -> bool:
    """Return whether an object, which is neither data nor named by a library, may be passed by reference."""
    kind = type(value)
    if kind is object:
        # Has an identity, and nothing else.
        return True
    if isinstance(value, type):
        return value.__module__ == TESTS_MODULE
    if isinstance(value, types.GeneratorType):
        return value.gi_frame is None or _is_own_namespace(value.gi_frame.f_globals)
    if isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
        return True
    return isinstance(value, NonCallableMock) or is_own_instance(value) or _is_own_function(value)


def check_call(target: Any) -> None:
    """Check that the submission may call an object.

    Raises:
        AttributeError: If it may not.
    """
    if isinstance(target, NonCallableMock):
        allowed = _has_own_effects(target)
    elif isinstance(target, type):
        allowed = _is_whole(target)
    else:
        allowed = _is_own_function(target) or _defines(type(target), "__call__")
    if not allowed:
        raise refusal(target, "__call__")


def check_operation(target: Any, name: str) -> None:
    """Check that the submission may use a special method of an object.

    Raises:
        AttributeError: If it may not.
    """
    if isinstance(target, NonCallableMock):
        method = getattr(target, name, None) if name in SPECIAL_METHODS else None
        allowed = (
            method is not None
            and _has_own_effects(target)
            and (not isinstance(method, NonCallableMock) or _has_own_effects(method))
        )
    elif isinstance(target, type):
        allowed = False
    elif is_own_instance(target):
        found = name if name != "__bool__" or _defines(type(target), name) else "__len__"
        allowed = name in _COPIES or (name in SPECIAL_METHODS and _defines(type(target), found))
    elif isinstance(target, Iterator):
        allowed = name in _OF_ITERATORS
    else:
        allowed = name in _OF_FUNCTIONS | _COPIES
    if not allowed:
        raise refusal(target, name)


def get_attribute(target: Any, name: str) -> Any:
    """Return an attribute of an object.

    Raises:
        AttributeError: If it does not exist, or the submission may not use it.
    """
    if name in _LABELS and (isinstance(target, type) or _is_own_function(target)):
        return getattr(target, name)
    kind = type(target)
    if isinstance(target, NonCallableMock):
        # Each mock has its own class, for the special methods and properties that tests configure.
        allowed = not any(name in vars(base) for base in kind.__mro__[1:])
    else:
        own = is_own_instance(target)
        is_state = _is_whole(kind) and name in getattr(target, "__dict__", ())
        is_member = isinstance(target, enum.Enum) and name in ("name", "value")
        allowed = own and (_defines(kind, name) or is_state or is_member)
    if name.startswith("_") or not allowed:
        raise refusal(target, name)
    return getattr(target, name)


def check_assignment(target: Any, name: Any) -> None:
    """Check that the submission may set or delete an attribute of an object: an instance that holds data.

    Raises:
        AttributeError: If it may not.
    """
    kind = type(target)
    allowed = type(name) is str and not name.startswith("_") and is_own_instance(target) and _is_whole(kind)
    if not allowed or callable(getattr(kind, name, None)):
        raise refusal(target, name)


def is_own_instance(value: Any) -> bool:
    """Return whether an object is an instance of a class of the tests, or a plain namespace."""
    kind = type(value)
    is_own = kind.__module__ == TESTS_MODULE or kind is types.SimpleNamespace
    return is_own and not isinstance(value, type | NonCallableMock)


def refusal(target: Any, name: str) -> AttributeError:
    """Return the exception for what is not on the list."""
    return AttributeError(
        f"{name!r} of a {type(target).__name__} of the tests is not accessible to the submission: expected a name that the "
        'tests define; tests that share such objects need grading="faithful"'
    )


def _is_whole(kind: type) -> bool:
    """Return whether a class and its bases are those of tests, or hold data."""
    return type(kind) in (type, abc.ABCMeta) and all(
        base.__module__ == TESTS_MODULE
        or base in _NEUTRAL
        or base in _DATA
        or (base.__module__ == "builtins" and issubclass(base, BaseException))
        for base in kind.__mro__
    )


def _defines(kind: type, name: str) -> bool:
    """Return whether a name of a class is defined by a class of the tests, or a container that it extends."""
    owner = next((base for base in kind.__mro__ if name in vars(base)), None)
    return owner is not None and (owner.__module__ == TESTS_MODULE or owner in _CONTAINERS)


def _is_own_namespace(namespace: dict[str, Any]) -> bool:
    return namespace.get("__name__") == TESTS_MODULE


def _is_own_function(value: Any) -> bool:
    """Return whether an object is a function of the tests, maybe with arguments, or a method of their objects or data."""
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        return _is_own_namespace(value.__globals__)
    owner = getattr(value, "__self__", None) if isinstance(value, types.BuiltinMethodType) else None
    return type(owner) in _DATA or is_own_instance(owner)


def _has_own_effects(mock: NonCallableMock) -> bool:
    """Return whether calls of a mock run no code but that of tests, mocks and the submission."""
    return all(map(_is_own_effect, (mock.side_effect, mock._mock_wraps)))


def _is_own_effect(effect: Any) -> bool:
    if isinstance(effect, NonCallableMock):
        return _has_own_effects(effect)
    if not callable(effect) or isinstance(effect, ProxyType) or class_of_handle(effect):
        return True
    if isinstance(effect, type):
        return issubclass(effect, BaseException) or _is_whole(effect)
    is_of_mock = isinstance(effect, types.FunctionType) and effect.__globals__.get("__name__") == _MOCKS
    return is_of_mock or _is_own_function(effect) or is_own_instance(effect)
