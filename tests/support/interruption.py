"""Keyboard interrupts (Ctrl-C) after a given delay."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

__all__ = ["interrupted_after"]


def interrupted_after(seconds: float, call: Callable[[], object], *, again_after: float | None = None) -> bool:
    """Raise KeyboardInterrupt in the main thread during a call, and return whether the call propagated it.

    Args:
        seconds: Delay of the interrupt in seconds.
        call: Function to call.
        again_after: Seconds after which to repeat the interrupt, because a finalizer may swallow it; None for never.
    """
    # Not setitimer: pytest-timeout uses the only timer of the process.
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
