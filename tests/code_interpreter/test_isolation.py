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
    path = interpreter.execute("import os; f'/proc/{os.getpid()}/cwd/secret'").text
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
    stdout, _ = run(session, "import os\nopen('mine', 'w').write('mine')\nprint(f'/proc/{os.getpid()}/cwd/mine')")
    path = stdout.splitlines()[0]
    for attempt in (f"open({path!r}).read()", f"open({path!r}, 'a')", f"__import__('os').remove({path!r})"):
        assert interpreter.execute(attempt).error.name in ("PermissionError", "FileNotFoundError")
    assert run(session, "open('mine').read()")[0] == "'mine'\n"


@pytest.mark.parametrize("end", ["os.kill({pid}, 9)", "os.kill({pid}, 2)", "open('/proc/{pid}/mem', 'rb').read(1)"])
def test_sessions_and_contexts_cannot_access_each_others_processes(interpreter, session, end):
    theirs = run(session, "import os\nos.getpid()")[0].strip()
    ours = interpreter.execute("import os\nos.getpid()").text
    assert interpreter.execute(f"import os\n{end.format(pid=theirs)}").error is not None
    assert "Error" in run(session, f"import os\n{end.format(pid=ours)}")[1]
    assert run(session, "1")[0] == "1\n"
    assert interpreter.execute("1").text == "1"


def test_api_is_unreachable_from_inside_sandbox(interpreter):
    connect = f"import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect({interpreter.sandbox.address.socket_path!r})"
    ask = "s.send(b'GET /health HTTP/1.0\\r\\n\\r\\n')\nassert not s.recv(1), 'answered'"
    execution = interpreter.execute(f"{connect}\n{ask}")
    assert execution.error is None or execution.error.name != "AssertionError"
