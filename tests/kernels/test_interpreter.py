"""The backend of another Python interpreter, through sessions of a real server."""

from __future__ import annotations

import ast
import glob
import itertools
import os
import sys

import pytest

from coding_gym_server.worker.backends import cell_program
from coding_gym_server.worker.backends.interpreter import of_interpreter
from coding_gym_server.worker.backends.output import Output

INTERPRETERS = {
    path.split("/")[-3]: path
    for path in (sys.executable, *sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))))
}


@pytest.fixture
def session(open_session):
    return open_session(f"python:{sys.executable}")


def test_program_has_the_syntax_of_python_3_5():
    with open(cell_program.__file__) as file:
        ast.parse(file.read(), feature_version=(3, 5))


@pytest.mark.parametrize("path", INTERPRETERS.values(), ids=INTERPRETERS)
def test_interpreters(path, capfd):
    """All that this machine has, in the process of the test."""
    output = Output(lambda result: print("rich", result.texts["text/plain"], flush=True))
    backend = of_interpreter(f"python:{path}")(output)
    backend.configure(show_value=True)
    output.begin(rich=False)
    assert backend.execute("import sys\nx = [1]\ndef f(n):\n    return n + len(x)\nsys.version_info >= (3, 5)") == 0
    assert backend.execute("x.append(2); f(1)") == 0
    assert backend.execute("_, __name__, sys.argv") == 0
    assert backend.execute("import inspect; print(inspect.getsource(f))") == 0
    assert backend.execute("f(None)") == 1
    with backend.environment({"NAME": "ä"}):
        assert backend.execute("import os; os.environ['NAME']") == 0
    assert backend.execute("'NAME' in os.environ, '_coding_gym_os' in globals()") == 0
    output.begin(rich=True)
    assert backend.execute("x") == 0
    assert backend.execute("1 / 0") == 1
    assert (output.raised.name, output.raised.value) == ("ZeroDivisionError", "division by zero")
    assert backend.execute("sys.exit(3)") == 3
    process = backend._process
    os.close(process._requests)
    assert process.exit_code() == 0
    os.close(process._replies)
    found = capfd.readouterr()
    assert found.out == (
        "True\n3\n(3, '__main__', [''])\ndef f(n):\n    return n + len(x)\n\n'ä'\n(False, False)\nrich [1, 2]\n"
    )
    assert found.err.splitlines()[1:3] == ['  File "<cell 5>", line 1, in <module>', "    f(None)"]


def test_state_persists_between_cells(session):
    first = session.run("x = [1]\ndef f(n):\n    return n + len(x)\nf(1)")
    assert (first["stdout"], first["stderr"], first["exit_code"], first["outcome"]) == ("2\n", "", 0, "ok")
    assert session.run("x.append(2); f(1)")["stdout"] == "3\n"


def test_it_is_the_interpreter(session):
    assert session.run("import sys; print(sys.executable)")["stdout"] == f"{sys.executable}\n"
    assert session.run("import os; 'coding_gym_server' in sys.modules")["stdout"] == "False\n"


