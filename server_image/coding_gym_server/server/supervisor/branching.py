"""Snapshots of executors: a frozen copy of the worker and a copy of the files, and the way back."""

from __future__ import annotations

import asyncio
import socket

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.messages import Failed, FromProcess
from coding_gym_server.ipc.snapshot_messages import (
    AdoptCopy,
    CopyWorker,
    Freezable,
    Freeze,
    KillCopy,
    KillLive,
    NotFreezable,
    Thaw,
    WorkerCopied,
)
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.frozen_worker import FrozenWorker, SnapshotRefusedError
from coding_gym_server.server.supervisor.worker_handle import WorkerHandle
from coding_gym_server.server.supervisor.zygote_handle import ForkError

__all__ = ["freeze", "kill_live", "release", "thaw"]

_READY_SECONDS = 10.0


async def freeze(executor: Executor) -> FrozenWorker:
    """Copy the worker, which runs no cell, and the files of an executor.

    Args:
        executor: The executor, which goes on unchanged.

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
    try:
        frozen = await _copy(executor)
    except (ChannelClosedError, TimeoutError) as error:
        if executor.is_broken:
            raise
        raise SnapshotRefusedError(["the interpreter does not respond"]) from error
    try:
        if not frozen.files.are_bare:
            await asyncio.to_thread(frozen.files.save)
    except OSError as error:
        release(executor, frozen)
        raise SnapshotRefusedError([f"its files cannot be copied: {error.strerror}"]) from error
    except BaseException:
        # Canceled, since the client is gone.
        release(executor, frozen)
        raise
    return frozen


async def thaw(
    executor: Executor, frozen: FrozenWorker, *, seed: str | None, display: str | None, display_cookie: bytes
) -> None:
    """Replace the worker and the files of an executor by those of a frozen copy, which remains.

    Args:
        executor: The executor that the copy was made of.
        frozen: The copy.
        seed: Seed of the random number generators in hexadecimal; None leaves them in their state.
        display: Name of the display, None without a screen.
        display_cookie: Its X authority cookie.

    Raises:
        SnapshotRefusedError: If the copy is lost, or memory or processes are exhausted. The executor then has no worker.
        ChannelClosedError: If the root died.
        TimeoutError: If the root does not respond.
    """
    if frozen.is_lost:
        raise SnapshotRefusedError(["the snapshot is lost: its process was killed"])
    await kill_live(executor)
    try:
        executor.directory.repair()
        if not frozen.files.are_bare:
            await asyncio.to_thread(frozen.files.restore)
            executor.directory.repair()
        with WorkerHandle.open(on_finished=executor.resolve) as (worker, descriptors):
            # Registered first: the worker may be ready before the frozen copy has responded.
            ready = worker.expect_ready()
            await frozen.thaw(Thaw(seed=seed, display=display, display_cookie=display_cookie), descriptors)
            worker.pid = await _adopt(executor, ready)
    except ForkError as error:
        raise SnapshotRefusedError([str(error)]) from error
    except OSError as error:
        raise SnapshotRefusedError([f"its files cannot be restored: {error.strerror}"]) from error
    executor.adopt(worker, frozen.configuration, max_output_chars=frozen.max_output_chars)


async def kill_live(executor: Executor) -> None:
    """Kill all processes of an executor except frozen copies.

    Raises:
        ChannelClosedError: If the root died.
        TimeoutError: If the root does not respond.
    """
    executor.processes.expect_end("the session's state was replaced by that of a snapshot")
    await executor.call_root(KillLive())
    executor.processes.clear()


def release(executor: Executor, frozen: FrozenWorker) -> None:
    """End a frozen copy and delete its files, without waiting for either; harmless if they are gone."""
    executor.frozen.discard(frozen)
    frozen.close()
    executor.tell_root(KillCopy(frozen.pid))


async def _adopt(executor: Executor, ready: asyncio.Future[FromProcess]) -> int:
    """Wait until a thawed worker is ready, and let the root treat it as the worker; return its process id."""
    try:
        async with asyncio.timeout(_READY_SECONDS):
            response = await ready
    except (ChannelClosedError, TimeoutError):
        response = None
    if isinstance(response, WorkerCopied):
        adopted = await executor.call_root(AdoptCopy(response.pid, is_worker=True))
        if not isinstance(adopted, Failed):
            return response.pid
    raise SnapshotRefusedError(["the copy of the interpreter has ended"])


async def _copy(executor: Executor) -> FrozenWorker:
    response = await executor.worker.ask(Freeze())
    if isinstance(response, NotFreezable):
        raise SnapshotRefusedError(response.reasons)
    if not isinstance(response, Freezable):
        raise SnapshotRefusedError(["the interpreter does not respond as expected"])
    ours, theirs = socket.socketpair()
    frozen = FrozenWorker(
        ours,
        executor.directory.copy(),
        configuration=executor.configuration,
        max_output_chars=executor.max_output_chars,
    )
    try:
        with theirs:
            response = await executor.worker.ask(CopyWorker(), (theirs.fileno(),))
        if not isinstance(response, WorkerCopied):
            raise SnapshotRefusedError([getattr(response, "reason", "the interpreter does not respond as expected")])
        adopted = await executor.call_root(AdoptCopy(response.pid, is_worker=False))
        if isinstance(adopted, Failed):
            raise SnapshotRefusedError([adopted.reason])
    except BaseException:
        frozen.close()
        raise
    frozen.pid = response.pid
    executor.frozen.add(frozen)
    return frozen
