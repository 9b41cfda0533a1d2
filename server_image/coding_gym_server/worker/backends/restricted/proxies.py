"""Proxies for objects that a cell must not access directly: modules, metaclasses and some interpreter types.

Code that can call ``type`` with three arguments can define a class that a class statement may not define. Moreover, much of
the standard library copies the dictionary of an object (such as ``functools.wraps``), which for a module includes all its
imports.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, NoReturn

__all__ = ["ModuleView", "Opaque", "class_behind", "class_of", "opaque", "view"]

_HIDDEN = frozenset({types.FunctionType, types.CodeType, types.ModuleType, types.FrameType})


class _Substitute:
    """Base of the proxies, which are not copied or pickled: the memo of a deep copy would expose the original."""

    __slots__ = ("__weakref__",)

    def __copy__(self) -> _Substitute:
        return self

    def __deepcopy__(self, memo: object) -> _Substitute:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        message = "it cannot be copied or pickled"
        raise TypeError(message)


class Opaque(_Substitute):
    """Proxy for a class. The proxy for ``type``, called with one argument, returns the class of an object.

    Args:
        target: The original class.
    """

    __slots__ = ("_target",)

    def __init__(self, target: type) -> None:
        self._target = target

    @property
    def __name__(self) -> str:
        return self._target.__name__

    def __repr__(self) -> str:
        return repr(self._target)

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        if self._target is type and len(arguments) == 1:
            return class_of(arguments[0])
        message = f"{self.__name__}() cannot create objects in the restricted backend: use a class or def statement"
        raise TypeError(message)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._target) or class_of(instance) is self

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(class_behind(subclass), self._target)

    def __getitem__(self, item: Any) -> Any:
        return typing.Type[item]  # noqa: UP006 - its class cannot be called

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 - the operator would call this method again

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __mro_entries__(self, _: tuple[Any, ...]) -> NoReturn:
        message = f"{self.__name__!r} cannot be a base class in the restricted backend"
        raise TypeError(message)


class ModuleView(_Substitute):
    """Proxy for a module, whose attributes are read by the guards only.

    Args:
        module: The original module.
    """

    __slots__ = ("_module",)

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __repr__(self) -> str:
        return repr(self._module)


@functools.cache
def view(module: types.ModuleType) -> ModuleView:
    """Return the proxy for a module."""
    return ModuleView(module)


@functools.cache
def _substitute(cls: type) -> Opaque:
    return Opaque(cls)


def opaque(cls: Any) -> Any:
    """Return a class as a cell sees it: the class itself or, for metaclasses and hidden classes, a proxy."""
    return _substitute(cls) if cls in _HIDDEN or issubclass(cls, type) else cls


def class_of(target: Any) -> Any:
    """Return the class of an object as a cell sees it."""
    kind = type(target)
    return _substitute(type) if kind is Opaque else _substitute(types.ModuleType) if kind is ModuleView else opaque(kind)


def class_behind(cls: Any) -> Any:
    """Return the original class of a proxy, or the class itself if it is not a proxy."""
    return cls._target if type(cls) is Opaque else cls
