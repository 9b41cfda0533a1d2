"""Stand-ins for what a cell must not hold in its hands: modules, and the classes that make classes, functions and modules.

Whoever can call ``type`` with three arguments can give a class what a class statement may not give it. And much of the
standard library copies the dictionary of an object (``functools.wraps``), which for a module is all that it has imported.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, NoReturn

__all__ = ["ModuleView", "Opaque", "class_behind", "class_of", "opaque", "view"]

_HIDDEN = frozenset({types.FunctionType, types.CodeType, types.ModuleType, types.FrameType})


class _StandIn:
    """Keeps what is behind it to itself when it is copied, too: a copy's memo shows all that was copied."""

    __slots__ = ("__weakref__",)

    def __copy__(self) -> _StandIn:
        return self

    def __deepcopy__(self, memo: object) -> _StandIn:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        message = "it cannot be copied or pickled"
        raise TypeError(message)


class Opaque(_StandIn):
    """Stands for a class. As ``type``, it tells the class of an object.

    Args:
        behind: The class.
    """

    __slots__ = ("_behind",)

    def __init__(self, behind: type) -> None:
        self._behind = behind

    @property
    def __name__(self) -> str:
        return self._behind.__name__

    def __repr__(self) -> str:
        return repr(self._behind)

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        if self._behind is type and len(arguments) == 1:
            return class_of(arguments[0])
        message = f"{self.__name__}() cannot make anything in the restricted backend: use a class or def statement"
        raise TypeError(message)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._behind) or class_of(instance) is self

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(class_behind(subclass), self._behind)

    def __getitem__(self, item: Any) -> Any:
        return typing.Type[item]  # noqa: UP006 - its kind cannot be called

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007 - the classes of the operator are not ours

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __mro_entries__(self, _: tuple[Any, ...]) -> NoReturn:
        message = f"{self.__name__!r} cannot be a base class in the restricted backend"
        raise TypeError(message)


class ModuleView(_StandIn):
    """Stands for a module. Its attributes are read by the guards only.

    Args:
        module: The module.
    """

    __slots__ = ("_module",)

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __repr__(self) -> str:
        return repr(self._module)


@functools.cache
def view(module: types.ModuleType) -> ModuleView:
    """Return what a cell gets to see of a module."""
    return ModuleView(module)


@functools.cache
def _stand_in(cls: type) -> Opaque:
    return Opaque(cls)


def opaque(cls: Any) -> Any:
    """Return what a cell gets to see of a class: itself, mostly."""
    return _stand_in(cls) if cls in _HIDDEN or issubclass(cls, type) else cls


def class_of(target: Any) -> Any:
    """Return what a cell gets to see of the class of an object."""
    kind = type(target)
    return _stand_in(type) if kind is Opaque else _stand_in(types.ModuleType) if kind is ModuleView else opaque(kind)


def class_behind(cls: Any) -> Any:
    """Return the class that a stand-in stands for, or the class itself."""
    return cls._behind if type(cls) is Opaque else cls
