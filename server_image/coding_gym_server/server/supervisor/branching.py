"""Snapshots of executors: a frozen copy of the worker and a copy of the files, and the way back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.messages import Failed, Finished, FromProcess, Kill
from coding_gym_server.ipc.snapshot_messages import (
    AdoptCopy,
    CheckAlone,
    CopyAdopted,
    Freezable,
    Freeze,
    KillCopy,
    NotFreezable,
    Resume,
    SealSlot,
    WorkerCopied,
)
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker, SnapshotRefusedError
from coding_gym_server.server.supervisor.process_tree import ProcessTree
from coding_gym_server.server.supervisor.worker_handle import WorkerHandle
from coding_gym_server.server.supervisor.zygote_handle import ForkError

__all__ = ["freeze", "kill_live", "release", "thaw", "thaw_fork"]

_READY_SECONDS = 10.0


async def freeze(executor: Executor) -> FrozenWorker:
    """Copy the files of an executor, and let its worker, which runs no cell, be copied before it continues.

    Args:
        executor: The executor.

    Raises:
        SnapshotRefusedError: If a copy would not be faithful, or cannot be made.
        ChannelClosedError: If the root died.
    """
    if executor.is_running:
        raise SnapshotRefusedError(["a program of an earlier step is still running"])
    if running := executor.processes.running:
        raise SnapshotRefusedError([f"{running} processes run beside the interpreter"])
    if not executor.is_alive:
        raise SnapshotRefusedError(["the interpreter has ended, and the next step starts a new one"])
    await executor.pending_snapshot.leave()
    await executor.tree.settle()
    try:
        await _check(executor)
    except (ChannelClosedError, TimeoutError) as error:
        if executor.is_broken:
            raise
        raise SnapshotRefusedError(["the interpreter does not respond"]) from error
    frozen = FrozenWorker(
        executor.directory.copy(), configuration=executor.configuration, max_output_chars=executor.max_output_chars
    )
    executor.pending_snapshot.hold(frozen, executor.worker)
    executor.tree.frozen.add(frozen)
    try:
        if not frozen.files.are_bare:
            await executor.lease.run(frozen.files.save)
    except OSError as error:
        release(executor, frozen)
        raise SnapshotRefusedError([f"its files cannot be copied: {error.strerror}"]) from error
    except BaseException:
        # Canceled, since the client is gone.
        release(executor, frozen)
        raise
    return frozen


async def thaw(executor: Executor, frozen: FrozenWorker, settings: Resume, *, keep: bool) -> None:
    """Replace the worker and the files of an executor by those of a frozen copy.

    Args:
        executor: The executor that the copy was made of.
        frozen: The copy.
        settings: What differs from the copied worker.
        keep: Whether the copy can be restored again.

    Raises:
        SnapshotRefusedError: If the copy is lost, or memory or processes are exhausted. The executor then has no worker.
        ChannelClosedError: If the root died.
        TimeoutError: If the root does not respond.
    """
    frozen.check()
    # Fork while the processes are killed and the files replaced, except if the session's own worker is yet to become the copy.
    forking = asyncio.ensure_future(_take_worker(frozen, keep=keep)) if frozen.own_pid else None
    try:
        await kill_live(executor)
        with _restoring_files():
            executor.directory.repair()
            if not frozen.files.are_bare:
                await executor.lease.run(frozen.files.restore)
                executor.directory.repair()
    except BaseException:
        if forking is not None:
            forking.add_done_callback(_close_worker)
        raise
    await _resume(executor, frozen, await _forked(forking, frozen, keep=keep), settings, keep=keep)


async def _forked(forking: asyncio.Future[WorkerHandle] | None, frozen: FrozenWorker, *, keep: bool) -> WorkerHandle:
    """Return the worker that is being forked; another one if the processes that were killed had left no room for it."""
    if forking is not None:
        with contextlib.suppress(SnapshotRefusedError):
            return await forking
    return await _take_worker(frozen, keep=keep)


async def thaw_fork(
    executor: Executor,
    frozen: FrozenWorker,
    namespaces: tuple[int, ...],
    settings: Resume,
    *,
    keep: bool,
) -> None:
    """Give an executor with a new slot a worker and files like those of a frozen copy.

    Args:
        executor: The executor from ``ForkSlotFactory.open``.
        frozen: The copy.
        namespaces: Namespaces of the slot.
        settings: What differs from the copied worker.
        keep: Whether the copy can be restored again.

    Raises:
        SnapshotRefusedError: If the copy is lost, or memory or processes are exhausted. The executor then has no worker.
        ChannelClosedError: If the root died.
        TimeoutError: If the root does not respond.
    """
    frozen.check()
    if frozen.files.exist:
        with _restoring_files():
            await executor.lease.run(frozen.files.restore, executor.directory.part)
            executor.directory.repair()
    await _resume(executor, frozen, await _take_worker(frozen, keep=keep), settings, namespaces, keep=keep)


async def kill_live(executor: Executor) -> None:
    """End all work of an executor: in threads, and all processes except frozen ones, of which its worker may be one.

    Raises:
        ChannelClosedError: If the root died.
        TimeoutError: If the root does not respond.
    """
    await executor.pending_snapshot.stay()
    executor.abandon("the session's state was replaced by that of a snapshot")
    await executor.call_root(Kill(executor.slot))
    executor.processes.clear()
    await executor.end_file_work()


def release(executor: Executor, frozen: FrozenWorker) -> None:
    """End a frozen worker and delete its files, without waiting for either; harmless if they are gone."""
    tree = executor.tree
    tree.frozen.discard(frozen)
    frozen.lose("it was released")
    if frozen.preparation is None or frozen.preparation.done():
        _end(tree, frozen)
        return

    def end(preparation: asyncio.Task[None]) -> None:
        tree.ending.discard(preparation)
        _end(tree, frozen)

    # To the root, a spare that it has not adopted yet would be a background process.
    tree.ending.add(frozen.preparation)
    frozen.preparation.add_done_callback(end)


def _end(tree: ProcessTree, frozen: FrozenWorker) -> None:
    frozen.close()
    for process in (frozen, frozen.spare):
        if process is not None and process.own_pid:
            tree.tell_root(KillCopy(process.own_pid))


@contextlib.contextmanager
def _restoring_files() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SnapshotRefusedError([f"its files cannot be restored: {error.strerror}"]) from error


async def _resume(
    executor: Executor,
    frozen: FrozenWorker,
    worker: WorkerHandle,
    settings: Resume,
    namespaces: tuple[int, ...] = (),
    *,
    keep: bool,
) -> None:
    """Let a worker that was forked from a frozen copy be that of an executor."""
    try:
        worker.on_finished = executor.resolve
        worker.own_pid = await _call(executor, AdoptCopy(*worker.origin, is_worker=True, slot=executor.slot))
        await _wait_until(worker.resume(settings, namespaces))
        if namespaces:
            worker.own_pid = await _call(executor, SealSlot(executor.slot))
        worker.pid = executor.tree.pid_outside(worker.own_pid)
    except BaseException:
        worker.close()
        raise
    executor.adopt(worker, frozen.configuration, max_output_chars=frozen.max_output_chars)
    if keep:
        frozen.count_restore(functools.partial(_prepare, executor, frozen))


async def _take_worker(frozen: FrozenWorker, *, keep: bool) -> WorkerHandle:
    """Return a worker that continues from a frozen copy: a spare, one that is forked now, or the copy if it is not kept."""
    try:
        return frozen.take_spare() or await _fork(frozen, keep=keep)
    except ForkError as error:
        raise SnapshotRefusedError([str(error)]) from error


def _close_worker(forking: asyncio.Future[WorkerHandle]) -> None:
    if not forking.cancelled() and forking.exception() is None:
        forking.result().close()


async def _fork(frozen: FrozenWorker, *, keep: bool = True) -> WorkerHandle:
    with WorkerHandle.open(on_finished=_ignore) as (worker, descriptors):
        original = frozen.own_pid
        pid = await frozen.thaw(descriptors, keep=keep)
        # One that is not kept becomes the worker itself.
        worker.origin = (pid if keep else 0, original)
    return worker


async def _prepare(executor: Executor, frozen: FrozenWorker) -> None:
    """Fork a worker from a frozen copy in advance."""
    try:
        worker = await _fork(frozen)
    except (ForkError, SnapshotRefusedError):
        # The next restore reports it.
        return
    try:
        # Regardless of what happens to the slot.
        worker.own_pid = await _call(executor, AdoptCopy(*worker.origin, is_worker=False))
        worker.origin = (0, worker.own_pid)
    except BaseException as error:
        worker.close()
        if not isinstance(error, SnapshotRefusedError | ChannelClosedError | TimeoutError):
            raise
        return
    frozen.spare = worker


def _ignore(_: Finished | None) -> None:
    """Ignore a message of a worker that was sent no request."""


async def _wait_until(ready: asyncio.Future[FromProcess]) -> None:
    """Wait until a thawed worker is ready."""
    response = None
    with contextlib.suppress(ChannelClosedError, TimeoutError):
        async with asyncio.timeout(_READY_SECONDS):
            response = await ready
    if not isinstance(response, WorkerCopied):
        raise SnapshotRefusedError([getattr(response, "reason", "the copy of the interpreter has ended")])


async def _call(executor: Executor, request: AdoptCopy | SealSlot) -> int:
    """Send a request to the root; return the process id in its response."""
    response = await executor.call_root(request)
    if isinstance(response, Failed):
        raise SnapshotRefusedError([response.reason])
    assert isinstance(response, CopyAdopted)
    return response.pid


async def _check(executor: Executor) -> None:
    """Raise if a copy of the worker would not be faithful."""
    alone, response = await asyncio.gather(executor.call_root(CheckAlone(executor.slot)), executor.worker.ask(Freeze()))
    reasons = [alone.reason] if isinstance(alone, Failed) else []
    if isinstance(response, NotFreezable):
        reasons += response.reasons
    elif not isinstance(response, Freezable):
        reasons.append("the interpreter does not respond as expected")
    if reasons:
        raise SnapshotRefusedError(reasons)
