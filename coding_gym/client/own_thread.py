"""Blocking calls from asyncio, each in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

__all__ = ["call_in_own_thread"]

_T = TypeVar("_T")


async def call_in_own_thread(call: Callable[[], _T]) -> _T:
    """Call a function in a new thread and return its result. Canceling does not end the call.

    The threads of ``asyncio.to_thread`` are few, and all else in the program waits for them: calls that last as long as a
    process in a sandbox would use them up.

    Args:
        call: The function.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def resolve(settle: Callable[[], None]) -> None:
        if not future.cancelled():
            settle()

    def run() -> None:
        try:
            settle = partial(future.set_result, call())
        except BaseException as error:  # noqa: BLE001 - raised again where the call is awaited
            settle = partial(future.set_exception, error)
        # The event loop may have been closed in the meantime.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(resolve, settle)

    threading.Thread(target=run, daemon=True).start()
    return await future
