"""envd's service ``process.Process``: the processes of an E2B sandbox, which are those of its session."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.resources
import shlex
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import msgspec

from coding_gym_e2b.connect_protocol import Message
from coding_gym_e2b.event_log import EventLog
from coding_gym_e2b.failures import Code, RpcError
from coding_gym_e2b.process_messages import (
    InputRequest,
    InputStreamEvent,
    Selector,
    SelectRequest,
    SignalRequest,
    StartRequest,
    UpdateRequest,
)
from coding_gym_e2b.upstream import SessionServer
from coding_gym_server.protocol import processes as protocol
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["INTERPRETER", "ProcessService"]

_LINE_BYTES = 8 << 20
_MAX_KNOWN = 1000
_KILL_SECONDS = 5.0
_KILL_PAUSE = 0.005
_ADD_USER_SECONDS = 30.0
_SHOWN_BYTES = 1000
_BECAME_USER = b"\0"
"""First byte of the stdout of a process that is run as a user, see ``accounts.py``. Clients do not get it."""

INTERPRETER = "/proc/self/exe"
"""That of the process which is to execute the program, the server's: an image need not have any."""

_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(protocol.ProcessEvent)
_completed = msgspec.json.Decoder(protocol.CompletedProcess)
_infos = msgspec.json.Decoder(list[protocol.ProcessInfo])


class _Started:
    """A process that a client has started.

    Args:
        request: What it runs.
        becomes_user: Whether it begins as root, and becomes a user.

    Attributes:
        stdout: Number of bytes of its stdout that have been sent to clients, or are not for them.
        stderr: The same of stderr.
    """

    def __init__(self, request: StartRequest, *, becomes_user: bool) -> None:
        self.request = request
        self.becomes_user = becomes_user
        self.stdout = len(_BECAME_USER) if becomes_user else 0
        self.stderr = 0


