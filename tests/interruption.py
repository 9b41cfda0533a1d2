"""Ctrl-C at a chosen moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

__all__ = ["interrupted_after"]


def interrupted_after(seconds: float, call: Callable[[], object]) -> bool:
    """Call something, raise KeyboardInterrupt in the main thread after a while, and say whether it came out of the call."""
    # No setitimer: pytest-timeout has the one timer that there is.
    assert threading.current_thread() is threading.main_thread()
    timer = threading.Timer(seconds, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
    timer.daemon = True
    inside = False
    try:
        timer.start()
        inside = True
        call()
    except KeyboardInterrupt:
        return inside
    finally:
        timer.join()
    return False
