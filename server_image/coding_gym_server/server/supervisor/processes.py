"""The processes that clients run in a session, beside its worker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.channel import close_all
from coding_gym_server.ipc.messages import FromProcess
from coding_gym_server.ipc.program_messages import pack_program
from coding_gym_server.protocol.processes import ProcessRequest
from coding_gym_server.server.supervisor.process import Process
from coding_gym_server.server.supervisor.spawner_handle import SpawnerHandle
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.workspace.layout import Layout

__all__ = ["Process", "ProcessNotFoundError", "ProcessTable", "TooManyProcessesError"]

_MAX_PROCESSES = 64
_MAX_RETAINED_BYTES = 64 << 20
"""Maximum output of finished processes that a session keeps, except for the last one."""

_TERMINAL_TYPE = "xterm-256color"


class ProcessNotFoundError(LookupError):
    """The session has no process with the given id."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"Process {identifier} not found: it belongs to another session or episode, or was forgotten")


class TooManyProcessesError(RuntimeError):
    """The session has too many running processes."""

    def __init__(self) -> None:
        super().__init__(f"The session runs {_MAX_PROCESSES} processes already; wait for one or signal it")


class ProcessTable:
    """The processes of a session, running and finished.

    Args:
        root: Channel to the session root.
        slot: Number of the session's slot.

    Attributes:
        open_terminals: Whether processes open their terminals themselves, because the session has its own user.
    """

    def __init__(self, root: AsyncChannel[FromProcess], slot: int) -> None:
        self.open_terminals = False
        self._root = root
        self._slot = slot
        self._spawner = SpawnerHandle(root, slot)
        self._processes: dict[str, Process] = {}
        self._starting = 0
        self._reason = ""

    async def start(
        self, request: ProcessRequest, layout: Layout, *, display: str | None, variables: Mapping[str, str]
    ) -> Process:
        """Start a process.

        Args:
            request: What to run.
            layout: The directories of the session.
            display: Name of the display, or None without a screen.
            variables: Environment variables of the episode.

        Raises:
            TooManyProcessesError: If the session has too many running processes.
            ForkError: If the process limit, memory or the server's file descriptors are exhausted.
            ChannelClosedError: If the root died.
            TimeoutError: If the root does not respond.
        """
        directory = layout.work if request.cwd is None else os.path.join(layout.work, request.cwd)
        environment = {**layout.program_variables(display), **variables}
        if request.terminal is not None:
            environment["TERM"] = _TERMINAL_TYPE
        if request.user is not None:
            # Its own.
            environment.pop("HOME", None)
        environment |= {"PWD": directory, **request.environment}
        self._make_room()
        process = Process(request, on_end=self._forget_old_output)
        program = pack_program(_argv(request.command), directory, request.user or "", environment)
        spawner = self._spawner
        self._starting += 1
        try:
            packet, streams = process.open_streams(opens_terminal=self.open_terminals)
            try:
                process.begin(await spawner.run(program, packet, streams, process))
            finally:
                close_all(streams)
        except ChannelClosedError:
            if not spawner.is_closed:
                process.close()
                raise
        except BaseException as error:
            process.close()
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                raise ForkError.of_connection(error) from error
            raise
        finally:
            self._starting -= 1
        if spawner.is_closed:
            # The episode has ended in the meantime, and the process with it.
            process.expect_end(self._reason)
            process.close()
        else:
            self._processes[process.id] = process
        return process

    def get(self, identifier: str) -> Process:
        """Return the process with an id.

        Raises:
            ProcessNotFoundError: If there is none.
        """
        try:
            return self._processes[identifier]
        except KeyError:
            raise ProcessNotFoundError(identifier) from None

    @property
    def running(self) -> int:
        """Number of processes that run or are being started."""
        return self._starting + sum(process.result is None for process in self._processes.values())

    def list(self) -> list[Process]:
        """Return all processes, the oldest first."""
        return [*self._processes.values()]

    def expect_end(self, reason: str, *, limit_exceeded: bool = False) -> None:
        """Expect the end of the running processes, which the root is about to kill.

        Args:
            reason: Why, for their results; the first reason counts.
            limit_exceeded: Whether it is that they exceeded a limit, and the session continues.
        """
        self._reason = reason
        for process in self._processes.values():
            process.expect_end(reason, limit_exceeded=limit_exceeded)
        # Requests that are being processed must not start another one.
        self._spawner.close()
        self._spawner = SpawnerHandle(self._root, self._slot)

    def clear(self, reason: str = "the session was closed") -> None:
        """Forget all processes; the root has killed them, or is about to.

        Args:
            reason: Why, for the results of those that run.
        """
        self.expect_end(reason)
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def _forget_old_output(self) -> None:
        """Forget the oldest finished processes while all but the last have more output than the limit."""
        finished = [process for process in self._processes.values() if process.result is not None]
        size = sum(process.output_bytes for process in finished)
        for process in finished[:-1]:
            if size <= _MAX_RETAINED_BYTES:
                return
            size -= process.output_bytes
            self._processes.pop(process.id).close()

    def _make_room(self) -> None:
        """Forget the oldest finished process if the table is full."""
        if len(self._processes) + self._starting < _MAX_PROCESSES:
            return
        for process in self._processes.values():
            if process.result is not None:
                self._processes.pop(process.id).close()
                return
        raise TooManyProcessesError


def _argv(command: str | list[str]) -> list[str]:
    if isinstance(command, str):
        return [shutil.which("bash") or "/bin/sh", "-c", command]
    return command
