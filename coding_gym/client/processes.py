"""Processes of a session: commands that run beside its interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import reprlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import urlencode

import msgspec

from coding_gym._validation import check_names
from coding_gym.client.http import KEEPALIVES_LOST, HttpClient
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError
from coding_gym_server.protocol.errors import DECODING_ERRORS, reason_of
from coding_gym_server.protocol.processes import (
    EVENT_FRAMES,
    MAX_PROCESS_OUTPUT,
    Keep,
    Keepalive,
    ProcessEvent,
    ProcessExited,
    ProcessInfo,
    ProcessOutput,
    ProcessRequest,
    ProcessStarted,
    SignalRequest,
    TerminalSize,
)

__all__ = [
    "SERVER_PYTHON",
    "Command",
    "Process",
    "ProcessResult",
    "Processes",
    "RunKwargs",
    "StartKwargs",
    "Text",
    "call_in_own_thread",
    "process_request",
    "run_process",
]

Text = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""Text, its UTF-8, or a path."""

SERVER_PYTHON = ("/proc/self/exe", "-I", "-S", "-c")
"""Beginning of a command that runs a Python program with the interpreter of the process that executes it, the server's: the
image need not have any."""

Command = Text | Sequence[Text]
"""A command for the shell, which is bash if there is one; the path of a program; or a program and its arguments."""


class RunKwargs(TypedDict, total=False):
    """Options of a process.

    Attributes:
        stdin: Its standard input.
        cwd: Working directory, relative to that of the session, which is the default.
        env: Environment variables in addition to those of the session.
        timeout: Wall-clock limit in seconds, after which the process and its descendants are killed; no limit by default.
        user: Name or id of the user to run as, and perhaps that of the group behind a colon; only the session's user is
            available, unless its programs can be root (``root=True``, or another image than the default one).
        max_output_bytes: Maximum number of bytes of stdout, and of stderr, that are kept; others are discarded and counted.
        keep: Whether these are the ``first`` or the ``last`` ones. Iteration over a process continues beyond the maximum in the
            second case only.
    """

    stdin: str | bytes | bytearray | memoryview | None
    cwd: Text | None
    env: Mapping[Text, Text] | Mapping[str, Text] | None
    timeout: float | None
    user: str | None
    max_output_bytes: int
    keep: Keep


class StartKwargs(RunKwargs, total=False):
    """Options of a process that is not waited for.

    Attributes:
        keep_stdin_open: Whether ``Process.write`` will provide more input after ``stdin``.
        terminal: Size of the terminal to run it in, where stdout includes stderr; pipes by default.
    """

    keep_stdin_open: bool
    terminal: TerminalSize | None


def process_request(command: Command, options: StartKwargs) -> ProcessRequest:
    """Return a validated request.

    Args:
        command: What to run.
        options: Its options.

    Raises:
        ConfigurationError: If an argument is invalid.
    """
    check_names(options, StartKwargs.__annotations__)
    document: dict[str, Any] = {"command": _command(command)}
    for name, value in options.items():
        if value is not None:
            document |= _field(name, value)
    try:
        request = msgspec.convert(document, ProcessRequest)
        # Lone surrogates are not Unicode. Only text has them, and the input may be large.
        _encoder.encode(msgspec.structs.replace(request, stdin=b""))
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        message = f"Invalid process: {reason_of(error)}"
        raise ConfigurationError(message) from error
    return request


def _command(command: object) -> str | list[str]:
    if isinstance(command, str | bytes):
        return _text(command, "command=")
    if isinstance(command, os.PathLike):
        return [_text(command, "command=")]
    if not isinstance(command, Sequence) or isinstance(command, bytearray | memoryview):
        message = f"Expected command= to be a command for the shell, a path, or a list of arguments, got {_shown(command)}"
        raise ConfigurationError(message)
    return [_text(argument, f"command[{index}]") for index, argument in enumerate(command)]


def _field(name: str, value: object) -> dict[str, object]:
    match name:
        case "stdin":
            return {"stdin": _input(value)}
        case "cwd":
            return {"cwd": _text(value, "cwd=")}
        case "env":
            return {"environment": _variables(value)}
        case "timeout":
            return {"timeout_s": value}
    return {name: value}


