"""Safe versions of functions that read or set attributes by arbitrary names, or that evaluate text."""

from __future__ import annotations

import _string  # type: ignore[import-not-found]
import asyncio
import builtins
import copy
import dataclasses
import functools
import operator
import string
import traceback
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

from coding_gym_server.worker.backends import tools
from coding_gym_server.worker.backends.restricted.guards import Guards
from coding_gym_server.worker.backends.restricted.proxies import class_behind

__all__ = ["UNAVAILABLE", "install", "unavailable"]

UNAVAILABLE = ("__import__", "breakpoint", "compile", "eval", "exec", "globals", "help", "locals", "open")
"""Built-in functions that are unavailable to cells."""

_Function = Callable[..., Any]


def unavailable(name: str) -> _Function:
    """Return the substitute for an unavailable function, which raises ``NameError``."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        message = f"{name}() is not available in the restricted backend"
        raise NameError(message, name=name)

    return refuse


def _function(method: _Function) -> _Function:
    """Wrap a method in a function: a deep copy of the method would expose the guards in its memo."""
    return lambda *arguments: method(*arguments)


def install(guards: Guards) -> None:
    """Register the safe versions with the guards, for every way to access the originals, and harden the library."""
    for original, replacement in (*_builtins(guards), *_formatting(guards), *_reading(guards), *_decorating(guards)):
        guards.substitute(original, replacement)
    _harden_library()


def _harden_library() -> None:
    """Patch the standard library, in this process, to verify information that it would take from an object unchecked."""
    reconstruct, fields = copy._reconstruct, dataclasses.fields  # type: ignore[attr-defined]

    def checked_reconstruct(original: Any, memo: Any, make: _Function, arguments: Any, *state: Any, **options: Any) -> Any:
        def checked(*values: Any) -> Any:
            made = make(*values)
            if type(made) is not type(original):
                # copy would set the attributes of the other object.
                message = f"the copy of a {type(original).__name__!r} object is of another class"
                raise TypeError(message)
            return made

        return reconstruct(original, memo, checked, arguments, *state, **options)

    def checked_fields(target: Any) -> Any:
        _check_fields(target)
        return fields(target)

    copy._reconstruct = checked_reconstruct  # type: ignore[attr-defined]
    dataclasses.fields = checked_fields  # type: ignore[assignment]


def _check_fields(target: Any) -> None:
    """Reject an instance that overrides the fields of its dataclass: the attributes that they name would be read."""
    if not isinstance(target, type) and "__dataclass_fields__" in getattr(target, "__dict__", ()):
        message = "the fields of a dataclass are those of its class"
        raise TypeError(message)


_Pairs = Iterator[tuple[object, object]]


def _builtins(guards: Guards) -> _Pairs:
    for name in UNAVAILABLE:
        if hasattr(builtins, name):
            yield getattr(builtins, name), unavailable(name)
    for name in ("getattr", "hasattr", "setattr", "delattr", "vars", "dir"):
        yield getattr(builtins, name), _function(getattr(guards, name))
    for owner in (object, type, super):
        yield owner.__dict__["__getattribute__"], unavailable("__getattribute__")


def _formatting(guards: Guards) -> _Pairs:
    class Formatter(string.Formatter):
        def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
            first, rest = _string.formatter_field_name_split(field_name)
            found = self.get_value(first, args, kwargs)
            for is_attribute, key in rest:
                found = guards.getattr(found, key) if is_attribute else guards.getitem(found, key)
            return found, first

    def format(template: str, /, *args: Any, **kwargs: Any) -> str:
        return Formatter().vformat(template, args, kwargs)

    def format_map(template: str, mapping: Mapping[str, Any], /) -> str:
        return Formatter().vformat(template, (), mapping)

    yield string.Formatter, Formatter
    yield str.format, format
    yield str.format_map, format_map


def _reading(guards: Guards) -> _Pairs:
    def read(target: Any, path: str) -> Any:
        return functools.reduce(guards.getattr, path.split("."), target)

    def attrgetter(*paths: str) -> _Function:
        if not paths or any(type(path) is not str for path in paths):
            message = "attrgetter takes the names of attributes"
            raise TypeError(message)
        if len(paths) == 1:
            return lambda target: read(target, paths[0])
        return lambda target: tuple(read(target, path) for path in paths)

    def methodcaller(name: str, /, *args: Any, **kwargs: Any) -> _Function:
        return lambda target: guards.getattr(target, name)(*args, **kwargs)

    def get_origin(tp: Any) -> Any:
        return guards.admit(typing.get_origin(tp))

    def run(main: Any, *, debug: bool | None = None) -> Any:
        # The parameter loop_factory is not available.
        return asyncio.run(main, debug=debug)

    yield operator.attrgetter, attrgetter
    yield operator.methodcaller, methodcaller
    yield typing.get_origin, get_origin
    yield asyncio.run, run
    yield traceback.format_exc, tools.format_exc


def _decorating(guards: Guards) -> _Pairs:
    def check_class(cls: Any, decorator: str) -> None:
        if not isinstance(cls, type) or not guards.is_own(cls):
            message = f"{decorator} only decorates classes defined in cells, in the restricted backend"
            raise TypeError(message)

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        def decorate(target: Any) -> Any:
            check_class(target, "dataclass")
            # dataclass inserts the names into source text.
            if not all(name.isidentifier() for name in getattr(target, "__annotations__", ())):
                message = "the fields of a dataclass must be identifiers"
                raise TypeError(message)
            return dataclasses.dataclass(**options)(target)

        return decorate if cls is None else decorate(cls)

    def replace(target: Any, /, **changes: Any) -> Any:
        _check_fields(target)
        return dataclasses.replace(target, **changes)

    def total_ordering(cls: Any) -> Any:
        check_class(cls, "total_ordering")
        return functools.total_ordering(cls)

    def update_wrapper(wrapper: Any, wrapped: Any, *_: Any, **__: Any) -> Any:
        if not guards.is_own(wrapper) or isinstance(wrapper, type):
            message = "update_wrapper only changes functions and objects defined in cells, in the restricted backend"
            raise TypeError(message)
        # All attributes may be copied only from functions of the cells: those of a class would expose its methods.
        is_own_function = type(wrapped) is types.FunctionType and guards.is_own(wrapped)
        return functools.update_wrapper(wrapper, wrapped, updated=("__dict__",) if is_own_function else ())

    def wraps(wrapped: Any, *_: Any, **__: Any) -> _Function:
        return lambda wrapper: update_wrapper(wrapper, wrapped)

    def singledispatch(function: _Function) -> _Function:
        dispatcher: Any = functools.singledispatch(function)
        original = dispatcher.register

        def register(cls: Any, method: Any = None) -> Any:
            if method is None and not isinstance(cls, type | types.UnionType):
                # register() evaluates string annotations, including nested ones.
                is_plain = type(cls) is types.FunctionType and all(_is_class(each) for each in cls.__annotations__.values())
                if not is_plain:
                    message = (
                        "in the restricted backend register() requires a class, register(cls), or a function annotated with one"
                    )
                    raise TypeError(message)
            return original(class_behind(cls), method)

        dispatcher.register = register
        return dispatcher  # type: ignore[no-any-return]

    class singledispatchmethod(functools.singledispatchmethod):  # type: ignore[type-arg]
        def __init__(self, func: Any) -> None:
            super().__init__(func)
            self.dispatcher = singledispatch(func)  # type: ignore[assignment]

    yield dataclasses.dataclass, dataclass
    yield dataclasses.replace, replace
    yield functools.total_ordering, total_ordering
    yield functools.update_wrapper, update_wrapper
    yield functools.wraps, wraps
    yield functools.singledispatch, singledispatch
    yield functools.singledispatchmethod, singledispatchmethod


def _is_class(value: Any) -> bool:
    return value is None or issubclass(type(value), type)
