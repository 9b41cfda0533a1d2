from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import parse_qs

import gymnasium as gym
import httpx
import psutil
import pytest
from typer.testing import CliRunner

from coding_gym import CodeInterpreter
from coding_gym.cli.common import url_of
from coding_gym.cli.main import app
from tests.cli.conftest import TOKEN, Served, environment
from tests.support.running_server import gone_within


def serve(*arguments: str):
    return CliRunner().invoke(
        app, ["serve", "--provider", "local", *arguments], catch_exceptions=False, env={"CODING_GYM_TOKEN": ""}
    )


def sandbox_processes(served: Served) -> list[psutil.Process]:
    return psutil.Process(served.process.pid).children(recursive=True)


def test_printed_shell_line_works_when_pasted(served):
    pasted = subprocess.run(
        ["bash", "-c", served.example("In a shell:")], capture_output=True, text=True, check=True, env=environment()
    )
    assert '"text":"42"' in pasted.stdout


def test_printed_python_lines_work_when_pasted(served):
    lines = [served.example("In Python:"), served.example("As an environment:"), "env.reset()", "print(env.step('7 * 6')[0])"]
    pasted = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True, env=environment()
    )
    assert pasted.stdout.startswith("42\n")
    assert "'stdout': '42\\n'" in pasted.stdout


def test_printed_address_is_that_of_the_page(served):
    address, _, fragment = served.example("In a browser:").partition("#")
    assert "coding_gym" in httpx.get(address).text
    token = parse_qs(fragment)["token"][0]
    assert httpx.get(f"{address}/info", headers={"Authorization": f"Bearer {token}"}).status_code == 200


def test_clients_without_the_token_are_refused(served):
    assert httpx.get(f"{served.url}/contexts").status_code == 401
    assert httpx.get(f"{served.url}/contexts", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_token_is_read_from_a_file_or_else_from_the_environment(tmp_path):
    path = tmp_path / "token"
    path.write_text("from-the-file\n")
    served = Served(tmp_path, "--port", "0", "--token-file", str(path), token="from-the-environment")
    try:
        statuses = [
            httpx.get(f"{served.url}/contexts", headers={"Authorization": f"Bearer {token}"}).status_code
            for token in ("from-the-file", "from-the-environment")
        ]
        assert statuses == [200, 401]
    finally:
        assert served.stop() == 0
    assert path.exists()


def test_no_command_line_has_the_token(served):
    processes = [psutil.Process(served.process.pid), *sandbox_processes(served)]
    assert not [process for process in processes if TOKEN in " ".join(process.cmdline())]


def test_interrupted_server_removes_its_sandbox(tmp_path):
    served = Served(tmp_path, "--port", "0", "--sessions", "1", "--option", "mem=1g")
    processes = sandbox_processes(served)
    with CodeInterpreter(served.url) as interpreter:
        assert interpreter.execute("1 + 1").text == "2"
    assert processes
    assert served.stop(signal.SIGINT) == 0
    assert gone_within(processes) == []
    assert "Traceback" not in served.log.read_text()


def test_sandbox_that_dies_is_replaced(tmp_path):
    served = Served(tmp_path, "--port", "0")
    try:
        with gym.make("coding_gym:CodingEnv-v0", provider="remote", base_url=served.url, screen=None) as env:
            env.reset()
            for process in sandbox_processes(served):
                with contextlib.suppress(psutil.NoSuchProcess):
                    # The others end with the first.
                    process.kill()
            assert env.step("1")[4]["outcome"] == "infrastructure"
            env.reset()
            assert env.step("6 * 7")[0]["stdout"] == "42\n"
    finally:
        assert served.stop() == 0


def test_port_in_use_is_explained():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = serve("--port", str(port))
    assert result.exit_code == 1
    assert f"Port {port} of 127.0.0.1 is in use" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (["--host", "0.0.0.0"], 1, "without a token"),
        (["--host", "::"], 1, "without a token"),
        (["--host", "8.8.8.8", "--no-token"], 1, "Cannot listen on port 8000 of 8.8.8.8"),
        (["--host", "no such host", "--no-token"], 1, "is not an address of this machine"),
        (["--token", "x"], 2, "--token-file"),
        (["--option", "token=x"], 2, "--token-file"),
        (["--token-file", "/no/such/file"], 2, "Errno 2"),
        (["--token-file", os.devnull], 2, "Expected"),
        (["--token-file", __file__], 1, "without spaces"),
        (["--port", "70000"], 2, "--port"),
        (["--sessions", "0"], 2, "--sessions"),
        (["--backend", "cobol", "--port", "0"], 1, "cobol"),
        (["--option", "memory"], 2, "NAME=VALUE"),
        (["--option", "memory=1g"], 1, "memory"),
        (["--packages", "reqeusts", "--port", "0"], 1, "requests"),
    ],
)
def test_bad_arguments_are_refused(arguments, exit_code, reason):
    result = serve(*arguments)
    assert result.exit_code == exit_code, result.output
    assert reason in result.stderr


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:1"), ("0.0.0.0", "http://127.0.0.1:1"), ("::", "http://[::1]:1"), ("box", "http://box:1")],
)
def test_url_is_reachable_from_this_machine(host, url):
    assert url_of(host, 1) == url
