"""Proxies: local representatives of remote objects.

The class of a proxy represents the class of the remote object: it has its name, bases and special methods, so that
``isinstance``, ``except``, operators and protocols work as they do on the object. The access policy of the local endpoint
decides how operations on a proxy are carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coding_gym_server.remote_objects.exchange import ClassFacts
from coding_gym_server.remote_objects.special_methods import IMMUTABLE, SPECIAL_METHODS, builtin_part, is_inherited
from coding_gym_server.remote_objects.values import MUTABLE, MalformedError

if TYPE_CHECKING:
    from coding_gym_server.remote_objects.policy import Endpoint

__all__ = ["Handle", "ProxyType", "class_of_handle", "make_class", "new_handle", "number_of"]


def _special_method(name: str) -> Callable[..., Any]:
    if name == "__call__":
        return _call

    def method(self: Any, *arguments: Any) -> Any:
        return self._handle_peer.rules.operate_on_handle(name, self, arguments)

    method.__name__ = name
    return method


def _call(self: Any, *arguments: Any, **keywords: Any) -> Any:
    return self._handle_peer.rules.call_handle(self, arguments, keywords)


class _Attribute:
    """Descriptor that looks an attribute up remotely even if a builtin base class has one of the same name.

    Args:
        name: The attribute name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, handle: Any, kind: Any) -> Any:
        return kind._handle_peer.rules.look_up(kind if handle is None else handle, self._name)

    def __set__(self, handle: Any, value: Any) -> None:
        type(handle)._handle_peer.operate("__setattr__", handle, (self._name, value))


class ProxyType(type):
    """Metaclass of proxy classes."""

    _handle_peer: Endpoint
    _handle_number: int
    _handle_is_awaitable: bool

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> ProxyType:
        message = f"tests cannot extend {bases[0].__name__}, a class of the submission"
        raise TypeError(message)

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        """Create a remote instance."""
        return cls._handle_peer.rules.call_handle(cls, arguments, keywords)

    def __getattr__(cls, name: str) -> Any:
        return cls._handle_peer.rules.look_up(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._handle_peer.operate("__setattr__", cls, (name, value))

    def __delattr__(cls, name: str) -> None:
        cls._handle_peer.operate("__delattr__", cls, (name,))

    # For classes with a metaclass defined by the submission, such as enumerations.

    __iter__ = _special_method("__iter__")
    __len__ = _special_method("__len__")
    __getitem__ = _special_method("__getitem__")

    def __bool__(cls) -> bool:
        return True

    def __contains__(cls, item: Any) -> Any:
        return any(item is member or item == member for member in cls)


class Handle:
    """Base class of proxies."""

    _handle_peer: Endpoint
    _handle_number: int
    __dict__: Any

    __copy__ = _special_method("__copy__")

    def __getattr__(self, name: str) -> Any:
        return self._handle_peer.rules.look_up(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or (name == "args" and isinstance(self, BaseException)):
            # Set locally: Python sets these attributes on an exception that propagates on this side.
            object.__setattr__(self, name, value)
            return
        self._handle_peer.operate("__setattr__", self, (name, value))

    def __delattr__(self, name: str) -> None:
        self._handle_peer.operate("__delattr__", self, (name,))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._handle_peer.rules.operate_on_handle("__deepcopy__", self, ())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        data = builtin_part(self) if isinstance(self, IMMUTABLE) else self._handle_peer.plain(self)
        if data is None or class_of_handle(data) is not None:
            # Read as a sequence, the object could claim to be empty, which equals everything.
            message = f"a {type(self).__name__}, an object of another process, is not an array: expected data"
            raise TypeError(message)
        import numpy as np

        return np.asarray(data, dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        message = f"cannot pickle {type(self).__name__}: the object is in another process"
        raise TypeError(message)


def make_class(peer: Endpoint, number: int, facts: ClassFacts, bases: list[Any]) -> ProxyType:
    """Return the proxy class for a remote class.

    Args:
        peer: The local endpoint, which holds the proxies.
        number: The number of the class on the remote side.
        facts: The description of the class.
        bases: Its bases, remote ones as proxy classes.

    Raises:
        MalformedError: If no such class can be created.
    """
    kept = [base for base in bases if isinstance(base, ProxyType) or is_inherited(base)]
    if not any(isinstance(base, ProxyType) for base in kept):
        kept.insert(0, Handle)
    namespace: dict[str, Any] = {
        "__module__": facts.module,
        "__qualname__": facts.qualname,
        "__doc__": _Attribute("__doc__"),
        "__dict__": _Attribute("__dict__"),
        "_handle_peer": peer,
        "_handle_number": number,
        "_handle_is_awaitable": facts.is_awaitable,
        # Names sent by the remote side are untrusted.
        **{name: _Attribute(name) for name in facts.own if not name.startswith(("_handle_", "__"))},
        **{name: _special_method(name) for name in facts.specials if name in SPECIAL_METHODS},
    }
    if container := next((base for base in bases if base in MUTABLE), None):
        # For isinstance() in tests: the proxy itself holds no data.
        shown = type(facts.name, (container,), {})
        namespace["__class__"] = property(lambda _: shown)
    if "__len__" in namespace:
        namespace.setdefault("__bool__", _special_method("__bool__"))
    try:
        return type.__new__(ProxyType, facts.name, tuple(kept), namespace)
    except (TypeError, ValueError) as error:
        message = f"the class {facts.qualname!r}: {error}"
        raise MalformedError(message) from error


def new_handle(kind: ProxyType, number: int, *data: Any) -> Any:
    """Return a new proxy for an object.

    Args:
        kind: The proxy class.
        number: The number of the object on the remote side.
        data: Its value, if its class extends an immutable builtin type.

    Raises:
        MalformedError: If the data is missing or of another type.
    """
    base: Any = next((base for base in IMMUTABLE if issubclass(kind, base)), None)
    if base is None:
        make: Any = kind.__new__
        handle = make(kind)
    elif len(data) == 1 and type(data[0]) is base:
        handle = base.__new__(kind, data[0])  # type: ignore[call-overload]
    else:
        message = f"no data for a {kind.__name__}"
        raise MalformedError(message)
    object.__setattr__(handle, "_handle_number", number)
    return handle


def number_of(peer: Endpoint, value: Any) -> int | None:
    """Return the number by which the peer knows a proxy or a proxy class; None if the value is neither.

    Raises:
        ValueError: If it is a proxy of another submission.
    """
    kind = value if isinstance(value, ProxyType) else class_of_handle(value)
    if kind is None:
        return None
    if kind._handle_peer is not peer:
        message = f"{kind.__name__} belongs to a submission that has ended"
        raise ValueError(message)
    number: int = kind._handle_number if kind is value else object.__getattribute__(value, "_handle_number")
    return number


def class_of_handle(value: Any) -> ProxyType | None:
    """Return the class of a proxy; None if the value is not a proxy."""
    kind: Any = type(value)
    return kind if isinstance(kind, ProxyType) else None
