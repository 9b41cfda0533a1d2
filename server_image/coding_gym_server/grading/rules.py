"""What one side lets the other side do with its objects, and what it does itself with the other side's."""

from __future__ import annotations

import copy
import functools
import importlib
import traceback
from typing import TYPE_CHECKING, Any

from coding_gym_server.grading.exchange import Failure, Streams
from coding_gym_server.grading.handles import HandleType

if TYPE_CHECKING:
    import asyncio

    from coding_gym_server.grading.peer import Peer
    from coding_gym_server.grading.values import Encoder

__all__ = ["OpenRules"]


class OpenRules:
    """The rules of a submission: the tests may do everything, and its own code uses handles as if they were objects.

    Attributes:
        peer: The side whose rules these are.
        is_open: Whether the other side may also use what it was not given: builtin types, and streams and functions of its own.
    """

    peer: Peer
    is_open = True

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    # What the other side does with objects of this side.

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Call one."""
        return function(*arguments, **keywords)

    def operate(self, name: str, target: Any, arguments: list[Any]) -> Any:
        """Call a special method of one."""
        if name == "__copy__":
            return copy.copy(target)
        if name == "__deepcopy__":
            return copy.deepcopy(target)
        if name == "__bool__":
            return bool(target)
        if name == "__getitem__" and isinstance(target, type):
            # A generic class.
            return target[arguments[0]]  # type: ignore[index]
        return getattr(type(target), name)(target, *arguments)

    def get(self, target: Any, name: str) -> Any:
        """Return an attribute of one."""
        return getattr(target, name)

    def set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute of one."""
        setattr(target, name, value)

    def delete(self, target: Any, name: str) -> None:
        """Delete an attribute of one."""
        delattr(target, name)

    def run(self, awaitable: Any) -> Any:
        """Run an awaitable to its end, on one event loop for all of them."""
        # Not before it is needed: every submission would copy what it brings.
        import asyncio

        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop.run_until_complete(_wait(awaitable))

    def traceback(self, error: BaseException) -> list[str]:
        """Return the traceback of an exception that goes to the other side."""
        try:
            return traceback.format_exception(error)
        except BaseException:  # noqa: BLE001 - of a submission's own classes, too
            return []

    def find(self, module: str, name: str) -> Any:
        """Return what ``name_of`` has named on the other side."""
        found = importlib.import_module(module)
        return functools.reduce(getattr, name.split("."), found) if name else found

    def name_of(self, value: Any) -> tuple[str, str] | None:
        """Return the module and the name of an object that the other side has, too; None if it is kept here."""
        return None

    # What this side does with handles.

    def make(self, kind: HandleType, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Make an object of a class."""
        return self.peer.call(kind, arguments, keywords)

    def call_handle(self, handle: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call an object that is no class."""
        return self.peer.call(handle, arguments, keywords)

    def look_up(self, handle: Any, name: str) -> Any:
        """Return an attribute of an object or of a class."""
        return self.peer.get(handle, name)

    def operate_on_handle(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a special method of an object."""
        return self.peer.operate(name, handle, arguments)

    def streams(self, encoder: Encoder) -> Streams | None:
        """Return what a call is to print to and read from."""
        return None

    def echo(self, stdout: str, stderr: str) -> None:
        """Print what a call has printed."""

    def note(self, error: BaseException, failure: Failure) -> None:
        """Keep where an exception of the other side came from."""


async def _wait(awaitable: Any) -> Any:
    return await awaitable