class ProcessService:
    """The processes of a sandbox.

    Args:
        server: The server of its session.
        environment: Variables of every process.
        log: Log of the sandbox.
    """

    def __init__(self, server: SessionServer, environment: Mapping[str, str], log: EventLog) -> None:
        self._server = server
        self._environment = environment
        self._log = log
        self._started: dict[str, _Started] = {}

    async def start(self, request: StartRequest, *, timeout: float | None, user: str = "") -> AsyncGenerator[Message, None]:
        """Start a process, and yield its events; it continues if nobody reads them.

        As in E2B, a process that has started is that of its user, who can signal it.

        Args:
            request: What to run.
            timeout: Seconds after which it is killed; no limit if None.
            user: User to run it as, if programs of the sandbox can be root; empty for that of the session.
        """
        command, directory = [request.process.cmd, *request.process.args], request.process.directory
        environment = {**self._environment, **request.process.envs}
        if user:
            command = [
                INTERPRETER,
                "-I",
                "-S",
                "-c",
                _program("accounts.py"),
                user,
                directory or "",
                ",".join(environment),
                *command,
            ]
            directory = "/"
        size = None if request.pty is None else request.pty.size
        asked = protocol.ProcessRequest(
            command=command,
            keep_stdin_open=request.stdin,
            cwd=directory,
            environment=environment,
            timeout_s=timeout,
            user="root" if user else None,
            terminal=None if size is None else protocol.TerminalSize(rows=size.rows, columns=size.cols),
            # A stream then continues beyond the maximum.
            keep="last",
        )
        started = _Started(request, becomes_user=bool(user))
        async for event in self._follow("POST", "/processes", _encoder.encode(asked), started, is_new=True):
            yield event

    async def add_default_user(self) -> None:
        """Make E2B's default user, whom commands run as unless a client says otherwise, and who may use ``sudo``.

        Raises:
            RpcError: If that fails.
        """
        request = protocol.ProcessRequest(
            command=[INTERPRETER, "-I", "-S", "-c", _program("default_user.py")],
            stdin=_program("sudo.py").encode(),
            timeout_s=_ADD_USER_SECONDS,
            user="root",
        )
        completed = _completed.decode(await self._server.request("POST", "/exec", _encoder.encode(request)))
        if completed.result.exit_code:
            message = f"the default user cannot be made: {completed.stderr[:_SHOWN_BYTES].decode(errors='replace')}"
            raise RpcError(Code.INTERNAL, message)

    async def connect(self, request: SelectRequest) -> AsyncGenerator[Message, None]:
        """Yield the start of a running process, and the output that has not been sent to any client yet."""
        info = await self._running(request.process)
        started = self._started[info.id]
        path = f"/processes/{info.id}?stdout={started.stdout}&stderr={started.stderr}"
        async for event in self._follow("GET", path, b"", started, is_new=False):
            yield event

    async def list_all(self, _: msgspec.Struct) -> Message:
        """Return the running processes."""
        running = [info for info in await self._list() if info.result is None and info.id in self._started]
        return {"processes": [_described(info, self._started[info.id].request) for info in running]}

    async def update(self, request: UpdateRequest) -> Message:
        """Change the size of a terminal."""
        if request.pty is not None:
            info = await self._running(request.process)
            size = protocol.TerminalSize(rows=request.pty.size.rows, columns=request.pty.size.cols)
            await self._server.request("POST", f"/processes/{info.id}/terminal", _encoder.encode(size))
        return {}

    async def send_input(self, request: InputRequest) -> Message:
        """Write to the stdin or the terminal of a process."""
        info = await self._running(request.process)
        await self._server.request("POST", f"/processes/{info.id}/stdin", request.input.data)
        return {}

    async def stream_input(self, events: AsyncIterator[InputStreamEvent]) -> Message:
        """Write what a stream brings to a process, which its first event selects."""
        selector: Selector | None = None
        async for event in events:
            if event.start is not None:
                selector = event.start.process
            if event.data is not None:
                if selector is None:
                    raise RpcError(Code.INVALID_ARGUMENT, "Expected the first message to select a process")
                await self.send_input(InputRequest(process=selector, input=event.data.input))
        return {}

    async def close_stdin(self, request: SelectRequest) -> Message:
        """Close the stdin of a process after what has been written."""
        info = await self._running(request.process)
        await self._server.request("POST", f"/processes/{info.id}/stdin?end=true")
        return {}

    async def send_signal(self, request: SignalRequest) -> Message:
        """Send a signal to a process and its group; SIGKILL also reaches its descendants, and their end is waited for."""
        info = await self._running(request.process)
        await self._signal(info.id, request.number)
        if request.number == signal.SIGKILL:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KILL_SECONDS):
                    while any(info.id == other.id and other.result is None for other in await self._list()):
                        await asyncio.sleep(_KILL_PAUSE)
        return {}

    async def stop(self, *, but: str = "", go_on: bool = False) -> None:
        """Stop all running processes, as Ctrl-Z does, or let them continue.

        Args:
            but: Id of one that is left alone.
            go_on: Whether they continue.
        """
        for info in await self._list():
            if info.result is None and info.id != but:
                # It may have ended in the meantime.
                with contextlib.suppress(RpcError):
                    await self._signal(info.id, signal.SIGCONT if go_on else signal.SIGSTOP)

    async def _signal(self, identifier: str, number: int) -> None:
        body = _encoder.encode(protocol.SignalRequest(signal=number))
        await self._server.request("POST", f"/processes/{identifier}/signal", body)

    async def _list(self) -> list[protocol.ProcessInfo]:
        return _infos.decode(await self._server.request("GET", "/processes"))

    async def _running(self, selector: Selector) -> protocol.ProcessInfo:
        for info in reversed(await self._list()):
            started = self._started.get(info.id)
            if info.result is None and started is not None:
                if selector.tag is not None and selector.tag == started.request.tag:
                    return info
                if selector.tag is None and selector.pid == info.pid:
                    return info
        wanted = f"tag {selector.tag!r}" if selector.tag is not None else f"pid {selector.pid}"
        message = f"process with {wanted} not found"
        raise RpcError(Code.NOT_FOUND, message)

    async def _follow(
        self, method: str, path: str, body: bytes, started: _Started, *, is_new: bool
    ) -> AsyncGenerator[Message, None]:
        is_terminal = started.request.pty is not None
        stdout, stderr = (0, 0) if is_new else (started.stdout, started.stderr)
        start: Message | None = None
        async with self._server.stream(method, path, body) as response:
            async for line in response.lines(_LINE_BYTES):
                try:
                    event = _events.decode(line)
                except DECODING_ERRORS as error:
                    message = f"the sandbox sent a malformed event: {error}"
                    raise RpcError(Code.INTERNAL, message) from error
                if isinstance(event, protocol.ProcessStarted):
                    await self._remember(event.id, started)
                    start = {"event": {"start": {"pid": event.pid}}}
                    if is_new:
                        process, pid = started.request.process, event.pid
                        self._log.write("process started", pid=pid, command=shlex.join([process.cmd, *process.args]))
                    if is_new and started.becomes_user:
                        # Still root: passed on before its first output, or its end.
                        continue
                elif isinstance(event, protocol.Keepalive) and start is not None:
                    continue
                if start is not None:
                    yield start
                    start = None
                match event:
                    case protocol.ProcessOutput():
                        is_first = not stdout and not event.skipped_stdout
                        stdout += event.skipped_stdout + len(event.stdout)
                        stderr += event.skipped_stderr + len(event.stderr)
                        started.stdout, started.stderr = max(started.stdout, stdout), max(started.stderr, stderr)
                        if is_first and started.becomes_user:
                            event.stdout = event.stdout.removeprefix(_BECAME_USER)
                        for data in _outputs(event, is_terminal=is_terminal):
                            yield {"event": {"data": data}}
                    case protocol.Keepalive():
                        yield {"event": {"keepalive": {}}}
                    case protocol.ProcessExited():
                        if is_new:
                            self._log.write("process ended", exit_code=event.exit_code)
                        yield {"event": {"end": _end_of(event)}}
                        return
        raise RpcError(Code.UNAVAILABLE, "the connection to the sandbox ended before the stream completed")

    async def _remember(self, identifier: str, started: _Started) -> None:
        self._started[identifier] = started
        if len(self._started) > _MAX_KNOWN:
            before = [*self._started]
            running = {info.id for info in await self._list() if info.result is None}
            for other in before:
                if other not in running and other != identifier:
                    self._started.pop(other, None)


