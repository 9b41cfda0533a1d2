from __future__ import annotations

import logging
import os
import socket
import threading

import pytest

from coding_gym.telemetry import Identity
from coding_gym_server.protocol import Pixels
from coding_gym_studio.watching import publisher as publisher_module
from coding_gym_studio.watching.client import TrainerEnded
from coding_gym_studio.watching.directory import prepare_directory
from coding_gym_studio.watching.messages import Changes, ChangesRequest, Hello, receive, send
from coding_gym_studio.watching.publisher import Publisher
from coding_gym_studio.watching.table import SessionTable
from tests.support.timing import eventually, promptly

IDENTITY = Identity("CodingEnv-v0", "python", (4, 2), None, None)
EMPTY = {"stdout": "", "stderr": "", "exit_code": 0}


@pytest.fixture
def table():
    return SessionTable()


@pytest.fixture
def publisher(runtime_directory, table):
    publisher = Publisher(table, name="ppo", root=7)
    publisher.start()
    yield publisher
    publisher.close()


@pytest.fixture
def connection(publisher, connect):
    return connect(publisher.path)


def test_hello_says_what_the_process_is(connection, publisher):
    hello = connection.hello
    assert (hello.name, hello.pid, hello.root) == ("ppo", os.getpid(), 7)
    # The clock of files is a little late.
    assert hello.started <= publisher.path.stat().st_mtime + 1


def test_changes_history_and_screen(connection, table):
    session = table.opened(IDENTITY)
    session.begun("task", None)
    session.running("print('é')")
    tests = {"graded": True, "tests_passed": 1, "tests_total": 2}
    session.stepped(
        ({"stdout": "é\n", "stderr": "", "exit_code": 0}, 0.5, True, False, {"outcome": "ok", **tests}), Pixels(4, 2, b"zstd")
    )
    (row,) = connection.changes().sessions
    assert (row.action, row.outcome, row.reward, row.tests, row.label) == ("print('é')", "ok", 0.5, (1, 2), "task")
    assert connection.changes().sessions == []
    (step,) = connection.history(row.id)
    assert (step.stdout, step.number, step.episode) == ("é\n", 1, 1)
    screen = connection.screen(row.id)
    assert (screen.width, screen.height, screen.rgb) == (4, 2, b"zstd")


def test_unknown_sessions_have_nothing(connection):
    assert connection.history(99) == []
    assert connection.screen(99).rgb is None


def test_readers_have_their_own_changes(publisher, table, connect):
    one, other = connect(publisher.path), connect(publisher.path)
    table.opened(IDENTITY)
    assert len(one.changes().sessions) == len(other.changes().sessions) == 1


def test_the_last_changes_arrive_at_the_end(publisher, connection, table):
    session = table.opened(IDENTITY)
    connection.changes()
    session.running("the last action")
    path = publisher.path
    publisher.close()
    with pytest.raises(TrainerEnded) as caught:
        connection.changes()
    assert isinstance(caught.value.last, Changes)
    assert [row.action for row in caught.value.last.sessions] == ["the last action"]
    assert not path.exists()


def test_a_reader_that_takes_no_data_is_disconnected(publisher, table, monkeypatch, connect):
    sessions = [table.opened(IDENTITY) for _ in range(2000)]
    for session in sessions:
        session.running("x" * 400)
    monkeypatch.setattr(publisher_module, "_SEND_SECONDS", 60)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(os.fspath(publisher.path))
        send(slow, ChangesRequest())
        with promptly():
            # The sessions never wait for readers.
            for session in sessions:
                session.stepped((EMPTY, 0.0, False, False, {"outcome": "ok"}), None)
    monkeypatch.setattr(publisher_module, "_SEND_SECONDS", 0.3)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.connect(os.fspath(publisher.path))

        def ask():
            while True:
                send(slow, ChangesRequest())
                for session in sessions:
                    session.running("x" * 400)

        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            ask()
    assert eventually(lambda: not publisher._readers)
    # Others are served meanwhile and afterwards.
    connection = connect(publisher.path)
    assert len(connection.changes().sessions) == 2000


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x01\x80", b"\x00"])
def test_malformed_requests_end_their_connection_only(publisher, connection, data):
    with socket.socket(socket.AF_UNIX) as rude:
        rude.settimeout(5)
        rude.connect(os.fspath(publisher.path))
        receive(rude)
        rude.sendall(data)
        rude.shutdown(socket.SHUT_WR)
        assert rude.recv(1) == b""
    assert connection.changes().sessions == []


def test_the_number_of_readers_is_limited(publisher, connect):
    connections = [connect(publisher.path) for _ in range(16)]
    assert all(connections)
    assert connect(publisher.path) is None
    for connection in connections:
        connection.close()
    assert eventually(lambda: len(publisher._readers) == 0)


def test_an_error_of_the_table_disconnects_one_reader(publisher, connection, table, monkeypatch, caplog, connect):
    def fail(known):
        message = "broken"
        raise RuntimeError(message)

    monkeypatch.setattr(table, "changes", fail)
    with caplog.at_level(logging.WARNING, logger="coding_gym"), pytest.raises(TrainerEnded):
        connection.changes()
    assert eventually(lambda: caplog.records)
    monkeypatch.undo()
    assert connect(publisher.path) is not None


def test_sessions_can_change_while_they_are_read(publisher, connection, table):
    stop = threading.Event()

    def run():
        session = table.opened(IDENTITY)
        number = 0
        while not stop.is_set():
            number += 1
            session.running("x")
            session.stepped(
                ({"stdout": "", "stderr": "", "exit_code": 0}, 0.0, False, False, {"outcome": f"outcome {number % 50}"}), None
            )

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        for row in connection.changes().sessions:
            connection.history(row.id)
    stop.set()
    for thread in threads:
        thread.join()
    total = sum(session.all_steps for session in table._sessions.values())
    connection.changes()
    assert connection.changes().summary.steps == total


def test_another_version_of_the_protocol_is_not_followed(runtime_directory, connect):
    path = prepare_directory() / "1-abc.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(path))
        listener.listen()

        def answer():
            other, _ = listener.accept()
            with other:
                send(other, Hello(version=99, name="", pid=1, root=1, command="", started=0.0))

        thread = threading.Thread(target=answer)
        thread.start()
        assert connect(path) is None
        thread.join()
    assert path.exists(), "it may be of a newer version"
