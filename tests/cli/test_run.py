from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from coding_gym.cli.main import app
from tests.cli.conftest import TOKEN, command_line, environment

_WINDOW = "import tkinter\nroot = tkinter.Tk()\nroot.configure(bg='red')\n"


@pytest.fixture
def program(tmp_path):
    def write(source: str, name: str = "program.py") -> Path:
        path = tmp_path / name
        path.write_text(source)
        return path

    return write


def started(served, *arguments: object, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command_line(served, "run", *map(str, arguments)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(CODING_GYM_TOKEN=TOKEN),
        **options,
    )


def test_streams_arguments_and_exit_code_are_the_programs(command, program):
    path = program("import sys\nprint(sys.argv, sys.stdin.read())\nprint('oops', file=sys.stderr)\nsys.exit(7)\n")
    done = command("run", path, "--timeout", "-x", "two words", stdin="typed")
    assert done.stdout == "['program.py', '--timeout', '-x', 'two words'] typed\n"
    assert done.stderr == "oops\n"
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("source", "exit_code", "stderr"),
    [
        ("1 / 0", 1, "ZeroDivisionError"),
        ("def f(:", 1, "SyntaxError"),
        ("import os; os._exit(200)", 200, ""),
        ("import os; os.kill(os.getpid(), 11)", 139, ""),
        ("print(__name__, __file__.rpartition('/')[2])", 0, ""),
    ],
)
def test_program_on_standard_input_runs(command, source, exit_code, stderr):
    done = command("run", "-", stdin=source)
    assert done.returncode == exit_code
    assert stderr in done.stderr
    if not exit_code:
        assert done.stdout == "__main__ stdin.py\n"


def test_timeout_exits_with_124(command):
    done = command("run", "--timeout", "0.5", "-", stdin="print('begun')\nwhile True: pass")
    assert (done.returncode, done.stdout) == (124, "begun\n")
    assert "killed after 0.5 s" in done.stderr


def test_output_arrives_while_the_program_runs(served, program):
    path = program("import time\nprint('first')\ntime.sleep(60)\n")
    with started(served, path) as process:
        assert process.stdout.readline() == "first\n"
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode in (130, 137)


def test_interrupt_reaches_the_program(served, program):
    path = program(
        "import time\n"
        "try:\n    print('ready')\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('tidied')\n    raise SystemExit(5)\n"
    )
    with started(served, path) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=20)
    assert (stdout, process.returncode) == ("tidied\n", 5), stderr


def test_closed_pipe_ends_the_program(served, program):
    path = program("while True:\n    print('y' * 1000)\n")
    with started(served, path) as process:
        process.stdout.read(5)
        process.stdout.close()
        assert process.wait(20) == 141


def test_typed_input_reaches_the_program_line_by_line(served, program):
    path = program("import sys\nfor line in sys.stdin:\n    print('got', line.strip())\n")
    with started(served, path, stdin=subprocess.PIPE) as process:
        for word in ("one", "two"):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            assert process.stdout.readline() == f"got {word}\n"
        process.stdin.close()
        assert process.wait(20) == 0


def test_files_and_variables_are_there(command, program, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    (data / "in.txt").write_text("content")
    module = program("value = 3\n", "helper.py")
    path = program("import os, helper\nprint(open('data/in.txt').read(), helper.value, os.environ['NAME'])\n")
    done = command("run", "--file", data, "--file", module, "--env", "NAME=a=b", path)
    assert done.stdout == "content 3 a=b\n", done.stderr


def test_shell_script_runs_in_bash(command, program):
    done = command("run", program("echo ${BASH_VERSION:+bash} $1\nexit 4\n", "script.sh"), "argument")
    assert (done.stdout, done.returncode) == ("bash argument\n", 4)


@pytest.mark.screen
@pytest.mark.parametrize(
    ("ending", "exit_code", "note"),
    [
        ("root.mainloop()", 0, "its windows were closed"),
        ("root.protocol('WM_DELETE_WINDOW', lambda: None)\nroot.mainloop()", None, "was stopped"),
        ("root.update()\nimport time\ntime.sleep(0.5)\nroot.update()\nraise SystemExit(3)", 3, ""),
    ],
)
def test_screenshot_shows_the_windows(command, xvfb, tmp_path, ending, exit_code, note):
    path = tmp_path / "screen.png"
    done = command("run", "--screenshot", path, "--screen", "320x240", "-", stdin=_WINDOW + ending)
    if exit_code is None:
        assert done.returncode >= 128
    else:
        assert done.returncode == exit_code, done.stderr
    assert note in done.stderr
    picture = np.asarray(Image.open(path))
    assert picture.shape == (240, 320, 3)
    assert (picture == [255, 0, 0]).all(axis=-1).sum() > 10_000


def test_empty_screen_writes_no_screenshot(command, tmp_path):
    done = command("run", "--screenshot", tmp_path / "out.png", "-", stdin="print(1)")
    assert (done.stdout, done.returncode) == ("1\n", 1)
    assert "nothing was on the screen" in done.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "exit_code", "reason"),
    [
        (["missing.py"], 2, "No such file"),
        (["."], 2, "Is a directory"),
        (["--screenshot", "out.txt", "-"], 2, "out.png"),
        (["--screenshot", "nowhere/out.png", "-"], 2, "no directory nowhere"),
        (["--screen", "big", "-"], 2, "640x480"),
        (["--env", "NAME", "-"], 2, "NAME=VALUE"),
        (["--provider", "local", "-"], 2, "--url excludes"),
        (["--file", "missing", "-"], 2, "missing"),
        (["--timeout", "0", "-"], 2, "--timeout"),
        ([], 2, "FILE"),
    ],
)
def test_bad_arguments_are_refused(arguments, exit_code, reason):
    result = CliRunner().invoke(app, ["run", "--url", "http://127.0.0.1:1", *arguments], catch_exceptions=False)
    assert result.exit_code == exit_code
    assert reason in result.stderr
