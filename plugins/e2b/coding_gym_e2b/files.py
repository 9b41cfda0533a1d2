"""Access of the gateway to the files of a session, through a program that runs in it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib.resources
import itertools
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

import msgspec

from coding_gym_e2b.failures import Code, RpcError
from coding_gym_e2b.processes import INTERPRETER
from coding_gym_e2b.upstream import SessionServer
from coding_gym_server.protocol import processes as protocol
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["SessionFiles"]

PART_BYTES = 1 << 20
"""Size of the parts in which files are read and written."""

_IMPORTED = "coding_gym_e2b.files_owner"
_LINE_BYTES = 64 << 20
_ANSWER_SECONDS = 60.0
_STOP_SECONDS = 5.0
_encoder = msgspec.json.Encoder()
_events = msgspec.json.Decoder(protocol.ProcessEvent)


class _Answer(msgspec.Struct):
    id: int
    # Decoded only if a call waits for it.
    result: msgspec.Raw = msgspec.Raw()
    code: Code | None = None
    message: str = ""
    changed: int | None = None


_T = TypeVar("_T")
_answers = msgspec.json.Decoder(_Answer)
_results = msgspec.json.Decoder(dict[str, Any])


class SessionFiles:
    """The files of a session; the program that accesses them is started when it is needed.

    Args:
        server: The server of the session.
        is_root: Whether programs of the session can be root, as the one that accesses the files then is.
    """

    def __init__(self, server: SessionServer, *, is_root: bool = False) -> None:
        self._server = server
        self._user = "root" if is_root else None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        # User and options of each watch.
        self._watches: dict[int, tuple[str, dict[str, Any]]] = {}
        self._changed: dict[int, asyncio.Event] = {}
        self._kept: dict[int, list[dict[str, Any]]] = {}
        self._writing = asyncio.Lock()
        self._stopping = asyncio.Lock()
        self._may_call = asyncio.Event()
        self._may_call.set()
        self._calls = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._reader: asyncio.Task[None] | None = None
        self._ready: asyncio.Task[None] | None = None
        self._process = ""

    async def call(self, operation: str, *, user: str = "", **arguments: Any) -> dict[str, Any]:
        """Perform an operation of ``files_agent``.

        Args:
            operation: Its name.
            user: User whose home directory relative paths begin in, and who owns new files; empty for that of the session.
            **arguments: Its arguments.

        Raises:
            RpcError: If it fails.
        """
        while not self._may_call.is_set():
            await self._may_call.wait()
        self._calls += 1
        self._is_idle.clear()
        try:
            if self._ready is None or self._reader is None or self._reader.done():
                self._ready = self._start()
            # Another call may wait for it, too.
            await asyncio.shield(self._ready)
            return await self._ask(operation, arguments, user)
        finally:
            self._calls -= 1
            if not self._calls:
                self._is_idle.set()

    async def read(self, path: str, *, user: str = "") -> AsyncIterator[bytes]:
        """Yield the content of a file, at least one part; see ``call``.

        Raises:
            RpcError: If it cannot be read.
        """
        offset = 0
        while True:
            answer = await self.call("read", user=user, path=path, offset=offset, size=PART_BYTES)
            try:
                part = base64.b64decode(_field(answer, "data", str))
            except ValueError as error:
                raise _malformed(error) from error
            if part or not offset:
                yield part
            offset += len(part)
            if not part or (len(part) < PART_BYTES and offset >= _field(answer, "size", int) > 0):
                return

    async def write(
        self, path: str, parts: AsyncIterator[bytes], metadata: dict[str, str], *, user: str = ""
    ) -> dict[str, Any]:
        """Write a file, whose missing directories are made, and return its description; see ``call``.

        Raises:
            RpcError: If it cannot be written.
        """
        offset, rest = 0, bytearray()
        async for part in parts:
            rest += part
            while len(rest) > PART_BYTES:
                await self._write_part(path, offset, bytes(rest[:PART_BYTES]), None, user)
                offset += PART_BYTES
                del rest[:PART_BYTES]
        answer = await self._write_part(path, offset, bytes(rest), metadata, user)
        return _field(answer, "file", dict)

    async def watch(self, path: str, *, recursive: bool, include_entry: bool, user: str = "") -> int:
        """Watch a directory, and return the number of the watch; see ``call``.

        Raises:
            RpcError: If it does not exist, or is not a directory.
        """
        number = next(self._numbers)
        options = {"number": number, "path": path, "recursive": recursive, "include_entry": include_entry}
        await self.call("watch", user=user, **options)
        self._watches[number] = user, options
        self._changed[number] = asyncio.Event()
        return number

    async def take_events(self, number: int) -> list[dict[str, Any]]:
        """Return the events of a watch since the last call.

        Raises:
            RpcError: If there is no such watch.
        """
        if number not in self._watches:
            raise RpcError(Code.NOT_FOUND, "watcher not found")
        self._changed[number].clear()
        events = _field(await self.call("take_events", number=number), "events", list)
        return self._kept.pop(number, []) + events

    async def wait_for_events(self, number: int, timeout: float) -> bool:
        """Wait until there may be events of a watch; return whether there may be."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changed[number].wait()
                return True
        return False

    async def unwatch(self, number: int) -> None:
        """End a watch, if it exists."""
        if self._watches.pop(number, None) is not None:
            del self._changed[number]
            self._kept.pop(number, None)
            await self.call("unwatch", number=number)

    @contextlib.asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """End the program for a block, so that the session can be copied; calls wait, and watches continue after it."""
        async with self._stopping:
            self._may_call.clear()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STOP_SECONDS):
                        await self._is_idle.wait()
                        await self._keep_events()
                await self._stop()
                yield
            finally:
                self._may_call.set()
        if self._watches:
            with contextlib.suppress(RpcError):
                await self.call("usage")

    async def process(self) -> str:
        """Return the id of the program's process, empty if it does not run."""
        if self._reader is None or self._reader.done() or self._ready is None:
            return ""
        # It may be starting.
        await asyncio.wait([self._ready], timeout=_STOP_SECONDS)
        return self._process

    def close(self) -> None:
        """Forget the program, which ends with the session."""
        if self._reader is not None:
            self._reader.cancel()

    async def _write_part(
        self, path: str, offset: int, part: bytes, metadata: dict[str, str] | None, user: str
    ) -> dict[str, Any]:
        data = base64.b64encode(part).decode()
        return await self.call("write", user=user, path=path, offset=offset, data=data, metadata=metadata)

    async def _keep_events(self) -> None:
        if self._reader is None or self._reader.done():
            return
        for number in [*self._watches]:
            with contextlib.suppress(RpcError):
                events = _field(await self._ask("take_events", {"number": number}), "events", list)
                if events and number in self._changed:
                    self._kept[number] = [*self._kept.get(number, []), *events]
                    self._changed[number].set()

    async def _stop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is None or reader.done():
            return
        with contextlib.suppress(RpcError, TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._server.request("POST", f"/processes/{self._process}/stdin?end=true")
        if not (await asyncio.wait([reader], timeout=_STOP_SECONDS))[0]:
            await self._kill()
            await asyncio.wait([reader], timeout=_STOP_SECONDS)
        reader.cancel()

    async def _kill(self) -> None:
        """Kill the program, which would keep the session from being copied."""
        body = _encoder.encode(protocol.SignalRequest(signal=signal.SIGKILL))
        with contextlib.suppress(RpcError, TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await self._server.request("POST", f"/processes/{self._process}/signal", body)

    def _start(self) -> asyncio.Task[None]:
        started: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def on_end(reader: asyncio.Task[None]) -> None:
            error = None if reader.cancelled() else reader.exception()
            if not started.done():
                failure = error if isinstance(error, RpcError) else RpcError(Code.UNAVAILABLE, "the files cannot be accessed")
                started.set_exception(failure)

        self._reader = asyncio.create_task(self._read(started))
        self._reader.add_done_callback(on_end)
        ready = asyncio.create_task(self._restart_watches(started))
        # Retrieved here as well: the calls that waited for it may have been canceled.
        ready.add_done_callback(lambda task: task.cancelled() or task.exception())
        return ready

    async def _restart_watches(self, started: asyncio.Future[str]) -> None:
        self._process = await started
        for user, options in [*self._watches.values()]:
            # The directory may have been removed.
            with contextlib.suppress(RpcError):
                await self._ask("watch", options, user)

    async def _ask(self, operation: str, arguments: dict[str, Any], user: str = "") -> dict[str, Any]:
        number = next(self._numbers)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            request = _encoder.encode({"id": number, "operation": operation, "arguments": arguments, "user": user})
            async with asyncio.timeout(_ANSWER_SECONDS):
                async with self._writing:
                    await self._server.request("POST", f"/processes/{self._process}/stdin", request + b"\n")
                return await answer
        except UnicodeEncodeError as error:
            message = f"Expected a path that UTF-8 can encode: {error}"
            raise RpcError(Code.INVALID_ARGUMENT, message) from error
        except TimeoutError as error:
            raise RpcError(Code.DEADLINE_EXCEEDED, "the sandbox did not answer in time") from error
        finally:
            del self._waiting[number]

    async def _read(self, started: asyncio.Future[str]) -> None:
        command = [INTERPRETER, "-I", "-S", "-c", _program()]
        request = protocol.ProcessRequest(command=command, keep_stdin_open=True, keep="last", user=self._user)
        rest = bytearray()
        reason = "its connection was lost"
        try:
            async with self._server.stream("POST", "/processes", _encoder.encode(request)) as response:
                async for line in response.lines(_LINE_BYTES):
                    match _events.decode(line):
                        case protocol.ProcessStarted(id=identifier):
                            if not started.done():
                                started.set_result(identifier)
                        case protocol.ProcessOutput(skipped_stdout=skipped) if skipped:
                            raise RpcError(Code.INTERNAL, "the sandbox sent more answers than were read")
                        case protocol.ProcessOutput(stdout=data):
                            rest += data
                            for part in _complete_lines(rest):
                                self._on_answer(_answers.decode(part))
                        case protocol.ProcessExited() as end:
                            reason = end.lost or f"exit code {end.exit_code}"
                            return
        except DECODING_ERRORS as error:
            self._fail_waiting("a malformed answer")
            await self._kill()
            raise _malformed(error) from error
        except RpcError as error:
            self._fail_waiting(str(error))
            if started.done():
                await self._kill()
            raise
        finally:
            self._fail_waiting(reason)

    def _fail_waiting(self, reason: str) -> None:
        message = f"the program that accesses the files of the sandbox ended: {reason}"
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(RpcError(Code.UNAVAILABLE, message))

    def _on_answer(self, answer: _Answer) -> None:
        if answer.changed is not None:
            if answer.changed in self._changed:
                self._changed[answer.changed].set()
            return
        waiting = self._waiting.get(answer.id)
        if waiting is None or waiting.done():
            return
        if not bytes(answer.result):
            waiting.set_exception(RpcError(answer.code or Code.INTERNAL, answer.message))
            return
        try:
            waiting.set_result(_results.decode(answer.result))
        except DECODING_ERRORS as error:
            waiting.set_exception(_malformed(error))


def _field(answer: dict[str, Any], name: str, kind: type[_T]) -> _T:
    value = answer.get(name)
    if not isinstance(value, kind):
        reason = f"expected {name} to be of the type {kind.__name__}"
        raise _malformed(reason)
    return value


def _malformed(reason: object) -> RpcError:
    return RpcError(Code.INTERNAL, f"the sandbox sent a malformed answer: {reason}")


def _complete_lines(rest: bytearray) -> Iterator[bytes]:
    while (end := rest.find(b"\n")) >= 0:
        yield bytes(rest[:end])
        del rest[: end + 1]
    if len(rest) > _LINE_BYTES:
        raise RpcError(Code.INTERNAL, "the sandbox sent an answer that is too long")


def _program() -> str:
    """Return the program with the module that it imports."""
    package = importlib.resources.files("coding_gym_e2b")
    names = ("coding_gym", "coding_gym_e2b", _IMPORTED)
    text = package.joinpath(f"{_IMPORTED.rpartition('.')[2]}.py").read_text(encoding="utf-8")
    program = package.joinpath("files_agent.py").read_text(encoding="utf-8")
    return f"""
import sys, types
sys.modules.update((name, types.ModuleType(name)) for name in {names!r})
exec({text!r}, sys.modules[{_IMPORTED!r}].__dict__)
exec(compile({program!r}, "files_agent", "exec"))
"""
