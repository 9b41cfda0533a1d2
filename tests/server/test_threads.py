"""Work in threads ends before the task that waits for it, and before the episode whose files it accesses."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coding_gym_server.server.threads import FileLease, in_thread
from coding_gym_server.workspace.file_errors import EpisodeEndedError


class Work:
    """Work that waits until it may end."""

    def __init__(self):
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.has_ended = False

    def __call__(self):
        self.began.set()
        self.may_end.wait(60)
        self.has_ended = True
        return "result"

    async def until_begun(self):
        while not self.began.is_set():
            await asyncio.sleep(0.001)


async def turns():
    """Let other tasks do whatever they can."""
    for _ in range(100):
        await asyncio.sleep(0)


@pytest.fixture(params=["in_thread", "lease"])
def call(request):
    def run(work):
        return in_thread(work) if request.param == "in_thread" else FileLease().run(work)

    return run


def test_cancellation_waits_for_work_in_progress(call):
    async def check():
        work = Work()
        task = asyncio.create_task(call(work))
        await work.until_begun()
        for _ in range(3):
            task.cancel()
            await turns()
            assert not task.done()
        work.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.has_ended

    asyncio.run(check())


def test_errors_and_results_reach_the_task(call):
    async def check():
        work = Work()
        work.may_end.set()
        assert await call(work) == "result"
        with pytest.raises(ZeroDivisionError):
            await call(lambda: 1 / 0)

    asyncio.run(check())


def test_lease_ends_after_work_in_progress_and_drops_the_rest():
    async def check():
        lease = FileLease()
        works = [Work() for _ in range(10)]
        tasks = [asyncio.create_task(lease.run(work)) for work in works]
        await works[0].until_begun()
        await turns()
        end = asyncio.create_task(lease.end())
        await turns()
        assert not end.done()
        for work in works:
            work.may_end.set()
        await end
        begun = [work for work in works if work.began.is_set()]
        assert all(work.has_ended for work in begun)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [result == "result" for result in results] == [work.has_ended for work in works]
        assert {type(result) for result in results} == {str, EpisodeEndedError}
        with pytest.raises(EpisodeEndedError):
            await lease.run(Work())
        assert [work for work in works if work.began.is_set()] == begun

    asyncio.run(check())


def test_canceled_work_that_has_not_begun_never_begins():
    async def check():
        lease = FileLease()
        first = [Work() for _ in range(10)]
        tasks = [asyncio.create_task(lease.run(work)) for work in first]
        await first[0].until_begun()
        last = Work()
        waiting = asyncio.create_task(lease.run(last))
        await turns()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for work in first:
            work.may_end.set()
        await asyncio.gather(*tasks)
        await lease.end()
        assert not last.began.is_set()

    asyncio.run(check())