def _program(name: str) -> str:
    """Return a program of this package that runs in a sandbox."""
    return importlib.resources.files("coding_gym_e2b").joinpath(name).read_text(encoding="utf-8")


def _outputs(event: protocol.ProcessOutput, *, is_terminal: bool) -> list[dict[str, str]]:
    outputs = {"pty" if is_terminal else "stdout": event.stdout, "stderr": event.stderr}
    return [{name: base64.b64encode(data).decode()} for name, data in outputs.items() if data]


def _end_of(event: protocol.ProcessExited) -> dict[str, Any]:
    """Return how a process ended, in the words of Go, in which envd is written."""
    if event.timed_out:
        raise RpcError(Code.DEADLINE_EXCEEDED, "the process exceeded its timeout and was killed")
    if event.lost is not None:
        message = f"the connection to the sandbox ended: {event.lost}"
        raise RpcError(Code.UNAVAILABLE, message)
    if event.signal is not None:
        name = (signal.strsignal(event.signal) or f"signal {event.signal}").lower()
        return {"exitCode": -1, "exited": False, "status": f"signal: {name}", "error": f"signal: {name}"}
    status = f"exit status {event.exit_code}"
    end = {"exitCode": event.exit_code, "exited": True, "status": status}
    return end if event.exit_code == 0 else {**end, "error": status}


def _described(info: protocol.ProcessInfo, request: StartRequest) -> dict[str, Any]:
    process = request.process
    config: dict[str, Any] = {"cmd": process.cmd, "args": process.args, "envs": process.envs}
    if process.cwd is not None:
        config["cwd"] = process.cwd
    described = {"config": config, "pid": info.pid}
    return described if request.tag is None else {**described, "tag": request.tag}
