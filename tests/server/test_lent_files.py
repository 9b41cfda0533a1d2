"""Files that a process of a session opens, which programs of the session may replace."""

from __future__ import annotations

import contextlib
import os
import socket
import threading

import msgspec
import pytest

from coding_gym_server.ipc.channel import HEADER
from coding_gym_server.workspace import lent_files
from coding_gym_server.workspace.file_errors import FilesError, NotFoundError, StorageError
from coding_gym_server.workspace.file_messages import Done, Entries, Opened, Refused
from coding_gym_server.workspace.lent_files import LentWorkspace


def framed(message):
    body = msgspec.msgpack.encode(message)
    return HEADER.pack(len(body)) + body


@contextlib.contextmanager
def answering(data, *descriptors):
    """A workspace whose process answers any request with some bytes, and then waits for the end."""
    ours, theirs = socket.socketpair()

    def answer():
        with theirs, contextlib.suppress(OSError):
            theirs.recv(1 << 16)
            if data is None:
                return
            if descriptors:
                socket.send_fds(theirs, [data], descriptors)
            else:
                theirs.sendall(data)
            theirs.recv(1 << 16)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with contextlib.closing(LentWorkspace(ours)) as workspace:
            yield workspace
    finally:
        thread.join()


@pytest.fixture
def descriptors(tmp_path):
    """Descriptors of a pipe and a directory, which the server must refuse, and of a file, which it accepts."""
    (tmp_path / "file").write_text("content")
    read, write = os.pipe()
    opened = {"pipe": read, "directory": os.open(tmp_path, os.O_RDONLY), "file": os.open(tmp_path / "file", os.O_RDONLY)}
    yield opened
    for descriptor in (write, *opened.values()):
        os.close(descriptor)


def count():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    "data",
    [
        *(None, b"x" * 100, HEADER.pack(0xFFFFFFFF), HEADER.pack(4) + b"\xff" * 4, framed(Done()), framed(Entries([]))),
        *(framed(Opened()), HEADER.pack(3) + b"abc"),
    ],
)
def test_malformed_answers_are_failures(data):
    before = count()
    with answering(data) as workspace, pytest.raises(StorageError, match="has failed: name"):
        workspace.open("name")
    assert count() == before


@pytest.mark.parametrize("name", ["pipe", "directory"])
def test_nothing_but_files_is_used(descriptors, name):
    before = count()
    for call in (lambda workspace: workspace.open("name"), lambda workspace: workspace.upload("name")):
        with answering(framed(Opened()), descriptors[name]) as workspace, pytest.raises(FilesError):
            call(workspace)
    assert count() == before


def test_further_descriptors_are_closed(descriptors):
    before = count()
    for message in (Opened(), Done(), Refused("no")):
        with answering(framed(message), *descriptors.values(), descriptors["file"]) as workspace, pytest.raises(FilesError):
            workspace.open("name")
    assert count() == before


def test_file_is_returned(descriptors):
    with answering(framed(Opened()), descriptors["file"]) as workspace, open(workspace.open("name")) as file:
        assert file.read() == "content"


def test_file_that_is_not_writable_is_refused(descriptors):
    answer = framed(Opened(is_new=True))
    with answering(answer, descriptors["file"]) as workspace, contextlib.closing(workspace.upload("name")) as upload:
        assert upload.is_new
        with pytest.raises(FilesError, match="name"):
            upload.write(b"x")


def test_refusals_are_errors():
    for refusal, error in (
        (Refused("reason"), FilesError),
        (Refused("reason", is_storage=True), StorageError),
        (Refused("reason", is_missing=True), NotFoundError),
    ):
        with (
            answering(framed(refusal)) as workspace,
            pytest.raises(error, match="Not found: name" if refusal.is_missing else "reason"),
        ):
            workspace.remove("name")


def test_answer_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(lent_files, "_TIMEOUT_SECONDS", 0.1)
    with answering(b"") as workspace, pytest.raises(StorageError):
        workspace.list("name")
