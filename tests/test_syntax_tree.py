from __future__ import annotations

import ast
import gc
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import pytest

from coding_gym._syntax_tree import parse

CODE = "def f(rows):\n    return [max(map(len, column)) for column in zip(*rows)]\n" * 30


@pytest.fixture
def switching_threads() -> Iterator[None]:
    """Let threads take turns during garbage collections, which happen while trees are built."""

    def switch(*_: object) -> None:
        time.sleep(0)

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    gc.callbacks.append(switch)
    yield
    gc.callbacks.remove(switch)
    gc.set_threshold(*thresholds)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switching_threads")
def test_threads_parse_at_the_same_time() -> None:
    """At depths of the stack that differ, which is what CPython reports."""
    errors: list[Exception] = []

    def work(depth: int) -> None:
        if depth:
            work(depth - 1)
            return
        try:
            for _ in range(100):
                assert len(parse(CODE).body) == 30
        except (SystemError, AssertionError) as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(5 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_tree_is_that_of_the_code() -> None:
    assert ast.dump(parse("x = 1")) == ast.dump(ast.parse("x = 1"))


@pytest.mark.parametrize(("code", "error"), [("x = ", SyntaxError), ("\0", (SyntaxError, ValueError)), ("\ud800", ValueError)])
def test_code_that_is_not_python_is_reported(code: str, error: type[Exception] | tuple[type[Exception], ...]) -> None:
    with pytest.raises(error):
        parse(code)


def test_warnings_of_code_are_not_shown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse("'\\d' is 1")


def test_child_process_does_not_wait_for_a_thread_of_its_parent() -> None:
    is_done = threading.Event()

    def work() -> None:
        while not is_done.is_set():
            parse(CODE)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            if (child := os.fork()) == 0:
                parse(CODE)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        is_done.set()
        thread.join()
