"""What the server reads from the process of a program: what it tells before it executes anything, and nothing else."""

from __future__ import annotations

import asyncio
import os
import socket
import struct

import msgspec
import pytest

from coding_gym_server.remote_objects.program_messages import (
    MAX_COMPILED_BYTES,
    CommandEnded,
    Compiled,
    NotStarted,
    RunCommand,
    RunProgram,
    Started,
)
from coding_gym_server.server.grading.compiled_programs import CompiledPrograms
from coding_gym_server.server.grading.program_delivery import NotStartedError, ProgramDelivery
from coding_gym_server.server.grading.submission_run import SubmissionRun
from coding_gym_server.workspace.file_errors import FilesError

REQUEST = RunProgram("print(1)", "", file="main.py")


def frame(message: msgspec.Struct | bytes) -> bytes:
    body = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return struct.pack("<I", len(body)) + body


def deliver(data: bytes, *, compiled: bytes | None = None) -> tuple[ProgramDelivery, bytes | None, int]:
    """Deliver a program to a process that sends data and ends.

    Returns:
        The delivery, the program as it is kept afterwards, and the number of bytes that remain unread.
    """

    async def run() -> tuple[ProgramDelivery, bytes | None, int]:
        programs = CompiledPrograms(max_bytes=64 << 20)
        if compiled is not None:
            programs.put(REQUEST.code, REQUEST.file, compiled)
        submission, theirs = open_process()
        ours = submission.connection
        with submission, theirs:
            delivery = ProgramDelivery(submission, REQUEST, programs)
            await delivery.send(1)
            sending = asyncio.create_task(asyncio.to_thread(send, theirs, data))
            # What nobody reads remains in the buffer.
            await asyncio.wait({sending}, timeout=2)
            await asyncio.sleep(0.05)
            delivery.has_started()
            delivery.close()
            unread = 0
            ours.setblocking(True)
            while received := ours.recv(1 << 20):
                unread += len(received)
            await sending
            return delivery, programs.get(REQUEST.code, REQUEST.file), unread

    return asyncio.run(run())


def open_process() -> tuple[SubmissionRun, socket.socket]:
    """Return the run of a process, and its end of the connection."""
    run = SubmissionRun.open()
    theirs = socket.socket(fileno=os.dup(run.descriptors[0]))
    run.close_descriptors()
    return run, theirs


def send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


def test_compiled_program_is_kept():
    delivery, kept, unread = deliver(frame(Started()) + frame(Compiled(b"code")))
    assert (delivery.has_started(), kept, unread) == (True, b"code", 0)


def test_largest_compiled_program_is_kept():
    _, kept, unread = deliver(frame(Started()) + frame(Compiled(bytes(MAX_COMPILED_BYTES))))
    assert (kept, unread) == (bytes(MAX_COMPILED_BYTES), 0)


@pytest.mark.parametrize(
    "forged", [frame(Compiled(bytes(MAX_COMPILED_BYTES + 100))), struct.pack("<I", 0xFFFFFFFF) + bytes(9 << 20)]
)
def test_larger_messages_are_not_read(forged):
    delivery, kept, unread = deliver(frame(Started()) + forged)
    assert (delivery.has_started(), kept, unread) == (True, None, len(forged) - 4)


def test_nothing_is_read_after_the_last_message():
    later = frame(Compiled(b"forged")) + bytes(9 << 20)
    _, kept, unread = deliver(frame(Started()) + frame(Compiled(b"code")) + later)
    assert (kept, unread) == (b"code", len(later))
    _, kept, unread = deliver(frame(Started()) + later, compiled=b"before")
    assert (kept, unread) == (b"before", len(later))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        frame(b""),
        frame(b"\xc1"),
        frame(Compiled(b"x")),
        frame(bytes(5000)),
        struct.pack("<I", 1 << 31) + bytes(99),
    ],
)
def test_program_of_which_nothing_is_told_was_not_started(data):
    delivery, kept, _ = deliver(data)
    assert kept is None
    with pytest.raises(NotStartedError, match="failed to start the program: its process ended before"):
        delivery.check_started()


def test_reason_decides_whose_fault_it_is():
    delivery, kept, unread = deliver(frame(NotStarted("No space left on device: main.py", 28)) + frame(Compiled(b"x")))
    assert (kept, unread) == (None, len(frame(Compiled(b"x"))))
    with pytest.raises(NotStartedError, match=r"program: No space left on device: main.py"):
        delivery.check_started()
    delivery, *_ = deliver(frame(NotStarted("MemoryError: ")))
    with pytest.raises(NotStartedError, match="program: MemoryError: "):
        delivery.check_started()
    delivery, *_ = deliver(frame(NotStarted("Is a directory: main.py", 21)))
    with pytest.raises(FilesError, match=r"^Is a directory: main.py$"):
        delivery.check_started()


@pytest.mark.parametrize("has_ended", [True, False])
def test_program_that_cannot_be_sent_was_not_started(has_ended):
    async def run() -> None:
        submission, theirs = open_process()
        with submission, theirs:
            if has_ended:
                theirs.close()
            request = RunProgram("#" * (4 << 20), "")
            await ProgramDelivery(submission, request, CompiledPrograms(max_bytes=1)).send(0.2)

    with pytest.raises(NotStartedError):
        asyncio.run(run())


@pytest.mark.parametrize("is_command", [True, False])
def test_only_the_process_of_a_command_tells_how_it_ended(is_command):
    async def run() -> tuple[CommandEnded | None, bool]:
        submission, theirs = open_process()
        submission.ended = asyncio.get_running_loop().create_future()
        request = RunCommand(("true",), "") if is_command else REQUEST
        with submission, theirs:
            delivery = ProgramDelivery(submission, request, CompiledPrograms(max_bytes=1))
            await delivery.send(1)
            await asyncio.to_thread(send, theirs, frame(Started()) + frame(CommandEnded(256, 5, 4, 0.5)))
            await asyncio.wait({submission.ended}, timeout=60 if is_command else 0.1)
            delivery.close()
            return delivery.command, submission.ended.done()

    command, has_ended = asyncio.run(run())
    assert (command, has_ended) == ((CommandEnded(256, 5, 4, 0.5), True) if is_command else (None, False))
