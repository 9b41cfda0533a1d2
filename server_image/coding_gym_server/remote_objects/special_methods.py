"""Special methods that proxies forward if the remote object has them."""

from __future__ import annotations

from typing import Any

from coding_gym_server.remote_objects.exceptions import name_of_class

__all__ = [
    "ARITHMETIC",
    "COMPARISON",
    "IMMUTABLE",
    "NUMERIC",
    "ORDERING",
    "SPECIAL_METHODS",
    "builtin_part",
    "is_inherited",
    "special_methods_of",
]

IMMUTABLE = (int, float, complex, str, bytes, tuple, frozenset)
"""Builtin types whose subclass instances are sent with their data; their proxies are instances of these types, too."""

_OPERATIONS = (
    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
    *("lshift", "rshift", "and", "xor", "or"),
)

ARITHMETIC = frozenset(
    {f"__{prefix}{operation}__" for operation in _OPERATIONS for prefix in ("", "r", "i")} - {"__idivmod__"},
)
"""Binary operators."""

ORDERING = frozenset(("__lt__", "__le__", "__gt__", "__ge__"))
COMPARISON = frozenset(("__eq__", "__ne__"))

NUMERIC = frozenset(
    f"__{name}__"
    for name in ("abs", "neg", "pos", "invert", "int", "float", "complex", "index", "round", "trunc", "floor", "ceil", "bool")
)
"""Methods that convert an object to a number or a truth value."""

_OTHERS = frozenset(
    f"__{name}__"
    for name in (
        *("call", "len", "length_hint", "iter", "next", "reversed", "contains", "getitem", "setitem", "delitem"),
        *("enter", "exit", "str", "repr", "format", "bytes", "hash", "fspath"),
        *("aiter", "anext", "aenter", "aexit"),
    )
)

SPECIAL_METHODS = ARITHMETIC | ORDERING | COMPARISON | NUMERIC | _OTHERS
"""All special methods of proxies: others, such as ``__array_ufunc__``, would let an object control its own treatment."""


def special_methods_of(kind: type) -> list[str]:
    """Return the names of the special methods of a class beyond those of ``object``.

    Excludes those that a proxy inherits from a builtin base.
    """
    bases = [base for base in kind.__mro__ if base is not object and not is_inherited(base)]
    found = {name for base in bases for name in vars(base) if name in SPECIAL_METHODS}
    # A class disables a special method by setting it to None.
    return sorted(name for name in found if getattr(kind, name, None) is not None)


def builtin_part(value: Any) -> Any:
    """Return the data of an instance of a subclass of an immutable builtin type, bypassing overrides of the subclass."""
    base: Any = next(base for base in IMMUTABLE if isinstance(value, base))
    if base in (tuple, frozenset):
        return base(base.__iter__(value))
    if base in (str, bytes):
        return base.__getitem__(value, slice(None))
    return int.__add__(value, 0) if base is int else base.__pos__(value)


def is_inherited(kind: type) -> bool:
    """Return whether proxy classes inherit from a class directly: an immutable builtin type, or an exception of a library."""
    return kind in IMMUTABLE or name_of_class(kind) is not None
