"""Ctrl-C at a chosen moment."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

__all__ = ["interrupted_after"]


def interrupted_after(seconds: float, call: Callable[[], object], *, again_after: float | None = None) -> bool:
    """Call something, raise KeyboardInterrupt in the main thread after a while, and say whether it came out of the call.

    Args:
        seconds: The while.
        call: What to call.
        again_after: Seconds after which the interrupt is repeated, for a finaliser may have swallowed it; None for never.
    """
    # No setitimer: pytest-timeout has the one timer that there is.
    assert threading.current_thread() is threading.main_thread()
    begun = threading.Event()
    over = threading.Event()
    pauses = [seconds] if again_after is None else [seconds, again_after]
    arguments = (begun, over, pauses, threading.main_thread().ident)
    interrupter = threading.Thread(target=_interrupt, args=arguments, daemon=True)
    interrupter.start()
    try:
        begun.set()
        call()
    except KeyboardInterrupt:
        return True
    finally:
        over.set()
        interrupter.join()
    return False


def _interrupt(begun: threading.Event, over: threading.Event, pauses: list[float], thread: int) -> None:
    begun.wait()
    time.sleep(pauses[0])
    signal.pthread_kill(thread, signal.SIGINT)
    for pause in pauses[1:]:
        if not over.wait(pause):
            signal.pthread_kill(thread, signal.SIGINT)
