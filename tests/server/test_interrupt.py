"""The message that interrupts the running step, which OpenEnv does not have."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from websockets.sync.client import connect

from tests.support.running_server import RunningServer
from tests.support.timing import eventually

LOOP = "held = 42\nimport time\nwhile True: time.sleep(0.01)"
STUBBORN = "held = 42\nimport signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("server"), "--max-sessions", "4", "--step-timeout", "20") as server:
        yield server


@pytest.fixture(params=["json", "msgpack"])
def wire(request, server):
    binary = request.param == "msgpack"
    with connect(server.ws_url) as connection:

        class Wire:
            def send(self, kind, **data):
                message = {"type": kind, **({"data": data} if data else {})}
                connection.send(msgspec.msgpack.encode(message) if binary else json.dumps(message))

            def receive(self):
                frame = connection.recv(timeout=30)
                message = msgspec.msgpack.decode(frame) if binary else json.loads(frame)
                return message["data"]["observation"] if message["type"] == "observation" else message

            def step(self, code):
                self.send("step", code=code)
                return self.receive()

        yield Wire()


def test_interrupt_ends_step_and_keeps_variables(wire):
    wire.step("held = 42")
    wire.send("step", code=LOOP)
    time.sleep(0.3)
    wire.send("interrupt")
    observation = wire.receive()
    assert "KeyboardInterrupt" in observation["stderr"]
    assert observation["metadata"] == {"outcome": "error", "state_lost": False}
    assert observation["exit_code"] == 130
    assert wire.step("held")["stdout"] == "42\n"


def test_immediate_interrupt_keeps_variables(wire, server):
    hogs = "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        while True: pass\n"
    with connect(server.ws_url) as neighbor:
        neighbor.send(json.dumps({"type": "step", "data": {"code": hogs}}))
        neighbor.recv(timeout=30)
        wire.step("held = 42")
        for _ in range(15):
            wire.send("step", code="import time; time.sleep(20)")
            wire.send("interrupt")
            assert wire.receive()["metadata"]["state_lost"] is False
        assert wire.step("held")["stdout"] == "42\n"


def test_code_ignoring_interrupt_is_killed(wire):
    wire.send("step", code=STUBBORN)
    time.sleep(0.3)
    wire.send("interrupt")
    observation = wire.receive()
    assert observation["metadata"] == {"outcome": "killed", "state_lost": True}
    assert "NameError" in wire.step("held")["stderr"]


def test_interrupt_without_step_is_ignored(wire):
    wire.send("interrupt")
    assert wire.step("1 + 1")["stdout"] == "2\n"
    wire.send("interrupt")
    wire.send("interrupt")
    wire.send("state")
    assert wire.receive()["data"]["step_count"] == 1


def test_many_interrupts_count_as_one(wire):
    wire.send("step", code=LOOP)
    time.sleep(0.2)
    for _ in range(20):
        wire.send("interrupt")
    assert wire.receive()["metadata"]["outcome"] == "error"
    # The other interrupts do not affect the next steps.
    for number in range(20):
        assert wire.step(f"import time; time.sleep(0.02); print({number})")["stdout"] == f"{number}\n"


def test_interrupt_applies_only_to_preceding_step(wire):
    # Sent before the second step, which it must not interrupt, however late it is read.
    wire.send("step", code="1")
    wire.send("interrupt")
    wire.send("step", code="import time; time.sleep(0.3); print('whole')")
    assert wire.receive()["stdout"] in ("1\n", "")
    assert wire.receive()["stdout"] == "whole\n"


BLINKING = """
import subprocess, sys
program = subprocess.Popen([sys.executable, "-c", '''
import itertools, tkinter
root = tkinter.Tk()
for color in itertools.cycle(["red", "blue"]):
    root["background"] = color
    root.update()
'''])
"""


@pytest.mark.usefixtures("xvfb")
@pytest.mark.parametrize("following", ["step", "reset"])
def test_interrupt_while_screen_is_captured_leaves_next_step_alone(wire, following):
    wire.send("reset", screen=[64, 48], capture="auto")
    assert wire.receive()["exit_code"] == 0
    assert wire.step(BLINKING)["exit_code"] == 0
    assert eventually(lambda: "screenshot" in wire.step(""))
    # The cell has long ended while the blinking screen is still waited for.
    wire.send("step", code="1")
    time.sleep(0.2)
    wire.send("interrupt")
    wire.receive()
    if following == "reset":
        wire.send("reset")
        wire.receive()
    assert wire.step("import time; time.sleep(0.3); print('whole')")["stdout"] == "whole\n"


@pytest.mark.parametrize("body", [{"type": "interrupt", "data": {}}, {"type": "interrupt", "more": 1}])
def test_interrupt_with_data_is_refused(server, body):
    with connect(server.ws_url) as connection:
        connection.send(json.dumps(body))
        assert json.loads(connection.recv(timeout=30))["data"]["code"] == "VALIDATION_ERROR"


def test_interrupt_works_during_interpreter_start(server):
    with connect(server.ws_url) as connection:
        connection.send(json.dumps({"type": "step", "data": {"code": "import time; time.sleep(15)"}}))
        connection.send(json.dumps({"type": "interrupt"}))
        observation = json.loads(connection.recv(timeout=30))["data"]["observation"]
        assert observation["metadata"] == {"outcome": "error", "state_lost": False}
        connection.send(json.dumps({"type": "step", "data": {"code": "print('continues')"}}))
        assert json.loads(connection.recv(timeout=30))["data"]["observation"]["stdout"] == "continues\n"
