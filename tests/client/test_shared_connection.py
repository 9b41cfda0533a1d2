"""Sessions that share a connection."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import threading
import time
from pathlib import Path

import httpx
import pytest

from coding_gym.client.address import Address
from coding_gym.client.shared_connection import SharedConnection
from coding_gym.errors import CapacityError, ProtocolError, TransportError, TransportTimeoutError
from coding_gym.sandbox.base import Sandbox
from coding_gym_server.protocol import ResetOptions, StateRequest
from tests.support.running_server import RunningServer
from tests.support.timing import eventually, promptly

LIMIT = 9


class TestSandbox(Sandbox):
    __test__ = False

    def _remove(self):
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("server"), "--max-sessions", str(LIMIT)) as server:
        yield server


@pytest.fixture
def sandbox(server):
    with contextlib.closing(TestSandbox(Address.of_url(server.url), "test")) as sandbox:
        yield sandbox
    assert eventually(lambda: active_sessions(server) == 0)


@pytest.fixture
def open_sessions(sandbox):
    """Open so many sessions, which are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda count: [stack.enter_context(contextlib.closing(sandbox.connect_shared())) for _ in range(count)]


class Relay:
    """Relays one connection after the other to a server."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address.of_url(f"127.0.0.1:{self._listener.getsockname()[1]}")
        self.connections = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._port))
                self.connections.append((near, far))
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        self.cut(source, target)

    @staticmethod
    def cut(*ends):
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()
        for ends in self.connections:
            self.cut(*ends)
            for end in ends:
                end.close()


@pytest.fixture
def relay(server):
    with contextlib.closing(Relay(server.port)) as relay:
        yield relay


def active_sessions(server):
    return httpx.get(f"{server.url}/health").json()["active_sessions"]


def output(session, code, timeout=20):
    session.ask_step(code)
    return session.wait(timeout=timeout).observation.stdout


def run_in_threads(*functions):
    """Run functions concurrently; return their results or exceptions."""
    results = [None] * len(functions)

    def run(index):
        try:
            results[index] = functions[index]()
        except BaseException as error:
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def test_sessions_share_one_connection_while_one_is_open(server, relay):
    sandbox = TestSandbox(relay.address, "test")
    sessions = [sandbox.connect_shared() for _ in range(3)]
    assert len({session.id for session in sessions}) == 3
    assert len(relay.connections) == 1
    assert [output(session, f"print({number})") for number, session in enumerate(sessions)] == ["0\n", "1\n", "2\n"]
    sessions[0].close()
    sessions[0].close()
    assert eventually(lambda: active_sessions(server) == 2)
    assert output(sessions[1], "print(1)") == "1\n"
    with contextlib.closing(sandbox.connect_shared()) as late:
        assert output(late, "print(3)") == "3\n"
    assert len(relay.connections) == 1
    for session in sessions:
        session.close()
    assert eventually(lambda: active_sessions(server) == 0)
    with contextlib.closing(sandbox.connect_shared()) as late:
        assert output(late, "print(4)") == "4\n"
    assert len(relay.connections) == 2
    sandbox.close()


def test_each_thread_gets_the_answers_of_its_session(open_sessions):
    def talk(session, number):
        session.ask_reset(ResetOptions())
        session.wait(timeout=20)
        return [output(session, f"print({number}, {turn})") for turn in range(40)]

    sessions = open_sessions(8)
    results = run_in_threads(*(lambda s=s, n=n: talk(s, n) for n, s in enumerate(sessions)))
    assert results == [[f"{number} {turn}\n" for turn in range(40)] for number in range(8)]


def test_fast_answer_does_not_wait_for_thread_that_reads(open_sessions):
    slow, fast = open_sessions(2)
    for session in (slow, fast):
        output(session, "import time")

    def run_fast():
        time.sleep(0.3)
        output(fast, "time.sleep(0.2)")
        slow.abort()

    with promptly():
        lost, _ = run_in_threads(lambda: output(slow, "time.sleep(60)", timeout=90), run_fast)
    assert type(lost) is TransportError


def test_aborted_session_leaves_others_alone(open_sessions):
    aborted, other = open_sessions(2)
    for session in (aborted, other):
        output(session, "import time")

    def abort():
        time.sleep(0.4)
        aborted.abort()

    with promptly():
        lost, kept, _ = run_in_threads(
            lambda: output(aborted, "time.sleep(60)", timeout=90),
            lambda: output(other, "time.sleep(1.5); print('ok')"),
            abort,
        )
    assert type(lost) is TransportError
    assert kept == "ok\n"
    assert aborted.is_lost
    assert not other.is_lost
    assert output(other, "print(1)") == "1\n"


def test_closed_session_answers_at_once_while_others_are_open(open_sessions):
    closed, released, other = open_sessions(3)
    for session in (closed, released):
        assert not session.is_lost
        session.close()
        assert session.is_lost
    with promptly():
        released.release("a snapshot")
        with pytest.raises(TransportError, match="it was closed"):
            closed.state()
    assert other.state().step_count == 0


def test_last_abort_ends_wait_for_silent_server(server, relay):
    sandbox = TestSandbox(relay.address, "test")
    session = sandbox.connect_shared()
    output(session, "x = 1")
    threading.Timer(0.3, session.abort).start()
    with promptly(), pytest.raises(TransportError):
        output(session, "import time; time.sleep(60)", timeout=90)
    session.close()


def test_timeout_leaves_others_alone(open_sessions):
    slow, other = open_sessions(2)
    with pytest.raises(TransportTimeoutError, match=r"within 0\.4 s"):
        output(slow, "import time; time.sleep(3)", timeout=0.4)
    slow.close()
    assert output(other, "print(1)") == "1\n"


def test_interrupted_wait_hands_over_reading(open_sessions):
    first, other = open_sessions(2)
    output(first, "import time"), output(other, "import time")
    first.ask_step("time.sleep(20)")
    other.ask_step("time.sleep(0.8); print('ok')")
    result = []
    # It sleeps while the other thread reads, which gives up first.
    thread = threading.Timer(0.2, lambda: result.append(other.wait(timeout=30).observation.stdout))
    thread.start()
    with pytest.raises(TransportTimeoutError):
        first.wait(timeout=0.5)
    thread.join(20)
    assert result == ["ok\n"]


def test_broken_connection_breaks_its_sessions_and_a_new_one_opens(server, relay):
    sandbox = TestSandbox(relay.address, "test")
    sessions = [sandbox.connect_shared() for _ in range(3)]
    for session in sessions:
        output(session, "import time")
    threading.Timer(0.3, lambda: relay.cut(*relay.connections[0])).start()
    errors = run_in_threads(*(lambda s=s: output(s, "time.sleep(9)") for s in sessions))
    assert [type(error) for error in errors] == [TransportError] * 3
    assert len({id(error) for error in errors}) == 3
    assert all(session.is_lost for session in sessions)
    with contextlib.closing(sandbox.connect_shared()) as session:
        assert output(session, "print(1)") == "1\n"
        assert len(relay.connections) == 2
        for lost in sessions:
            lost.close()
        assert output(session, "print(2)") == "2\n"
    assert eventually(lambda: active_sessions(server) == 0)


def test_batch_is_sent_at_its_end(open_sessions, sandbox, server):
    def run():
        # Each session has a file system of its own.
        found = [Path(f"/proc/{process.pid}/root/home/user/began") for process in server.family()]
        return {path.stat().st_dev for path in found if path.exists()}

    sessions = open_sessions(3)
    with sandbox.batch(), sandbox.batch():
        for session in sessions:
            session.ask_step("open('began', 'w').close()")
        time.sleep(0.4)
        assert not run()
    for session in sessions:
        session.wait(timeout=20)
    assert len(run()) == 3
    with sandbox.batch():
        # A thread that waits does not wait for the end of the batch.
        assert output(sessions[0], "print(1)") == "1\n"
        with pytest.raises(ZeroDivisionError), sandbox.batch():
            1 / 0  # noqa: B018
    assert output(sessions[0], "print(2)") == "2\n"


def test_full_server_refuses_sessions_beyond_its_limit(open_sessions):
    *sessions, refused = open_sessions(LIMIT + 1)
    assert refused.id is None
    refused.ask_reset(ResetOptions())
    with pytest.raises(CapacityError, match=f"{LIMIT}/{LIMIT}"):
        refused.wait(timeout=20)
    assert output(sessions[0], "print(1)") == "1\n"


def test_large_messages_pass_and_too_large_ones_end_their_session_only(open_sessions):
    large, other = open_sessions(2)
    assert output(large, f"print(len('{'x' * 5_000_000}'))") == "5000000\n"
    large.ask_step("#" * 17_000_000)
    with pytest.raises(TransportError, match="1009"):
        large.wait(timeout=20)
    assert output(other, "print(1)") == "1\n"


def test_server_that_sends_ahead_of_requests_is_refused(open_sessions):
    session, other = open_sessions(2)
    for _ in range(100):
        session._connection.send(StateRequest())

    def read_for_all():
        for _ in range(50):
            output(other, "x = 1")

    with pytest.raises(ProtocolError, match="more answers than there were requests"):
        read_for_all()


def test_process_that_was_forked_leaves_connection_alone(open_sessions):
    first, other = open_sessions(2)
    assert output(first, "print(1)") == "1\n"
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            try:
                output(other, "print(2)")
            except TransportError as error:
                code = 0 if "belongs to the process that opened it" in str(error) else 2
            first.close()
            other.abort()
            other.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert output(first, "print(3)") == "3\n"
    assert output(other, "print(4)") == "4\n"


def test_garbage_collection_closes_sessions_at_any_point(sandbox, server):
    class Owner:
        def __init__(self):
            self.session = sandbox.connect_shared()
            self.itself = self

        def __del__(self):
            self.session.close()

    threshold = gc.get_threshold()
    with contextlib.closing(sandbox.connect_shared()) as session:
        gc.set_threshold(1)
        try:
            for number in range(20):
                Owner()
                assert output(session, f"print({number})") == f"{number}\n"
        finally:
            gc.set_threshold(*threshold)
        gc.collect()
        assert eventually(lambda: active_sessions(server) == 1)


def test_closed_connection_opens_no_channel(server):
    connection = SharedConnection(Address.of_url(server.url), timeout=30)
    channel = connection.open(timeout=30)
    assert channel is not None
    channel.close()
    assert not connection.is_open
    assert connection.open(timeout=30) is None
