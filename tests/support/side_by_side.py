"""Checks that wait, several at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["check_side_by_side"]


def check_side_by_side(check: Callable[[Any], object], cases: Iterable[Any], *, at_once: int = 4) -> None:
    """Call ``check`` with each case, several at once in threads, and raise all failures, with their cases."""
    with ThreadPoolExecutor(at_once) as threads:
        calls = [(case, threads.submit(check, case)) for case in cases]
    failures = [failure for case, call in calls if (failure := _failure_of(case, call)) is not None]
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {len(calls)} cases failed", failures)


def _failure_of(case: Any, call: Future[object]) -> BaseException | None:
    failure = call.exception()
    if failure is not None:
        failure.add_note(f"Case: {case!r}")
    return failure
