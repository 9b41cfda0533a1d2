"""Output beyond all limits, and silence for longer than servers keep idle connections.

Not in containers, whose server runs the same code; ``test_e2b_sdk.py`` has a silent execution in one.
"""

from __future__ import annotations

import contextlib
import json
import time

import pytest

from coding_gym import CodeInterpreter
from coding_gym.client.http import HttpClient
from tests.support.interpreter_client import InterpreterClient
from tests.support.side_by_side import check_side_by_side

SILENCE = 6.0


@pytest.mark.usefixtures("context")
def test_excessive_output_is_truncated_with_notice(interpreter):
    execution = interpreter.execute("for _ in range(11): print('x' * 10**6)\nprint('end')")
    assert 3_000_000 < len(execution.stdout) < 5_000_000
    assert "characters cut" in execution.stdout
    assert execution.stdout.endswith("end\n")
    assert "characters cut" in interpreter.execute("'y' * 10**7").text
    (result,) = interpreter.execute("from IPython.display import HTML\nHTML('z' * 10**8)").results
    assert "html" not in result
    assert "text/html of 100,000,000 bytes omitted" in result["text"]
    many = interpreter.execute("for _ in range(2000): display('y' * 10_000)")
    assert len(many.results) < 1800
    assert interpreter.execute("1").text == "1"


def test_silence_breaks_no_connection(sandbox, session, local_url):
    def process_stream_has_keepalives():
        session.reset()
        body = json.dumps({"command": f"sleep {SILENCE}"}).encode()
        with (
            contextlib.closing(HttpClient(sandbox.address)) as client,
            client.request("POST", f"/sessions/{session.id}/processes", body=body) as response,
        ):
            events = [json.loads(line)["type"] for line in response.read().splitlines()]
        assert events == ["started", "keepalive", "exited"]

    def silent_execution_has_keepalives():
        with InterpreterClient(local_url) as interpreter:
            interpreter.use_fresh_context()
            execution = interpreter.execute(f"import time; time.sleep({SILENCE})")
        assert len(execution.of("keepalive")) == 1
        assert execution.error is None

    def idle_connection_is_not_reused():
        with CodeInterpreter(local_url) as interpreter:
            interpreter.execute("1")
            time.sleep(SILENCE)
            assert interpreter.execute("2").text == "2"

    def idle_interpreter_keeps_its_sandbox():
        with CodeInterpreter(provider="local", preload=(), sessions=1, idle_timeout=1) as interpreter:
            interpreter.execute("x = 1")
            time.sleep(SILENCE)
            assert interpreter.execute("x").text == "1"

    check_side_by_side(
        lambda check: check(),
        [
            process_stream_has_keepalives,
            silent_execution_has_keepalives,
            idle_connection_is_not_reused,
            idle_interpreter_keeps_its_sandbox,
        ],
    )
