"""State of Python's modules that a process has inherited from its zygote, and that is to be its own."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

__all__ = ["renew_inherited_state"]

_KEY_BYTES = 32


def renew_inherited_state() -> None:
    """Renew what all processes that are forked from a zygote would share, beyond what Python's hooks renew."""
    # CPython 3.11 keeps the thread ID from before the fork: matplotlib would not recognize this as the main thread.
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    modules: dict[str, Any] = sys.modules
    if (process := modules.get("multiprocessing.process")) is not None:
        # The secret by which the processes of a program recognize each other. Who has it can make them run anything.
        process.current_process().authkey = os.urandom(_KEY_BYTES)
    if (numpy_random := modules.get("numpy.random")) is not None:
        # Faster than gathering more entropy, which takes a millisecond.
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))
