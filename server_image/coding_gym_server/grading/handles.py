"""Handles: what stands in on one side for an object of the other side.

The class of a handle stands in for the object's class: it has its name, its bases and its special methods, so that
``isinstance``, ``except``, operators and protocols work as they do on the object. What is done to a handle is up to the
``rules`` of its side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coding_gym_server.grading.exchange import ClassFacts
from coding_gym_server.grading.special_methods import IMMUTABLE, SPECIAL_METHODS, is_inherited
from coding_gym_server.grading.values import MalformedError

if TYPE_CHECKING:
    from coding_gym_server.grading.peer import Peer

__all__ = ["Handle", "HandleType", "class_of_handle", "make_class", "new_handle", "number_of"]


class _Attribute:
    """Looks an attribute up on the other side, where a builtin class has one of that name, too.

    Args:
        name: The name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, handle: Any, kind: Any) -> Any:
        return kind._handle_peer.rules.look_up(kind if handle is None else handle, self._name)

    def __set__(self, handle: Any, value: Any) -> None:
        type(handle)._handle_peer.set(handle, self._name, value)


class HandleType(type):
    """The class of the classes of handles."""

    _handle_peer: Peer
    _handle_number: int
    _handle_is_awaitable: bool

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, real: bool = False) -> HandleType:
        if not real:
            message = f"tests cannot extend {bases[0].__name__}, a class of the submission"
            raise TypeError(message)
        return super().__new__(mcs, name, bases, namespace)

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, real: bool = False) -> None:
        super().__init__(name, bases, namespace)

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        """Make an object on the other side."""
        return cls._handle_peer.rules.make(cls, arguments, keywords)

    def __getattr__(cls, name: str) -> Any:
        return cls._handle_peer.rules.look_up(cls, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        cls._handle_peer.set(cls, name, value)

    def __delattr__(cls, name: str) -> None:
        cls._handle_peer.delete(cls, name)

    # Of a class whose class is one of the submission, such as an enumeration.

    def __iter__(cls) -> Any:
        return cls._handle_peer.operate("__iter__", cls, ())

    def __len__(cls) -> Any:
        return cls._handle_peer.operate("__len__", cls, ())

    def __bool__(cls) -> bool:
        return True

    def __getitem__(cls, key: Any) -> Any:
        return cls._handle_peer.operate("__getitem__", cls, (key,))

    def __contains__(cls, item: Any) -> Any:
        return any(item is member or item == member for member in cls)


class Handle:
    """What all handles have in common."""

    _handle_number: int
    __dict__: Any

    def __getattr__(self, name: str) -> Any:
        kind: Any = type(self)
        return kind._handle_peer.rules.look_up(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or (name == "args" and isinstance(self, BaseException)):
            # What Python notes on an exception on its way through this side.
            object.__setattr__(self, name, value)
            return
        kind: Any = type(self)
        kind._handle_peer.set(self, name, value)

    def __delattr__(self, name: str) -> None:
        kind: Any = type(self)
        kind._handle_peer.delete(self, name)

    def __copy__(self) -> Any:
        kind: Any = type(self)
        return kind._handle_peer.operate("__copy__", self, ())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        kind: Any = type(self)
        return kind._handle_peer.operate("__deepcopy__", self, ())

    def __reduce_ex__(self, protocol: Any) -> Any:
        message = f"cannot pickle {type(self).__name__}: the object is in another process"
        raise TypeError(message)


def make_class(peer: Peer, number: int, facts: ClassFacts, bases: list[Any]) -> HandleType:
    """Return the class that stands in for a class of the other side.

    Args:
        peer: The side that holds the handles.
        number: The number of the class on the other side.
        facts: What the other side says of it.
        bases: Its bases, those of the other side as handles.

    Raises:
        MalformedError: There can be no such class.
    """
    kept = [base for base in bases if isinstance(base, HandleType) or is_inherited(base)]
    if not any(isinstance(base, HandleType) for base in kept):
        kept.insert(0, Handle)
    namespace: dict[str, Any] = {
        "__module__": facts.module,
        "__qualname__": facts.qualname,
        "__doc__": _Attribute("__doc__"),
        "__dict__": _Attribute("__dict__"),
        "_handle_peer": peer,
        "_handle_number": number,
        "_handle_is_awaitable": facts.is_awaitable,
        # The other side can say what it likes.
        **{name: _Attribute(name) for name in facts.own if not name.startswith(("_handle_", "__"))},
        **{name: _special_method(name) for name in facts.specials if name in SPECIAL_METHODS},
    }
    if "__len__" in namespace:
        namespace.setdefault("__bool__", _special_method("__bool__"))
    try:
        return HandleType(facts.name, tuple(kept), namespace, real=True)
    except (TypeError, ValueError) as error:
        message = f"the class {facts.qualname!r}: {error}"
        raise MalformedError(message) from error


def new_handle(kind: HandleType, number: int, *data: Any) -> Any:
    """Return a new handle of an object.

    Args:
        kind: The class that stands in for its class.
        number: The number of the object on the other side.
        data: What it holds, if its class extends an immutable builtin type.

    Raises:
        MalformedError: The data is of another type.
    """
    base: Any = next((base for base in IMMUTABLE if issubclass(kind, base)), None)
    if base is None:
        make: Any = BaseException.__new__ if issubclass(kind, BaseException) else object.__new__
        handle = make(kind)
    elif len(data) == 1 and type(data[0]) is base:
        handle = base.__new__(kind, data[0])  # type: ignore[call-overload]
    else:
        message = f"no data for a {kind.__name__}"
        raise MalformedError(message)
    object.__setattr__(handle, "_handle_number", number)
    return handle


def number_of(peer: Peer, value: Any) -> int | None:
    """Return the number that the other side knows a handle, or the class of handles, by; None of what is none.

    Raises:
        ValueError: It is a handle of another submission.
    """
    kind = value if isinstance(value, HandleType) else class_of_handle(value)
    if kind is None:
        return None
    if kind._handle_peer is not peer:
        message = f"{kind.__name__} is of a submission that has ended"
        raise ValueError(message)
    number: int = kind._handle_number if kind is value else object.__getattribute__(value, "_handle_number")
    return number


def class_of_handle(value: Any) -> HandleType | None:
    """Return the class of a handle; None of what is none."""
    kind: Any = type(value)
    return kind if isinstance(kind, HandleType) else None


def _special_method(name: str) -> Callable[..., Any]:
    if name == "__call__":
        return _call

    def method(self: Any, *arguments: Any) -> Any:
        return type(self)._handle_peer.rules.operate_on_handle(name, self, arguments)

    method.__name__ = name
    return method


def _call(self: Any, *arguments: Any, **keywords: Any) -> Any:
    return type(self)._handle_peer.rules.call_handle(self, arguments, keywords)
