"""Stand-ins for the classes that make classes, functions and modules: a cell may compare and test with them, not call them.

Whoever can call ``type`` with three arguments can give a class what a class statement may not give it.
"""

from __future__ import annotations

import functools
import types
import typing
from typing import Any, NoReturn

__all__ = ["Opaque", "class_behind", "class_of", "opaque"]

_HIDDEN = frozenset({types.FunctionType, types.CodeType, types.ModuleType, types.FrameType})


class Opaque:
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
        return isinstance(instance, self._behind) or (self._behind is type and type(instance) is Opaque)

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


@functools.cache
def _stand_in(cls: type) -> Opaque:
    return Opaque(cls)


def opaque(cls: Any) -> Any:
    """Return what a cell gets to see of a class: itself, mostly."""
    return _stand_in(cls) if cls in _HIDDEN or issubclass(cls, type) else cls


def class_of(target: Any) -> Any:
    """Return what a cell gets to see of the class of an object."""
    return _stand_in(type) if type(target) is Opaque else opaque(type(target))


def class_behind(cls: Any) -> Any:
    """Return the class that a stand-in stands for, or the class itself."""
    return cls._behind if type(cls) is Opaque else cls
