"""Contexts and sessions of environments in the same sandbox are isolated from each other."""

from __future__ import annotations

import pytest

from coding_gym import CodeInterpreter
from coding_gym.client.session import Session
from coding_gym_server.protocol import ResetOptions

pytestmark = pytest.mark.every_provider


@pytest.fixture(scope="module")
def interpreter(provider):
    with CodeInterpreter(provider=provider, sessions=4, preload=()) as interpreter:
        yield interpreter


@pytest.fixture
def session(interpreter):
    session = Session(interpreter.sandbox.address)
    session.ask_reset(ResetOptions(backend="python"))
    session.wait(timeout=30)
    yield session
    session.close()


def run(session, code):
    session.ask_step(code)
    observation = session.wait(timeout=30).observation
    return observation.stdout, observation.stderr


def test_session_cannot_access_context_workspace(interpreter, session):
    interpreter.files.write("secret", "secret")
    path = "/proc/1/cwd/secret"
    for attempt in (
        f"open({path!r}).read()",
        f"open({path!r}, 'a')",
        f"__import__('os').listdir({path.removesuffix('/secret')!r})",
    ):
        stdout, stderr = run(session, attempt)
        assert "secret" not in stdout
        assert "PermissionError" in stderr or "FileNotFoundError" in stderr
    assert interpreter.files.read("secret") == b"secret"


def test_context_cannot_access_session_workspace(interpreter, session):
    run(session, "open('mine', 'w').write('mine')")
    path = "/proc/1/cwd/mine"
    for attempt in (f"open({path!r}).read()", f"open({path!r}, 'a')", f"__import__('os').remove({path!r})"):
        assert interpreter.execute(attempt).error.name in ("PermissionError", "FileNotFoundError")
    assert run(session, "open('mine').read()")[0] == "'mine'\n"


def test_sessions_and_contexts_see_their_own_processes_only(interpreter, session):
    pids = "import os\nlen([name for name in os.listdir('/proc') if name.isdigit()])"
    assert (run(session, pids)[0], interpreter.execute(pids).text) == ("2\n", "2")


def test_api_is_unreachable_from_inside_sandbox(interpreter):
    connect = f"import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({interpreter.sandbox.address.socket_path!r})"
    ask = "s.send(b'GET /health HTTP/1.0\\r\\n\\r\\n')\nassert not s.recv(1), 'answered'"
    execution = interpreter.execute(f"{connect}\n{ask}")
    assert execution.error is None or execution.error.name != "AssertionError"
