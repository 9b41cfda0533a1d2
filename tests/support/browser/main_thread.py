"""Processor time that a page's main thread spends without a break."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# https://chromedevtools.github.io/devtools-protocol/tot/Tracing/
_TASKS = "disabled-by-default-devtools.timeline"


@dataclass
class MainThread:
    """Load of the main threads of a browser's pages.

    Attributes:
        longest_task: Processor time of the longest task, in seconds. Time in which other processes used the processor does
            not count, so that a limit holds on a busy machine, too.
    """

    longest_task: float = 0.0


@contextlib.contextmanager
def recorded(browser: Any) -> Iterator[MainThread]:
    """Yield the load of the main threads, which is known when the block has ended.

    Args:
        browser: Playwright's browser. One recording at a time is possible.
    """
    measured = MainThread()
    browser.start_tracing(categories=[_TASKS])
    try:
        yield measured
    finally:
        events = json.loads(browser.stop_tracing())["traceEvents"]
    threads = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        event["tdur"] / 1e6
        for event in events
        if event["name"] == "RunTask" and (event["pid"], event["tid"]) in threads and "tdur" in event
    ]
    assert tasks, "The trace of Chromium has no tasks of a main thread with their processor time."
    measured.longest_task = max(tasks)
