from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym.sandbox.single_flight import SingleFlight


def test_concurrent_calls_share_outcome():
    once, begun, go_on = SingleFlight(), threading.Event(), threading.Event()
    about_to_ask = threading.Barrier(4)

    def fail_slowly():
        begun.set()
        go_on.wait(30)
        raise LookupError

    def ask():
        about_to_ask.wait(30)
        return once("key", lambda: "tried again")

    with ThreadPoolExecutor(4) as threads:
        first = threads.submit(once, "key", fail_slowly)
        assert begun.wait(30)
        others = [threads.submit(ask) for _ in range(3)]
        about_to_ask.wait(30)
        assert once("another key", lambda: 1) == 1
        time.sleep(0.3)
        go_on.set()
        for future in (first, *others):
            with pytest.raises(LookupError):
                future.result(30)


def test_later_calls_run_again():
    once = SingleFlight()
    with pytest.raises(ZeroDivisionError):
        once("key", lambda: 1 / 0)
    assert once("key", lambda: 2) == 2
    assert once("key", lambda: 3) == 3
