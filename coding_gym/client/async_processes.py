"""Processes for asyncio."""

from __future__ import annotations

import asyncio
import threading
from typing import Unpack

from coding_gym.client.own_thread import call_in_own_thread
from coding_gym.client.process_request import Command, RunKwargs
from coding_gym.client.processes import Process, Processes, ProcessResult

__all__ = ["run_process"]


async def run_process(processes: Processes, command: Command, **options: Unpack[RunKwargs]) -> ProcessResult:
    """Run a process to its end, as ``Processes.run`` does. Canceling the call kills the process.

    Args:
        processes: Processes of the session.
        command: A program and its arguments, or a command for the shell.
        options: The fields of ``RunKwargs``.
    """
    started = asyncio.ensure_future(call_in_own_thread(lambda: processes.start(command, **options)))
    try:
        process = await asyncio.shield(started)
        return await call_in_own_thread(process.wait)
    except asyncio.CancelledError:
        started.add_done_callback(_abandon)
        raise


def _abandon(started: asyncio.Future[Process]) -> None:
    """Kill a process whose start was canceled, without blocking the event loop."""
    if not started.cancelled() and started.exception() is None:
        threading.Thread(target=started.result().abandon, daemon=True).start()
