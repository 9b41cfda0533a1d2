"""HTTP route that executes code in a session, with the messages of the code interpreter."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest

from coding_gym.client.http import HttpClient
from coding_gym.errors import ConfigurationError, ProtocolError
from tests.support.timing import promptly


@pytest.fixture
def http(sandbox):
    with contextlib.closing(HttpClient(sandbox.address)) as client:
        yield client


@pytest.fixture
def execute(http, session):
    session.reset(show_value=False)

    def run(code, **options):
        body = json.dumps({"code": code, **options}).encode()
        with http.request("POST", f"/sessions/{session.id}/execute", body=body) as response:
            return [json.loads(line) for line in response.read().splitlines()]

    return run


def texts(messages, kind="stdout"):
    return "".join(message["text"] for message in messages if message["type"] == kind)


def test_execute_and_step_share_variables(execute, session):
    assert texts(execute("x = 41; print('hi')")) == "hi\n"
    assert session.run("x += 1; print(x)").stdout == "42\n"
    messages = execute("print(x)")
    assert texts(messages) == "42\n"
    assert messages[0] == {"type": "number_of_executions", "execution_count": 2}
    assert messages[-1] == {"type": "end_of_execution"}


def test_exceptions_are_error_messages(execute):
    (error,) = (message for message in execute("1 / 0") if message["type"] == "error")
    assert error["name"] == "ZeroDivisionError"


def test_variables_are_set_for_one_execution(execute):
    code = "import os; print(os.environ.get('TOPIC'))"
    assert texts(execute(code, env_vars={"TOPIC": "graphs"})) == "graphs\n"
    assert texts(execute(code)) == "None\n"


def test_timeout_interrupts_and_keeps_variables(execute):
    execute("kept = 1")
    (error,) = (message for message in execute("while True: pass", timeout=0.3) if message["type"] == "error")
    assert "timed out" in error["value"]
    assert texts(execute("print(kept)")) == "1\n"


def test_step_waits_for_running_execution(execute, session):
    thread = threading.Thread(target=execute, args=("import time; time.sleep(0.5); order = ['execute']",))
    thread.start()
    time.sleep(0.2)
    assert session.run("order.append('step'); print(order)").stdout == "['execute', 'step']\n"
    thread.join()


def test_disconnect_interrupts_execution(http, execute, session):
    execute("state = 'kept'")
    body = json.dumps({"code": "print('begun')\nwhile True: pass"}).encode()
    with http.request("POST", f"/sessions/{session.id}/execute", body=body) as response:
        while b"begun" not in response.readline():
            pass
    with promptly():
        assert texts(execute("print(state)")) == "kept\n"


def test_unknown_sessions_and_bodies_are_refused(http, session):
    session.reset()
    with pytest.raises(ProtocolError, match="404"), http.request("POST", "/sessions/0/execute", body=b'{"code": ""}'):
        pass
    with (
        pytest.raises((ProtocolError, ConfigurationError), match="code"),
        http.request("POST", f"/sessions/{session.id}/execute", body=b"{}"),
    ):
        pass