def _input(value: object) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            message = f"Expected stdin= to be text that UTF-8 can encode: {error}"
            raise ConfigurationError(message) from error
    if not isinstance(value, bytes | bytearray | memoryview):
        message = f"Expected stdin= to be bytes or text, got {_shown(value)}. Pass the content of a file, not the file"
        raise ConfigurationError(message)
    return bytes(value)


def _variables(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        message = f"Expected env= to be a mapping of names to values, got {_shown(value)}"
        raise ConfigurationError(message)
    return {_text(name, "a name in env="): _text(content, f"env[{name!r}]") for name, content in value.items()}


def _text(value: object, name: str) -> str:
    """Return an argument as text.

    Args:
        value: The argument.
        name: What it is, for messages.

    Raises:
        ConfigurationError: If it is neither text, nor UTF-8, nor a path.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            message = f"Expected {name} to be UTF-8, got {reprlib.repr(text)}"
            raise ConfigurationError(message) from error
    if not isinstance(text, str):
        message = f"Expected {name} to be text, bytes or a path, got {_shown(value)}"
        raise ConfigurationError(message)
    return text


def _shown(value: object) -> str:
    return f"{type(value).__name__}: {reprlib.repr(value)}"


_T = TypeVar("_T")


async def call_in_own_thread(call: Callable[[], _T]) -> _T:
    """Call a function in a new thread and return its result. Canceling does not end the call.

    The threads of ``asyncio.to_thread`` are few, and all else in the program waits for them: calls that last as long as a
    process in a sandbox would use them up.

    Args:
        call: The function.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def resolve(settle: Callable[[], None]) -> None:
        if not future.cancelled():
            settle()

    def run() -> None:
        try:
            settle = partial(future.set_result, call())
        except BaseException as error:  # noqa: BLE001 - raised again where the call is awaited
            settle = partial(future.set_exception, error)
        # The event loop may have been closed in the meantime.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(resolve, settle)

    threading.Thread(target=run, daemon=True).start()
    return await future


_MAX_FIRST_INPUT = 1 << 20
"""Maximum number of bytes of stdin in the request that starts a process; more is sent afterwards, as it is read."""

_encoder = msgspec.json.Encoder()
_events = msgspec.msgpack.Decoder(ProcessEvent)
_infos = msgspec.json.Decoder(list[ProcessInfo])

_Message = TypeVar("_Message")


@dataclass(frozen=True)
class ProcessResult:
    """A process that has exited.

    Attributes:
        exit_code: Exit code: 126 if the program cannot be executed, 127 if it does not exist, 128 plus the number of the signal
            that ended it, 124 after a timeout.
        stdout: What it wrote to stdout, as far as it was kept; if the process was joined after some bytes, what follows them.
        stderr: The same of stderr.
        signal: Number of the signal that ended it, or None.
        timed_out: Whether it was killed because it exceeded its timeout.
        dropped_stdout: Number of bytes of stdout that were discarded.
        dropped_stderr: Number of bytes of stderr that were discarded.
        lost: Why it was killed with its session: a reset, for example, or the death of the interpreter; None for any other end.
        limit_exceeded: Whether it was lost because the processes of the session exceeded a limit; the session continues.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    signal: int | None = None
    timed_out: bool = False
    dropped_stdout: int = 0
    dropped_stderr: int = 0
    lost: str | None = None
    limit_exceeded: bool = False

    @property
    def stdout_text(self) -> str:
        """Stdout as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode(errors="replace")

    @property
    def stderr_text(self) -> str:
        """Stderr as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stderr.decode(errors="replace")


class Process:
    """A process of a session. Iterate over it for its output as it arrives, and ``wait`` for its end.

    The process does not depend on this object: after ``close``, ``Processes.join`` with its id continues from the start of its
    output, or from where this object has left off. Not thread-safe, except that ``write``, ``close_stdin``, ``signal``,
    ``kill`` and ``resize`` may be called while another thread waits.

    Args:
        http: The server.
        base: Path of the processes of the session.
        response: Stack that holds the response with the events.
        frames: The frames of the response.
        received: Number of bytes of each output that precede the response.
        max_output_bytes: Maximum number of bytes of each output to keep, the last ones.

    Attributes:
        id: Id in the session.
        pid: Process id, as processes of the sandbox see it.
        received: Number of bytes of ``stdout`` and of ``stderr`` that have been received or skipped, for ``Processes.join``.
        keeps_stdout: Whether the outcome has the stdout that iteration yields; may be set to False for much of it.
    """

    def __init__(
        self,
        http: HttpClient,
        base: str,
        response: contextlib.ExitStack,
        frames: Iterator[bytes],
        *,
        received: dict[str, int],
        max_output_bytes: int,
    ) -> None:
        self._http = http
        self._response = response
        self._frames = frames
        self.received = received
        self.keeps_stdout = True
        self._max_output_bytes = max_output_bytes
        self._output = {name: bytearray() for name in received}
        self._skipped = dict.fromkeys(received, 0)
        self._result: ProcessResult | None = None
        started = self._next_event()
        assert isinstance(started, ProcessStarted)
        self.id, self.pid = started.id, started.pid
        self._base = f"{base}/{self.id}"

    def __iter__(self) -> Iterator[ProcessOutput]:
        """Yield the output that has not been yielded yet, as it arrives.

        Raises:
            TransportError: If the connection breaks.
        """
        while self._result is None:
            event = self._next_event()
            if isinstance(event, ProcessOutput):
                self._keep("stdout", event.stdout, event.skipped_stdout)
                self._keep("stderr", event.stderr, event.skipped_stderr)
                yield event
            elif isinstance(event, ProcessExited):
                event.dropped_stdout += self._skipped["stdout"]
                event.dropped_stderr += self._skipped["stderr"]
                self._result = ProcessResult(
                    stdout=bytes(self._output["stdout"]),
                    stderr=bytes(self._output["stderr"]),
                    **msgspec.structs.asdict(event),
                )
                self._response.close()

    def wait(self) -> ProcessResult:
        """Wait for the end of the process; return its outcome with all output, iterated over or not.

        Raises:
            TransportError: If the connection breaks.
        """
        for _ in self:
            pass
        assert self._result is not None
        return self._result

    def write(self, data: bytes) -> None:
        """Write to stdin, which must have been kept open.

        Raises:
            ProtocolError: If stdin is closed.
            TransportError: If the server does not respond.
        """
        self._post("stdin", data)

    def close_stdin(self) -> None:
        """End stdin; in a terminal, send the end-of-input character.

        Raises:
            TransportError: If the server does not respond.
        """
        self._post("stdin?end=true", b"")

    def signal(self, number: int) -> None:
        """Send a signal to the process group; no effect after the exit.

        Raises:
            TransportError: If the server does not respond.
        """
        self._post("signal", _encoder.encode(SignalRequest(signal=number)))

    def kill(self) -> None:
        """Kill the process and its descendants, daemons included.

        Raises:
            TransportError: If the server does not respond.
        """
        self.signal(signal.SIGKILL)

    def abandon(self) -> None:
        """Kill the process, if the server responds, and close the stream. Raises nothing."""
        with contextlib.suppress(TransportError, ProtocolError):
            self.kill()
        self.close()

    def resize(self, *, rows: int, columns: int) -> None:
        """Change the size of the terminal.

        Raises:
            ProtocolError: If the process has no terminal.
            TransportError: If the server does not respond.
        """
        self._post("terminal", _encoder.encode(TerminalSize(rows=rows, columns=columns)))

    def close(self) -> None:
        """Leave the process, which keeps running. Idempotent."""
        self._response.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _keep(self, name: str, data: bytes, skipped: int) -> None:
        """Keep the last bytes of an output."""
        output = self._output[name]
        if name == "stderr" or self.keeps_stdout:
            output += data
        excess = max(len(output) - self._max_output_bytes, 0)
        del output[:excess]
        self._skipped[name] += skipped + excess
        self.received[name] += skipped + len(data)

    def _post(self, path: str, body: bytes) -> None:
        with self._http.request("POST", f"{self._base}/{path}", body=body) as response:
            response.read()

    def _next_event(self) -> ProcessEvent:
        while True:
            frame = next(self._frames, b"")
            if not frame:
                self._response.close()
                message = "The server ended the connection before the process: join it by its id, unless the sandbox has ended"
                raise TransportError(message)
            event: ProcessEvent = _decode(_events, frame)
            if not isinstance(event, Keepalive):
                return event


class Processes:
    """The processes of a session.

    All methods raise ``TransportError`` if the server does not respond, and ``ProtocolError`` if it refuses.

    Args:
        http: The server.
        base: Path of the session.
    """

    def __init__(self, http: HttpClient, base: str) -> None:
        self._http = http
        self._base = f"{base}/processes"

    def run(self, command: Command, **options: Unpack[RunKwargs]) -> ProcessResult:
        """Run a process to its end.

        Args:
            command: A program and its arguments, or a command for the shell, which is bash if there is one.
            options: The fields of ``RunKwargs``.

        Raises:
            ConfigurationError: If an argument is invalid.
        """
        process = self.start(command, **options)
        try:
            return process.wait()
        except BaseException:
            # Interrupted: nothing could join it.
            process.abandon()
            raise
        finally:
            process.close()

    def start(self, command: Command, **options: Unpack[StartKwargs]) -> Process:
        """Start a process.

        Args:
            command: A program and its arguments, or a command for the shell, which is bash if there is one.
            options: The fields of ``StartKwargs``.

        Raises:
            ConfigurationError: If an argument is invalid.
        """
        request = process_request(command, options)
        limit = request.max_output_bytes
        if len(request.stdin) <= _MAX_FIRST_INPUT:
            return self._process("POST", self._base, _encoder.encode(request), max_output_bytes=limit)
        stdin, keep_open = request.stdin, request.keep_stdin_open
        request.stdin, request.keep_stdin_open = b"", True
        process = self._process("POST", self._base, _encoder.encode(request), max_output_bytes=limit)
        try:
            # The server reads the output in the meantime. A process need not read its input.
            with contextlib.suppress(ProtocolError):
                for start in range(0, len(stdin), _MAX_FIRST_INPUT):
                    process.write(stdin[start : start + _MAX_FIRST_INPUT])
                if not keep_open:
                    process.close_stdin()
        except BaseException:
            process.abandon()
            raise
        return process

    def join(self, identifier: str, *, stdout: int = 0, stderr: int = 0) -> Process:
        """Return a process by its id, with its output from the start or after what has been received already.

        Args:
            identifier: The id.
            stdout: Number of bytes of stdout to leave out: ``join(process.id, **process.received)``.
            stderr: Number of bytes of stderr to leave out.

        Raises:
            ConfigurationError: If a number is negative.
        """
        offsets = urlencode({"stdout": stdout, "stderr": stderr})
        path = f"{self._base}/{identifier}?{offsets}"
        return self._process("GET", path, None, max_output_bytes=MAX_PROCESS_OUTPUT, stdout=stdout, stderr=stderr)

    def list(self) -> list[ProcessInfo]:
        """Return the processes of the episode that run, and the last ones that have exited, the oldest first."""
        with self._http.request("GET", self._base) as response:
            infos: list[ProcessInfo] = _decode(_infos, response.read())
            return infos

    def _process(
        self, method: str, path: str, body: bytes | None, *, max_output_bytes: int, stdout: int = 0, stderr: int = 0
    ) -> Process:
        stack = contextlib.ExitStack()
        try:
            response = stack.enter_context(
                self._http.request(method, path, body=body, accept=EVENT_FRAMES, timeout=KEEPALIVES_LOST)
            )
            return Process(
                self._http,
                self._base,
                stack,
                self._http.frames(response),
                received={"stdout": stdout, "stderr": stderr},
                max_output_bytes=max_output_bytes,
            )
        except BaseException:
            stack.close()
            raise


def _decode(decoder: msgspec.json.Decoder[_Message] | msgspec.msgpack.Decoder[_Message], data: bytes) -> _Message:
    try:
        return decoder.decode(data)
    except DECODING_ERRORS as error:
        message = f"The server sent a malformed message: {error}"
        raise ProtocolError(message) from error


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
