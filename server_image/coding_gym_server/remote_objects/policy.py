"""Access policy: which operations an endpoint permits on its own objects, and how it uses the peer's."""

from __future__ import annotations

import copy
import functools
import importlib
import traceback
from typing import TYPE_CHECKING, Any, Protocol

from coding_gym_server.remote_objects.exceptions import exception_state, name_of_class
from coding_gym_server.remote_objects.exchange import Failure, Streams
from coding_gym_server.remote_objects.marshalling import primitive_copy

if TYPE_CHECKING:
    import asyncio

    from coding_gym_server.remote_objects.values import Encoder, Tree

__all__ = ["AccessPolicy", "Endpoint"]


class Endpoint(Protocol):
    """An endpoint, as used by proxies and policies."""

    @property
    def rules(self) -> AccessPolicy:
        """The access policy of this side."""

    def call(self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a remote object."""

    def operate(self, name: str, target: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a special method of a remote object."""

    def get(self, target: Any, name: str) -> Any:
        """Return an attribute of a remote object."""

    def plain(self, target: Any) -> Any:
        """Return a copy of the data in a remote object."""

    def encode(self, value: Any) -> Tree:
        """Return the encoded form of a value."""

    def is_received(self, error: BaseException) -> bool:
        """Return whether the peer has raised an exception."""


class AccessPolicy:
    """Access policy of a submission: tests have full access, and the submission uses proxies as if they were objects.

    Attributes:
        peer: The endpoint that this policy applies to.
        is_open: Whether the peer may also use what it was not given: builtin types, and its own streams and functions.
    """

    peer: Endpoint
    is_open = True

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    # Operations of the peer on local objects.

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Call a local object."""
        return function(*arguments, **keywords)

    def operate(self, name: str, target: Any, arguments: list[Any]) -> Any:
        """Call a special method of a local object."""
        match name:
            case "__copy__":
                return copy.copy(target)
            case "__deepcopy__":
                return copy.deepcopy(target)
            case "__bool__":
                return bool(target)
            case "__getstate__":
                return self.plain(target)
            case "__await__":
                return self.run(target)
            case "__getitem__" if isinstance(target, type):
                # A generic class.
                return target[arguments[0]]  # type: ignore[index]
        return getattr(type(target), name)(target, *arguments)

    def get(self, target: Any, name: str) -> Any:
        """Return an attribute of a local object."""
        return getattr(target, name)

    def plain(self, target: Any) -> Any:
        """Return the data of a local exception or container."""
        return exception_state(target) if isinstance(target, BaseException) else primitive_copy(target)

    def run(self, awaitable: Any) -> Any:
        """Run an awaitable to completion, on one event loop for all of them."""
        # Imported lazily: otherwise every forked submission would copy the module's memory pages.
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(_wait(awaitable))

    def traceback(self, error: BaseException) -> list[str]:
        """Return the traceback of an exception that is sent to the peer."""
        try:
            return traceback.format_exception(error)
        except BaseException:  # noqa: BLE001 - including the submission's own classes
            return []

    def raised(self, error: BaseException) -> None:
        """Record an exception that is sent to the peer."""

    def exception_class(self, error: BaseException) -> type[BaseException] | None:
        """Return the class as whose instance an exception is sent; None if it is passed by reference."""
        return type(error) if name_of_class(type(error)) else None

    def exception_state(self, error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments and attributes of an exception that is sent to the peer."""
        return exception_state(error)

    def admit(self, value: Any) -> None:
        """Check that an object may be passed by reference.

        Raises:
            TypeError: If it may not.
        """

    def find(self, module: str, name: str) -> Any:
        """Return the object that ``name_of`` has named on the peer's side."""
        found = importlib.import_module(module)
        return functools.reduce(getattr, name.split("."), found) if name else found

    def name_of(self, value: Any) -> tuple[str, str] | None:
        """Return the module and name of an object that the peer can import; None if it is passed by reference."""
        return None

    # Local operations on proxies, and on data from the peer.

    def adapt(self, value: Any) -> Any:
        """Return the form in which a NumPy scalar or array of the peer is used."""
        return value

    def call_handle(self, handle: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a remote object, or instantiate a remote class."""
        return self.peer.call(handle, arguments, keywords)

    def look_up(self, handle: Any, name: str) -> Any:
        """Return an attribute of a remote object or class."""
        return self.peer.get(handle, name)

    def operate_on_handle(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a special method of a remote object."""
        return self.peer.operate(name, handle, arguments)

    def streams(self, encoder: Encoder) -> Streams | None:
        """Return the stream redirections of a call; None if there are none."""
        return None

    def echo(self, stdout: str, stderr: str) -> None:
        """Print the captured output of a call."""

    def note(self, error: BaseException, failure: Failure) -> None:
        """Record the origin of an exception raised by the peer."""


async def _wait(awaitable: Any) -> Any:
    return await awaitable
