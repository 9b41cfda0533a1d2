"""Built-in names of a cell: the harmless built-ins of Python, safe versions of others, and the guards."""

from __future__ import annotations

import builtins
import dataclasses
import types
from collections.abc import Callable
from typing import Any, NoReturn

from coding_gym_server.worker.backends import tools
from coding_gym_server.worker.backends.restricted import match_rewrite as patterns
from coding_gym_server.worker.backends.restricted.guards import Guards
from coding_gym_server.worker.backends.restricted.imports import Imports
from coding_gym_server.worker.backends.restricted.match_runtime import MatchRuntime
from coding_gym_server.worker.backends.restricted.proxies import opaque
from coding_gym_server.worker.backends.restricted.safe_builtins import UNAVAILABLE
from coding_gym_server.worker.backends.restricted.transformer import GUARDS

__all__ = ["builtin_names"]

_PLAIN = (
    "Ellipsis NotImplemented abs aiter all anext any ascii bin bool bytearray bytes callable chr classmethod complex dict "
    "divmod enumerate filter float format frozenset hash hex id input int isinstance issubclass iter len list map max "
    "memoryview min next object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum "
    "super tuple zip"
)
_EXCLUDED_EXCEPTIONS = {"BaseExceptionGroup", "ExceptionGroup"}
"""Exceptions whose subclasses can cause type confusion in CPython (CVE-2025-22153)."""

_SEALED = (type, dataclasses.Field)
"""Classes that cells must not subclass: a metaclass could create any class, and ``Field`` names become source text."""

_TYPING_KINDS = ("typing", "types")


def builtin_names(guards: Guards, imports: Imports, namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the ``__builtins__`` of the cells."""
    found: dict[str, Any] = {name: getattr(builtins, name) for name in _PLAIN.split()}
    found |= {
        name: value
        for name, value in vars(builtins).items()
        if isinstance(value, type) and issubclass(value, BaseException) and name not in _EXCLUDED_EXCEPTIONS
    }
    for name in ("getattr", "hasattr", "setattr", "delattr", "vars", "dir", *UNAVAILABLE):
        if hasattr(builtins, name):
            found[name] = guards.admit(getattr(builtins, name))
    found |= {"type": opaque(type), "exit": _exit, "quit": _exit, "__debug__": True}
    found |= {"format_exc": tools.format_exc, "safe_json_dumps": tools.safe_json_dumps}
    # Cells cannot use these two names. Extension modules call ``__import__`` for their own imports.
    found |= {"__import__": builtins.__import__, "__build_class__": _build_class}

    def load_all(name: str) -> None:
        namespace.update((public, guards.admit(value)) for public, value in imports.load_all(name))

    matching = MatchRuntime(guards.getattr, guards.admit)
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
    """Create a class for a class statement; the metaclass can be one of the standard library, but cells cannot define any."""
    for base in bases:
        if not isinstance(base, type) and type(base).__module__ not in _TYPING_KINDS and not _is_typing_function(base):
            # Such a base could return different results each time that the interpreter queries it.
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
