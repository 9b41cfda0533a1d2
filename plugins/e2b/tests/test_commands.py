"""Commands and terminals with E2B's SDK."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import msgspec
import pytest

from coding_gym_e2b.event_log import EventLog
from coding_gym_e2b.process_messages import Config, StartRequest
from coding_gym_e2b.processes import ProcessService
from coding_gym_server.protocol.processes import ProcessExited, ProcessInfo, ProcessStarted
from tests.support.requirements import import_extra
from tests.support.timing import eventually

e2b = import_extra("e2b")

pytestmark = pytest.mark.filterwarnings("ignore")


def test_command_has_exit_code_and_streams(sandbox):
    with pytest.raises(e2b.CommandExitException) as caught:
        sandbox.commands.run("echo out; echo err >&2; exit 3")
    assert (caught.value.stdout, caught.value.stderr, caught.value.exit_code) == ("out\n", "err\n", 3)


def test_output_is_streamed(sandbox):
    seen = threading.Event()
    handle = sandbox.commands.run("echo first; read line; echo $line", background=True, stdin=True)
    for stdout, _, _ in handle:
        if stdout == "first\n":
            seen.set()
            sandbox.commands.send_stdin(handle.pid, "second\n")
        elif stdout:
            assert stdout == "second\n"
    assert seen.is_set()


def test_large_binary_output_is_complete(sandbox):
    result = sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x; printf '\\xff'")
    assert len(result.stdout) == 3_000_001
    assert result.stdout.endswith("x\ufffd")


def test_timeout_kills_command(sandbox):
    with pytest.raises(e2b.TimeoutException):
        sandbox.commands.run("sleep 60 & sleep 61", timeout=1)
    assert eventually(lambda: sandbox.commands.list() == [])


def test_reconnected_client_gets_the_rest(sandbox):
    handle = sandbox.commands.run("echo one; read line; echo two", background=True, stdin=True)
    next(iter(handle))
    handle.disconnect()
    joined = sandbox.commands.connect(handle.pid)
    joined.send_stdin("\n")
    assert joined.wait().stdout == "two\n"


def test_processes_are_listed_by_tag_and_pid(sandbox):
    handle = sandbox.commands.run("sleep 60", background=True, envs={"A": "1"})
    (info,) = sandbox.commands.list()
    assert (info.pid, info.cmd, info.args[-1], info.envs) == (handle.pid, "/bin/bash", "sleep 60", {"A": "1"})
    assert sandbox.commands.kill(handle.pid)
    assert not sandbox.commands.kill(handle.pid)


def test_missing_program_exits_with_127(sandbox):
    with pytest.raises(e2b.CommandExitException) as caught:
        sandbox.commands.run("no-such-program")
    assert caught.value.exit_code == 127


def test_cwd_is_relative_to_home(sandbox):
    sandbox.files.make_dir("inner")
    assert sandbox.commands.run("pwd", cwd="inner").stdout == "/home/user/inner\n"
    assert sandbox.commands.run("pwd", cwd="~/inner").stdout == "/home/user/inner\n"


def test_root_is_the_user(sandbox):
    assert sandbox.commands.run("id -un", user="root").stdout == sandbox.commands.run("id -un").stdout
    with pytest.raises(e2b.AuthenticationException, match="invalid username"):
        sandbox.commands.run("true", user="mallory")


def test_terminal_can_be_resized_and_left(sandbox):
    terminal = sandbox.pty.create(e2b.PtySize(rows=24, cols=80))
    terminal.disconnect()
    sandbox.pty.resize(terminal.pid, e2b.PtySize(rows=30, cols=100))
    joined = sandbox.pty.connect(terminal.pid)
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit 4\n")
    output = []
    with pytest.raises(e2b.CommandExitException) as caught:
        joined.wait(on_pty=output.append)
    assert b"30 100" in b"".join(output)
    assert caught.value.exit_code == 4


def test_killed_sandbox_ends_streams(options):
    sandbox = e2b.Sandbox.create(**options)
    handle = sandbox.commands.run("sleep 60", background=True)
    sandbox.kill()
    with pytest.raises(e2b.TimeoutException, match="killed or reached its end"):
        handle.wait()


def test_running_commands_are_not_forgotten(monkeypatch):
    """With a server of a session that has few of them."""
    monkeypatch.setattr("coding_gym_e2b.processes._MAX_KNOWN", 3)
    encode = msgspec.json.encode

    class Server:
        count = 0

        @contextlib.asynccontextmanager
        async def stream(self, method, path, body=b""):
            yield self

        async def lines(self, limit):
            self.count += 1
            yield encode(ProcessStarted(id=f"p{self.count}", pid=self.count))
            yield encode(exited)

        async def request(self, method, path, body=b""):
            running = {1: None}
            ids = range(1, self.count + 1)
            return encode([ProcessInfo(id=f"p{n}", pid=n, command="x", result=running.get(n, exited)) for n in ids])

    exited = ProcessExited(exit_code=0)

    async def run():
        service = ProcessService(Server(), {}, EventLog())
        for _ in range(10):
            async for _ in service.start(StartRequest(process=Config(cmd="x")), timeout=None):
                pass
        return (await service.list_all(msgspec.Struct()))["processes"], len(service._started)

    processes, known = asyncio.run(run())
    assert [process["pid"] for process in processes] == [1]
    assert known <= 4