@pytest.mark.parametrize(
    ("code", "stdout", "exit_code"),
    [
        ("", "", 0),
        ("# nothing", "", 0),
        ("1; 2", "2\n", 0),
        ("None", "", 0),
        ("x = 1", "", 0),
        ("'grüße \\U0001f389 \\ud800'", "'grüße \U0001f389 \\ud800'\n", 0),
        ("print('grüße \\U0001f389')", "grüße \U0001f389\n", 0),
        ("import sys; sys.exit(3)", "", 3),
        ("import sys; sys.exit()", "", 0),
        ("import sys; sys.exit('why')", "", 1),
        ("raise SystemExit(300)", "", 44),
        ("print('a'); 1 / 0", "a\n", 1),
        ("def f(:", "", 1),
        ("raise KeyboardInterrupt", "", 130),
        ("input()", "", 1),
        ("import sys; print(sys.stdin.read())", "\n", 0),
        ("import os; os.system('echo shell')", "shell\n0\n", 0),
        ("import sys; sys.stdout.close()", "", 0),
        ("import sys; sys.excepthook = lambda *a: print('hook'); 1 / 0", "hook\n", 1),
        ("import sys; sys.excepthook = None; 1 / 0", "", 1),
        ("import sys; sys.displayhook = lambda v: print('shown', v); 5", "shown 5\n", 0),
        ("import os\nif os.fork() == 0:\n    print('child')\nelse:\n    os.wait(); print('parent')", "child\nparent\n", 0),
        ("import threading; t = threading.Thread(target=print, args=('t',)); t.start(); t.join()", "t\n", 0),
        ("import subprocess, sys; print(subprocess.call([sys.executable, '-c', 'print(1)']))", "1\n0\n", 0),
        ("x = 'é' * 300_000; print(len(x))", "300000\n", 0),
        ("import os; sorted(os.listdir('/proc/self/fd'))[:4]", "['0', '1', '2', '3']\n", 0),
    ],
)
def test_cells(session, code, stdout, exit_code):
    step = session.run(code)
    assert (step["stdout"], step["exit_code"], step["state_lost"]) == (stdout, exit_code, False), step
    assert session.run("print('on')")["exit_code"] in (0, 1)


def test_output_streams_are_usable_again(session):
    session.run("import sys; sys.stdout.close(); sys.stderr = None")
    assert session.run("1 / 0")["exit_code"] == 1


def test_long_cell(session):
    code = "x = 0\n" + "x += 1\n" * 20_000 + "x"
    assert session.run(code)["stdout"] == "20000\n"


def test_traceback_is_that_of_the_cell(session):
    session.run("def f():\n    return 1 / 0")
    lines = session.run("\nf()")["stderr"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert [line.strip() for line in lines if line.startswith("  File")] == [
        'File "<cell 2>", line 2, in <module>',
        'File "<cell 1>", line 2, in f',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_features_of_the_future_last(session):
    session.run("from __future__ import annotations")
    assert session.run("def f(x: undefined): pass\nf.__annotations__")["stdout"] == "{'x': 'undefined'}\n"


@pytest.mark.parametrize(
    ("code", "timeout"),
    [
        *itertools.product(["while True: pass", "import time; time.sleep(100)"], [0.001, 0.005, 0.02, 0.5]),
        ("import os; os.system('sleep 100')", 0.5),
    ],
)
def test_interrupt_keeps_variables(session, code, timeout):
    session.run("x = 5")
    step = session.run(f"{code}\nprint('after')", timeout=timeout)
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (124, "timeout", False)
    # As in any program, `system` ignores the interrupt, which its child gets.
    assert step["stdout"] == ("after\n" if "system" in code else "")
    assert session.run("x")["stdout"] == "5\n"


def test_ended_interpreter_is_replaced(session):
    session.run("x = 5")
    step = session.run("print('last', end=''); import os, sys; sys.stdout.flush(); os._exit(7)")
    assert (step["stdout"], step["exit_code"], step["outcome"], step["state_lost"]) == ("last", 7, "killed", True)
    assert session.run("print('x' in globals())")["stdout"] == "False\n"


def test_handlers_of_signals_are_as_in_a_program(session):
    code = "import subprocess, sys; subprocess.call([sys.executable, '-c', 'import signal; print(signal.getsignal(2))'])"
    assert "default_int_handler" in session.run(code)["stdout"]


@pytest.mark.parametrize("path", ["/nonexistent/python", "/etc/passwd"])
def test_missing_interpreter_is_named(open_session, path):
    with pytest.raises(ValueError, match=f"needs an interpreter at {path}"):
        open_session(f"python:{path}")


@pytest.mark.parametrize("name", ["python:", "python:relative", "python3", "python:/a\0b"])
def test_invalid_names(open_session, name):
    with pytest.raises(ValueError, match=r"python:/PATH"):
        open_session(name)
