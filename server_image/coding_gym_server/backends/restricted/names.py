"""Which names a cell may use, define, read and set; what is in no list here is refused."""

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
_LIFE = "aenter aexit aiter anext await class_getitem copy deepcopy enter exit init init_subclass new post_init"
_METHODS = frozenset(f"__{name}__" for name in f"{_OPERATORS} {_LIFE}".split())

_DEFINABLE = _METHODS | {
    *("__getattr__", "__setattr__", "__delattr__", "__get__", "__set__", "__delete__", "__set_name__", "__dir__"),
    *("__slots__", "__match_args__", "__doc__"),
}
_READABLE = _METHODS | {
    *("__name__", "__qualname__", "__module__", "__doc__", "__wrapped__", "__slots__", "__match_args__"),
    *("__cause__", "__context__", "__suppress_context__", "__notes__", "__members__", "__version__"),
    # What reading these gives is decided by the guard: something else than what CPython gives.
    *("__annotations__", "__class__", "__dict__", "__setattr__", "__delattr__"),
}
_SETTABLE = _METHODS | {"__name__", "__qualname__", "__doc__", "__cause__", "__suppress_context__"}

# Ways from an object to its frames and to the event loop, which starts processes.
_FORBIDDEN = INSPECT_ATTRIBUTES | {"get_loop", "get_stack", "print_stack", "tb_lasti", "mro"}

# What enum.Enum looks for in a class.
_ENUM_HOOKS = {"_missing_", "_generate_next_value_", "_ignore_", "_order_", "_value_", "_name_"}

NAMEDTUPLE_METHODS = frozenset({"_replace", "_asdict", "_make", "_fields", "_field_defaults"})
"""What is public of a named tuple in spite of its name."""


def is_dunder(name: str) -> bool:
    """Say whether a name begins with two underscores; after mangling, these are the language's own."""
    return name.startswith("__")


def is_private(name: str) -> bool:
    """Say whether a name begins with one underscore."""
    return name.startswith("_") and not is_dunder(name)


def may_use(name: str) -> bool:
    """Say whether a variable, function, class or parameter may have a name.

    The names of the guards begin and end with an underscore, so that no variable can take their place.
    """
    if is_private(name):
        return not name.endswith("_") or name == "_" or name in _ENUM_HOOKS or name.startswith("_repr_")
    return not is_dunder(name)


def may_define(name: str) -> bool:
    """Say whether a class may have a method or a variable of a name."""
    return may_use(name) or name in _DEFINABLE


@functools.lru_cache(maxsize=4096)
def may_read(name: str) -> bool:
    """Say whether an attribute of a name may be read of some object, at least."""
    return name not in _FORBIDDEN and (not is_dunder(name) or name in _READABLE)


@functools.lru_cache(maxsize=4096)
def may_set(name: str) -> bool:
    """Say whether an attribute of a name may be set or deleted of some object, at least."""
    return name not in _FORBIDDEN and (not is_dunder(name) or name in _SETTABLE)
