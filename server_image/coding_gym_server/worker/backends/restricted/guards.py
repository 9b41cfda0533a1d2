"""Guards: functions that a transformed cell calls for every attribute access, item access, iteration and write."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterable
from types import BuiltinMethodType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from coding_gym_server.worker.backends.restricted import names
from coding_gym_server.worker.backends.restricted.imports import Imports
from coding_gym_server.worker.backends.restricted.proxies import ModuleView, class_behind, class_of, opaque, view

__all__ = ["Guards"]

_MAIN = "__main__"

# Categories of objects, by how they are handled. Enum members would make every attribute access 50% slower.
_PLAIN, _METHOD, _CLASS, _MODULE, _VIEW, _FORBIDDEN, _OTHER = range(7)

# Subclasses of the classes in these modules have no private attributes except their own.
_PLAIN_MODULES = {_MAIN, "builtins", "abc", "typing", "enum", "collections", "collections.abc", "numbers", "dataclasses"}
_PLAIN_KINDS = frozenset({bool, bytes, complex, dict, float, frozenset, int, list, range, set, str, tuple, type(None)})
_CONTAINERS = _PLAIN_KINDS | {enumerate, filter, map, reversed, zip, type(_ for _ in ())}
_IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
    "|=": operator.ior,
    "^=": operator.ixor,
    "&=": operator.iand,
    "//=": operator.ifloordiv,
    "@=": operator.imatmul,
}

# The actual dictionary of the class, which a metaclass cannot override.
_dict_of: Callable[[type], Any] = type.__dict__["__dict__"].__get__
_mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


class Guards:
    """Access control for cells.

    Cells may modify the classes and functions that they define, and the instances of these classes. Of other objects, they may
    set public attributes of instances of authorized packages only.

    Args:
        namespace: The global variables of the cells.
        imports: The import policy, which also determines the public attributes of modules.
    """

    def __init__(self, namespace: dict[str, Any], imports: Imports) -> None:
        self._namespace = namespace
        self._imports = imports
        self._substitutes: dict[int, tuple[Any, Any]] = {}

    def substitute(self, original: object, replacement: object) -> None:
        """Register the object that cells get instead of the original."""
        self._substitutes[id(original)] = (original, replacement)

    # Read access.

    def admit(self, value: Any) -> Any:
        """Return a value that a cell accesses, or its substitute.

        Raises:
            AttributeError: If the cell may not access the value.
        """
        category = _category(type(value))
        if category == _PLAIN:
            return value
        if id(value) in self._substitutes:
            return self._substitutes[id(value)][1]
        if category == _METHOD:
            return self._admit_method(value)
        if category == _CLASS:
            return opaque(value)
        if category == _MODULE:
            self._imports.check_module(value)
            return view(value)
        if category == _FORBIDDEN:
            raise _forbidden(value)
        return value

    def _admit_method(self, method: Any) -> Any:
        owner = method.__self__
        if type(method) is BuiltinMethodType and issubclass(type(owner), str) and method.__name__ in {"format", "format_map"}:
            unbound = self._substitutes[id(getattr(str, method.__name__))][1]
            return MethodType(unbound, owner)
        return method

    def getattr(self, target: Any, name: str, *default: Any) -> Any:
        """Implement ``getattr`` for public attributes, and for private attributes that the cells define.

        Raises:
            AttributeError: If the attribute does not exist or may not be read.
            TypeError: If the name is not a string.
        """
        if type(name) is not str:
            message = "attribute name must be string"
            raise TypeError(message)
        if not names.may_read(name):
            raise _refusal(target, name)
        category = _category(type(target))
        if category == _VIEW:
            return self.admit(self._imports.attribute(target._module, name, *default))
        if category in (_FORBIDDEN, _MODULE):
            raise _forbidden(target)
        if name.startswith("_"):
            return self._private(target, name, *default)
        return self.admit(getattr(target, name, *default))

    def _private(self, target: Any, name: str, *default: Any) -> Any:
        if names.is_private(name):
            if not self._is_own_attribute(target, name):
                if default and not hasattr(target, name):
                    return default[0]
                raise _refusal(target, name)
        elif name == "__class__":
            if not _is_own_class(type(target)):
                raise _refusal(target, name)
            return class_of(target)
        elif name == "__dict__":
            if not self._has_own_dict(target):
                raise _refusal(target, name)
        elif name in {"__setattr__", "__delattr__"}:
            return self._setter(target, getattr(target, name))
        elif name == "__annotations__":
            # A copy, because dataclasses inserts the names in it into source text.
            return dict(getattr(target, name, *default)) if self.is_own(target) else {}
        return self.admit(getattr(target, name, *default))

    def hasattr(self, target: Any, name: str) -> bool:
        """Return whether the attribute exists and may be read by a cell."""
        try:
            self.getattr(target, name)
        except AttributeError:
            return False
        return True

    def getitem(self, target: Any, key: Any) -> Any:
        """Return ``target[key]``, admitted."""
        return self.admit(target[key])

    def getiter(self, iterable: Iterable[Any]) -> Iterable[Any]:
        """Return an iterable of admitted items; the items of built-in containers have already been admitted."""
        return iterable if type(iterable) in _CONTAINERS else map(self.admit, iterable)

    def dir(self, *target: Any) -> list[str]:
        """Return the names of the readable attributes of an object or, without arguments, of the variables of the cells."""
        if not target:
            return sorted(name for name in self._namespace if names.may_use(name))
        described = target[0]._module if type(target[0]) is ModuleView else target[0]
        return [name for name in dir(described) if names.may_read(name) and not names.is_private(name)]

    def vars(self, target: Any) -> Any:
        """Return the ``__dict__`` of an instance of a class that the cells define."""
        return self.getattr(target, "__dict__")

    def metaclass(self, value: Any, keyword: str | None) -> Any:
        """Return the original metaclass of a class statement or, if ``keyword`` is None, its checked ``**`` arguments."""
        if keyword is None:
            if "metaclass" in (arguments := dict(value)):
                message = "a metaclass must be written as metaclass=..."
                raise TypeError(message)
            return arguments
        return class_behind(value)

    # Write access.

    def write(self, target: Any, name: str) -> Any:
        """Return the object if a cell may set or delete its attribute of that name.

        Raises:
            AttributeError: If the attribute may not be set or deleted.
        """
        if type(name) is not str or not names.may_set(name):
            raise _refusal(target, name, "set")
        if self.is_own(target) or (not name.startswith("_") and self._imports.is_instance_of_authorized(target)):
            return target
        raise _refusal(target, name, "set")

    def setattr(self, target: Any, name: str, value: Any) -> None:
        """Implement ``setattr`` for writable attributes."""
        setattr(self.write(target, name), name, value)

    def delattr(self, target: Any, name: str) -> None:
        """Implement ``delattr`` for writable attributes."""
        delattr(self.write(target, name), name)

    def _setter(self, target: Any, method: Callable[..., None]) -> Callable[..., None]:
        """Wrap ``__setattr__`` or ``__delattr__`` of an object with the check for write access."""
        is_unbound = issubclass(type(target), type)
        bound_to: Any = getattr(target, "__self__", None) if type(target) is super else target

        def checked(*arguments: Any) -> None:
            owner, name = (arguments[0], arguments[1]) if is_unbound else (bound_to, arguments[0])
            self.write(owner, name)
            method(*arguments)

        return checked

    def in_place(self, operation: str, target: Any, value: Any) -> Any:
        """Return the result of an augmented assignment such as ``target += value``."""
        return _IN_PLACE[operation](target, value)

    # Ownership.

    def is_own(self, target: Any) -> bool:
        """Return whether an object is a class or function that the cells define, or an instance of such a class."""
        kind = type(target)
        if kind is FunctionType:
            return target.__globals__ is self._namespace
        return _is_own_class(target if issubclass(kind, type) else kind)

    def _is_own_attribute(self, target: Any, name: str) -> bool:
        """Return whether a private attribute was defined by the cells."""
        kind = type(target)
        if kind is FunctionType:
            return self.is_own(target)
        cls = target.__self_class__ if kind is super else target if issubclass(kind, type) else kind
        if name in names.NAMEDTUPLE_METHODS and issubclass(cls, tuple):
            return True
        for base in _mro_of(cls):
            if name in _dict_of(base):
                return _is_own_class(base)
        return self._has_own_dict(target)

    def _has_own_dict(self, target: Any) -> bool:
        """Return whether only cells can add attributes to an object."""
        cls = type(target)
        if issubclass(cls, type):
            return False
        modules = [_dict_of(base).get("__module__", base.__module__) for base in _mro_of(cls)]
        return modules[0] == _MAIN and _PLAIN_MODULES.issuperset(modules)


def _category_of(kind: type) -> int:
    """Return the category of the instances of a class."""
    events = sys.modules.get("asyncio.events")
    if kind in _PLAIN_KINDS:
        return _PLAIN
    if kind is BuiltinMethodType or kind is MethodType:
        return _METHOD
    if issubclass(kind, type):
        return _CLASS
    if issubclass(kind, ModuleType):
        return _MODULE
    if kind is ModuleView:
        return _VIEW
    is_event_loop = events is not None and issubclass(kind, events.AbstractEventLoop)
    return _FORBIDDEN if is_event_loop or kind is FrameType or kind is CodeType else _OTHER


def _is_defined_in_cell(cls: type) -> bool:
    return bool(_dict_of(cls).get("__module__") == _MAIN)


_category: Callable[[type], int] = functools.lru_cache(maxsize=4096)(_category_of)
_is_own_class: Callable[[type], bool] = functools.lru_cache(maxsize=4096)(_is_defined_in_cell)


def _forbidden(value: object) -> AttributeError:
    return AttributeError(f"{type(value).__name__!r} objects are not available in the restricted backend")


def _refusal(target: Any, name: object, verb: str = "read") -> AttributeError:
    kind = class_of(target).__name__
    return AttributeError(f"the attribute {name!r} of {kind!r} objects may not be {verb} in the restricted backend")
