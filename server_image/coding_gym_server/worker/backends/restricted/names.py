"""Names that a cell may use, define, read and set; special names that are not in an allowlist are rejected."""

from __future__ import annotations

import functools

from RestrictedPython.transformer import INSPECT_ATTRIBUTES

__all__ = ["NAMEDTUPLE_METHODS", "is_dunder", "is_private", "may_define", "may_read", "may_set", "may_use"]

_OPERATORS = (
    "abs add and bool call ceil complex concat contains delitem divmod eq float floor floordiv format ge getitem gt hash "
    "iadd iand ifloordiv ilshift imatmul imod imul index int invert ior ipow irshift isub iter itruediv ixor le len "
    "length_hint lshift lt matmul missing mod mul ne neg next or pos pow radd rand rdivmod repr reversed rfloordiv rlshift "
    "rmatmul rmod rmul ror round rpow rrshift rshift rsub rtruediv rxor setitem str sub truediv trunc xor bytes"
)
_PROTOCOLS = "aenter aexit aiter anext await class_getitem copy deepcopy enter exit init init_subclass new post_init"
_METHODS = frozenset(f"__{name}__" for name in f"{_OPERATORS} {_PROTOCOLS}".split())

_DEFINABLE = _METHODS | {
    *("__getattr__", "__setattr__", "__delattr__", "__get__", "__set__", "__delete__", "__set_name__", "__dir__"),
    *("__slots__", "__match_args__", "__doc__"),
}
_READABLE = _METHODS | {
    *("__name__", "__qualname__", "__module__", "__doc__", "__wrapped__", "__slots__", "__match_args__"),
    *("__cause__", "__context__", "__suppress_context__", "__notes__", "__members__", "__version__"),
    # The guard determines the values of these, which differ from those of CPython.
    *("__annotations__", "__class__", "__dict__", "__setattr__", "__delattr__"),
}
_SETTABLE = _METHODS | {"__name__", "__qualname__", "__doc__", "__cause__", "__suppress_context__"}

# Attributes that lead from an object to its frames or to the event loop, which can start processes.
_FORBIDDEN = INSPECT_ATTRIBUTES | {"get_loop", "get_stack", "print_stack", "tb_lasti", "mro"}

# Names that enum.Enum looks up in a class.
_ENUM_HOOKS = {"_missing_", "_generate_next_value_", "_ignore_", "_order_", "_value_", "_name_"}

NAMEDTUPLE_METHODS = frozenset({"_replace", "_asdict", "_make", "_fields", "_field_defaults"})
"""Public attributes of a named tuple that begin with an underscore."""


def is_dunder(name: str) -> bool:
    """Return whether a name begins with two underscores; after name mangling, only special names do."""
    return name.startswith("__")


def is_private(name: str) -> bool:
    """Return whether a name begins with exactly one underscore."""
    return name.startswith("_") and not is_dunder(name)


def may_use(name: str) -> bool:
    """Return whether a variable, function, class or parameter may have a name.

    Names with a leading and a trailing underscore are reserved for the guards, so that no variable can replace them.
    """
    if is_private(name):
        return not name.endswith("_") or name == "_" or name in _ENUM_HOOKS or name.startswith("_repr_")
    return not is_dunder(name)


def may_define(name: str) -> bool:
    """Return whether a class may define a method or variable with a name."""
    return may_use(name) or name in _DEFINABLE


@functools.lru_cache(maxsize=4096)
def may_read(name: str) -> bool:
    """Return whether an attribute with a name may be read from any object at all; the guards restrict the objects."""
    return name not in _FORBIDDEN and (not is_dunder(name) or name in _READABLE)


@functools.lru_cache(maxsize=4096)
def may_set(name: str) -> bool:
    """Return whether an attribute with a name may be set or deleted on any object at all; the guards restrict the objects."""
    return name not in _FORBIDDEN and (not is_dunder(name) or name in _SETTABLE)
