"""Programs that the sandbox fails to start: nothing is said about the program, and the request can be repeated."""

from __future__ import annotations

import base64
import signal
from collections.abc import Callable

import pytest

from coding_gym.sandbox import Sandbox
from tests.sandbox_fusion.waiting import signal_waiting
from tests.support.program_requests import client_of, post_program
from tests.support.timing import promptly

RUN = {"code": "print(1)", "language": "python"}
LARGE = "#" * (2 << 20)
MEGABYTES = base64.b64encode(bytes(2 << 20)).decode()
FILE, START = "The sandbox cannot write or read a file: ", "The sandbox failed to start the program: "


@pytest.fixture
def sandbox(sandbox_of: Callable[..., Sandbox]) -> Sandbox:
    """A sandbox whose processes no other test uses."""
    return sandbox_of(provider="local", sessions=3)


@pytest.mark.every_provider
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"code": f"{LARGE}\nprint(1)", "language": "python"}, START),
        ({"code": f"{LARGE}\necho 1", "language": "bash"}, FILE),
        ({"code": f"{LARGE}\ndef test(): pass", "language": "pytest"}, FILE),
        ({**RUN, "files": {"deep/data": MEGABYTES}}, FILE),
        ({**RUN, "files": {f"{n}": MEGABYTES[: 1 << 19] for n in range(9)}}, FILE),
        ({**RUN, "files": {f"many/{n}": "" for n in range(1200)}}, FILE),
    ],
    ids=["main.py", "main.sh", "test_main.py", "file", "files", "inodes"],
)
def test_full_disk_is_answered_with_504(provider, sandbox_of, body, reason):
    with client_of(sandbox_of(provider=provider, disk="1m", inodes=1000)) as http:
        for _ in range(2):
            answer = post_program(http, body)
            assert answer.status_code == 504, answer.text
            assert answer.json()["detail"].startswith((f"{reason}No space left on device: ", f"{reason}File too large: "))
        assert post_program(http, RUN).json()["run_result"]["stdout"] == "1\n"


@pytest.mark.parametrize("body", [{**RUN, "stdin": LARGE}, {"code": "cat", "language": "bash", "stdin": LARGE}])
def test_too_large_stdin_is_answered_with_504(sandbox_of, body):
    # A local sandbox limits the size of any file, and stdin is one.
    with client_of(sandbox_of(provider="local", disk="1m", inodes=1000)) as http:
        answer = post_program(http, body)
        assert (answer.status_code, answer.json()) == (504, {"detail": f"{START}File too large: stdin"})


@pytest.mark.every_provider
def test_program_that_fills_the_disk_fails(provider, sandbox_of):
    body = {"code": "open('large', 'w').write('x' * (2 << 20))", "language": "python", "fetch_files": ["large"]}
    with client_of(sandbox_of(provider=provider, disk="1m", inodes=1000)) as http:
        for _ in range(2):
            answer = post_program(http, body).json()
            assert answer["status"] == "Failed"
            assert "OSError: [Errno 2" in answer["run_result"]["stderr"]
            assert post_program(http, RUN).json()["run_result"]["stdout"] == "1\n"


def test_full_disk_of_notebooks_is_answered_with_504(sandbox_of):
    with client_of(sandbox_of(provider="local", disk="1m", inodes=1000)) as http:
        answer = http.post("/run_jupyter", json={"cells": ["1"], "files": {"data": MEGABYTES}})
        assert (answer.status_code, answer.json()) == (504, {"detail": f"{FILE}No space left on device: data"})
        assert http.post("/run_jupyter", json={"cells": ["1"]}).json()["status"] == "Success"


@pytest.mark.parametrize("files", [{"main.py/x": "eA=="}, {"main.py/x/y": ""}])
def test_directory_in_the_place_of_the_program_is_refused(run_code, files):
    answer = run_code("print(1)", files=files)
    assert (answer["status"], answer["message"]) == ("SandboxError", "Is a directory: main.py")


def test_killed_process_is_not_the_fault_of_the_program(sandbox):
    with client_of(sandbox) as http:
        for _ in range(10):
            assert post_program(http, RUN).json()["status"] == "Success"
            # The request may arrive before the server is told.
            assert signal_waiting(signal.SIGKILL) > 0


@pytest.mark.parametrize("stdin", ["", LARGE], ids=["small", "large"])
def test_process_that_does_not_start_is_no_timeout(sandbox, stdin):
    with client_of(sandbox) as http:
        assert post_program(http, RUN).json()["status"] == "Success"
        assert signal_waiting(signal.SIGSTOP) > 0
        with promptly(after=0.5):
            answer = http.post("/run_code", json={**RUN, "stdin": stdin, "run_timeout": 0.5})
        assert answer.status_code == 504
        assert answer.json()["detail"].startswith(START)
        assert post_program(http, RUN).json()["status"] == "Success"
