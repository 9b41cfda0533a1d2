"""Ctrl-C at a chosen moment."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

__all__ = ["interrupted_after"]


def interrupted_after(seconds: float, call: Callable[[], object]) -> bool:
    """Call something, raise KeyboardInterrupt in the main thread after a while, and say whether it came out of the call."""
    # No setitimer: pytest-timeout has the one timer that there is.
    assert threading.current_thread() is threading.main_thread()
    begun = threading.Event()
    interrupter = threading.Thread(target=_interrupt, args=(begun, seconds, threading.main_thread().ident), daemon=True)
    interrupter.start()
    try:
        begun.set()
        call()
    except KeyboardInterrupt:
        return True
    finally:
        interrupter.join()
    return False


def _interrupt(begun: threading.Event, seconds: float, thread: int) -> None:
    begun.wait()
    time.sleep(seconds)
    signal.pthread_kill(thread, signal.SIGINT)
