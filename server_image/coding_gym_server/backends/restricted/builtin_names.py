"""The built-in names of a cell: those of Python that are harmless, safe versions of others, and the guards."""

from __future__ import annotations

import builtins
import dataclasses
import types
from collections.abc import Callable
from typing import Any, NoReturn

from coding_gym_server.backends import tools
from coding_gym_server.backends.restricted import patterns
from coding_gym_server.backends.restricted.guards import Guards
from coding_gym_server.backends.restricted.imports import Imports
from coding_gym_server.backends.restricted.matching import Matching
from coding_gym_server.backends.restricted.opaque import opaque
from coding_gym_server.backends.restricted.substitutes import UNAVAILABLE
from coding_gym_server.backends.restricted.transformer import GUARDS

__all__ = ["builtin_names"]

_PLAIN = (
    "Ellipsis NotImplemented abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex dict "
    "divmod enumerate filter float format frozenset hash hex id input int isinstance issubclass iter len list map max "
    "memoryview min next object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum "
    "super tuple zip"
)
_WITHHELD_EXCEPTIONS = {"BaseExceptionGroup", "ExceptionGroup"}
"""CPython lets a subclass of these confuse the interpreter (CVE-2025-22153)."""

_SEALED = (type, dataclasses.Field)
"""A class of classes could make any other. What a field of a dataclass says its name is becomes source text."""

_TYPING_KINDS = ("typing", "types")


def builtin_names(guards: Guards, imports: Imports, namespace: dict[str, Any]) -> dict[str, Any]:
    """Return what is the ``__builtins__`` of the cells."""
    found: dict[str, Any] = {name: getattr(builtins, name) for name in _PLAIN.split()}
    found |= {
        name: value
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException) and name not in _WITHHELD_EXCEPTIONS
    }
    for name in ("getattr", "hasattr", "setattr", "delattr", "vars", "dir", *UNAVAILABLE):
        if hasattr(builtins, name):
            found[name] = guards.admit(getattr(builtins, name))
    found |= {"type": opaque(type), "exit": _exit, "quit": _exit, "__debug__": True}
    found |= {"format_exc": tools.format_exc, "safe_json_dumps": tools.safe_json_dumps}
    # No cell can name these two. Extension modules import with the first whatever they need for themselves.
    found |= {"__import__": builtins.__import__, "__build_class__": _build_class}

    def load_all(name: str) -> None:
        namespace.update((public, guards.admit(value)) for public, value in imports.load_all(name))

    matching = Matching(guards.getattr, guards.admit)
    found |= {
        GUARDS["attribute"]: guards.getattr,
        GUARDS["item"]: guards.getitem,
        GUARDS["iteration"]: guards.getiter,
        GUARDS["write"]: guards.write,
        GUARDS["in_place"]: guards.in_place,
        GUARDS["metaclass"]: guards.metaclass,
        GUARDS["load"]: lambda name, is_named: guards.admit(imports.load_top(name, is_named)),
        GUARDS["load_from"]: lambda name, attribute: guards.admit(imports.load_from(name, attribute)),
        GUARDS["load_all"]: load_all,
        patterns.MATCH_CLASS: matching.match_class,
        patterns.MATCH_SEQUENCE: matching.match_sequence,
        patterns.MATCH_MAPPING: matching.match_mapping,
    }
    return found


def _build_class(body: Callable[[], Any], name: str, /, *bases: Any, **keywords: Any) -> Any:
    """Make a class, as a class statement does; its metaclass may be one of the library's, but no class makes classes."""
    for base in bases:
        if not isinstance(base, type) and type(base).__module__ not in _TYPING_KINDS and not _is_typing_function(base):
            # What the interpreter asks of such a base, it could answer differently each time.
            message = f"{getattr(base, '__name__', base)!r} cannot be a base class in the restricted backend"
            raise TypeError(message)
    for base in types.resolve_bases(bases):
        if issubclass(base, _SEALED):
            message = f"{base.__name__!r} cannot be a base class in the restricted backend"
            raise TypeError(message)
    return builtins.__build_class__(body, name, *bases, **keywords)


def _is_typing_function(base: Any) -> bool:
    return type(base) is types.FunctionType and base.__module__ == "typing" and hasattr(base, "__mro_entries__")


def _exit(code: Any = None) -> NoReturn:
    raise SystemExit(code)
