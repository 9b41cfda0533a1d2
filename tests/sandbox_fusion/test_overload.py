"""Many programs at a time, and clients that disconnect."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import psutil
import pytest

from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.server.sandbox_fusion.code_runs import MAX_WAIT_SECONDS
from tests.sandbox_fusion.waiting import signal_waiting, zygotes_of_programs
from tests.support.program_requests import client_of
from tests.support.timing import eventually, promptly

PLACES = (os.cpu_count() or 1) + 1
"""Number of programs that a sandbox runs at a time."""

MARK = "876543.5"
SLEEPER = f"exec sleep {MARK}"


@pytest.fixture
def sandbox(sandbox_of: Callable[..., Sandbox]) -> Sandbox:
    """A sandbox whose places no other test uses."""
    return sandbox_of(provider="local", sessions=2)


def sleepers() -> int:
    """Return the number of sleeping programs of this process's sandboxes."""
    count = 0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            count += MARK in process.cmdline()
    return count


@contextlib.contextmanager
def all_places_taken(sandbox: Sandbox) -> Iterator[None]:
    """Take all places with programs, whose clients disconnect at the end."""
    body = msgspec.json.encode({"code": SLEEPER, "language": "bash", "run_timeout": 600})
    token = sandbox.address.token
    head = f"POST /run_code HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {len(body)}\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(PLACES):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(sandbox.address.socket_path)
            connection.sendall(head.encode() + body)
        assert eventually(lambda: sleepers() == PLACES)
        yield


@pytest.mark.parametrize(
    ("path", "body"), [("/run_code", {"code": "print(1)", "language": "python"}), ("/run_jupyter", {"cells": ["1"]})]
)
def test_overload_is_answered_with_504(sandbox, path, body):
    with contextlib.ExitStack() as stack:
        http = stack.enter_context(client_of(sandbox))
        if path == "/run_code":
            stack.enter_context(all_places_taken(sandbox))
        else:
            for _ in range(2):
                stack.enter_context(contextlib.closing(sandbox.connect()))
        with promptly(after=MAX_WAIT_SECONDS):
            answer = http.post(path, json=body)
        assert answer.status_code == 504
        assert answer.json() == {
            "detail": "The sandbox is overloaded: no place became free within 4 s. Send fewer programs at a time."
        }
        # Other requests are answered all the same.
        assert http.get("/v1/ping").json() == "pong"


def test_disconnected_clients_give_up_their_places(sandbox):
    with client_of(sandbox) as http:
        for _ in range(3):
            with all_places_taken(sandbox):
                pass
            assert http.post("/run_code", json={"code": "print(1)", "language": "python"}).json()["status"] == "Success"
            assert eventually(lambda: sleepers() == 0)


def test_clients_that_leave_the_queue_are_forgotten(sandbox):
    with client_of(sandbox) as http, all_places_taken(sandbox):
        for _ in range(5):
            with pytest.raises(httpx.ReadTimeout):
                http.post("/run_code", json={"code": "1", "language": "python"}, timeout=0.3)
    with client_of(sandbox) as http:
        assert http.post("/run_code", json={"code": "print(1)", "language": "python"}).json()["status"] == "Success"


def test_process_that_waits_for_a_program_is_replaced(sandbox):
    with client_of(sandbox) as http:
        for _ in range(2):
            assert http.post("/run_code", json={"code": "print(1)", "language": "python"}).json()["status"] == "Success"
            assert signal_waiting(signal.SIGKILL) > 0
            # The server is told.
            time.sleep(1)
        assert http.post("/run_code", json={"code": "print(1)", "language": "python"}).json()["status"] == "Success"


def test_worker_that_is_ready_too_late_is_kept():
    others = zygotes_of_programs()
    # The client disconnects, as it does not wait for an answer.
    config = SandboxConfig(provider="local", preload=(), sessions=2, idle_timeout=600)
    with contextlib.closing(start_sandbox(config)) as sandbox, client_of(sandbox, is_patient=False) as http:
        assert http.post("/run_code", json={"code": "print(1)", "language": "python"}).json()["status"] == "Success"
        (zygote,) = (zygote for zygote in zygotes_of_programs() if zygote not in others)
        workers = len(zygote.children())
        body = {"code": "def test(): pass", "language": "pytest"}
        with stopped(zygote):
            with promptly(after=MAX_WAIT_SECONDS):
                answer = http.post("/run_code", json=body)
            assert answer.json() == {
                "detail": "The sandbox is overloaded: no process was ready within 4 s. Send fewer programs at a time."
            }
            with pytest.raises(httpx.ReadTimeout):
                http.post("/run_code", json=body, timeout=0.3)
        # One for each of the two requests that gave up, and as many roots of test runners.
        assert eventually(lambda: len(zygote.children()) == workers + 4)
        # They import pytest.
        time.sleep(3)
        assert http.post("/run_code", json=body).json()["status"] == "Success"
        assert len(zygote.children()) == workers + 4


@contextlib.contextmanager
def stopped(process: psutil.Process) -> Iterator[None]:
    process.suspend()
    try:
        yield
    finally:
        process.resume()


def test_wait_for_a_place_takes_no_time_from_the_program(sandbox):
    code = f"import time; time.sleep({MAX_WAIT_SECONDS + 1}); print(input())"
    body = {"code": code, "language": "python", "stdin": "a", "run_timeout": MAX_WAIT_SECONDS + 3, "compile_timeout": 60}
    with client_of(sandbox) as http:
        answer = http.post("/run_code", json=body).json()
    assert (answer["status"], answer["run_result"]["stdout"]) == ("Success", "a\n"), answer


def test_more_programs_than_places_wait_for_their_turn(http):
    def run(number: int) -> str:
        code = f"import os; open('own', 'x').write('{number}'); print(int(input()) + {number}, os.listdir())"
        body = {"code": code, "language": "python", "stdin": f"{1000 * number}\n"}
        return http.post("/run_code", json=body).json()["run_result"]["stdout"]

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(run, range(48)))
    assert [answer.split()[0] for answer in answers] == [str(1001 * number) for number in range(48)]
    assert all("'own'" in answer and "'main.py'" in answer for answer in answers)
