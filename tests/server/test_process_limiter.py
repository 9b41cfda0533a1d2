from __future__ import annotations

import asyncio
import time

import pytest

from coding_gym_server.linux.procfs import tasks_below
from coding_gym_server.server import process_limiter
from coding_gym_server.server.process_limiter import ProcessLimiter


def test_count_that_waited_for_a_processor_is_repeated_soon(monkeypatch):
    counts = []

    def starved(pids):
        counts.append(pids)
        time.sleep(0.2)
        return tasks_below(pids)

    monkeypatch.setattr(process_limiter, "tasks_below", starved)
    limiter = ProcessLimiter(list, limit=100, group_count=lambda: 2)
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(limiter.run(), 3))
    # Of a processor, 1 % is spent on counting: by the time that passes, the next count would be 20 s later.
    assert len(counts) >= 2
