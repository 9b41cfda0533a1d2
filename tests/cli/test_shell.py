from __future__ import annotations

import re
import time

import pexpect
import pytest

from coding_gym.cli.shell_input import TerminalReader, is_complete_of, is_complete_python, is_complete_shell
from coding_gym_server.languages import find_language
from tests.cli.conftest import TOKEN, command_line, environment


@pytest.fixture
def terminal(served, tmp_path):
    def spawn() -> pexpect.spawn:
        program, *arguments = command_line(served, "shell")
        variables = environment(CODING_GYM_TOKEN=TOKEN, XDG_STATE_HOME=str(tmp_path), TERM="dumb")
        child = pexpect.spawn(program, arguments, env=variables, encoding="utf-8", timeout=30, dimensions=(24, 200))
        children.append(child)
        child.expect(">>> ")
        return child

    children: list[pexpect.spawn] = []
    yield spawn
    for child in children:
        child.close(force=True)


def answer(child: pexpect.spawn, *lines: str) -> str:
    """Type lines, and return what is printed before the next prompt."""
    for line in lines[:-1]:
        child.sendline(line)
        child.expect(r"\.\.\. ")
    child.sendline(lines[-1])
    child.expect(r"\r\n>>> ")
    return child.before.partition("\r\n")[2].replace("\r", "")


def test_terminal_session(terminal):
    child = terminal()
    assert answer(child, "x = 6") == ""
    assert answer(child, "x * 7") == "42"
    assert answer(child, "'a'") == "'a'"
    assert answer(child, "for i in range(2):", "    print(i)", "") == "0\n1"
    assert "ZeroDivisionError" in answer(child, "1 / 0")

    child.sendline("import time; print('begun'); time.sleep(60)")
    child.expect("begun\r\n")
    child.sendintr()
    child.expect("KeyboardInterrupt\r\n>>> ")
    assert answer(child, "x + 1") == "7"

    child.send("half a li")
    child.expect("half a li")
    time.sleep(0.2)  # until readline waits for the next key
    child.sendintr()
    child.expect("KeyboardInterrupt\r\n>>> ")
    assert "restarted" in answer(child, "import os; os._exit(3)")
    assert "NameError" in answer(child, "x")

    child.sendeof()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0


def test_history_is_kept_between_shells(terminal):
    first = terminal()
    answer(first, "'remember me'")
    first.sendline("exit")
    first.expect(pexpect.EOF)
    second = terminal()
    second.send("\x1b[A\x1b[A\n")
    second.expect("remember me'\r\n'remember me'")


def test_piped_statements_run_like_a_file(command):
    source = """\
x = 6
x * 7
'text'
def f():
    a = 1

    return a
f()
if x:
    print('yes')
else:
    print('no')
for i in range(2): print(i)
@staticmethod
def g(): pass
# a comment
y = (1,
     2)
y
import sys; print('err', file=sys.stderr)"""
    done = command("shell", stdin=source)
    assert done.stdout == "42\n'text'\n1\nyes\n0\n1\n(1, 2)\n"
    assert done.stderr == "err\n"
    assert done.returncode == 0


def test_exit_code_of_pipe_is_that_of_last_input(command):
    done = command("shell", stdin="1 / 0\n2\n")
    assert (done.stdout, done.returncode) == ("2\n", 0)
    assert "ZeroDivisionError" in done.stderr
    assert command("shell", stdin="2\n1 / 0\n").returncode == 1
    assert command("shell", stdin="").returncode == 0


def test_bash_session_keeps_its_state(command):
    done = command("shell", "--backend", "bash", stdin="x=3\ncd /usr\nfor i in 1 2; do\necho $i $x\ndone\npwd\nfalse\n")
    assert done.stdout == "1 3\n2 3\n/usr\n"
    assert done.returncode == 1
    assert "[exit code 1]" in done.stderr


def test_piped_program_is_one_input(command):
    if find_language("cpp").missing():
        pytest.skip("this machine lacks a compiler of C++")
    source = '#include <cstdio>\n\nint main() {\n  puts("hello");\n\n  return 3;\n}\n'
    done = command("shell", "--backend", "c++", stdin=source)
    assert (done.stdout, done.returncode) == ("hello\n", 1)
    assert "[exit code 3]" in done.stderr


def test_ctrl_d_ends_a_program_at_the_terminal(monkeypatch):
    typed = iter(["int main() {", "", "}", EOFError, EOFError])

    def read(_prompt):
        line = next(typed)
        if line is EOFError:
            raise EOFError
        return line

    monkeypatch.setattr("builtins.input", read)
    reader = TerminalReader(is_complete_of("cpp"))
    assert (reader.read(), reader.read()) == ("int main() {\n\n}\n", None)


def test_pictures_are_written_to_a_directory(command, tmp_path):
    done = command("shell", "--pictures", tmp_path, stdin="import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()\n")
    [path] = tmp_path.iterdir()
    assert path.read_bytes().startswith(b"\x89PNG")
    assert re.search(re.escape(f"[{path}]"), done.stdout)


@pytest.mark.parametrize(
    ("source", "is_complete"),
    [
        ("x = 1\n", True),
        ("def f():\n", False),
        ("def f():\n    pass\n", False),
        ("def f():\n    pass\n\n", True),
        ("(1,\n", False),
        ("'''a\n", False),
        ("x = \\\n", False),
        ("@property\n", False),
        ("1 +\n", True),  # an error, which the interpreter reports
        ("!ls\n", True),
        ("%time 1\n", True),
        ("%%bash\necho\n", False),
        ("%%bash\necho\n\n", True),
        ("# comment\n", True),
        ("\0\n", True),
    ],
)
def test_python_input_is_complete(source, is_complete):
    assert is_complete_python(source) is is_complete


@pytest.mark.parametrize(
    ("source", "is_complete"),
    [
        ("ls\n", True),
        ("for i in 1; do\n", False),
        ("for i in 1; do\necho\ndone\n", True),
        ("echo 'a\n", False),
        ("echo \\\n", False),
        ("cat <<X\na\n", False),
        ("cat <<X\na\nX\n", True),
        ("fi\n", True),  # an error, which bash reports
        ("f() {\n", False),
    ],
)
def test_shell_input_is_complete(source, is_complete):
    assert is_complete_shell(source) is is_complete
