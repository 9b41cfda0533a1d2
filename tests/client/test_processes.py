"""Commands of processes, their input, output and terminals."""

from __future__ import annotations

import os
import signal
from pathlib import Path, PurePosixPath

import pytest

from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym_server.protocol.processes import TerminalSize
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import eventually

ROT = bytes((value + 1) % 256 for value in range(256))


# Prints whether the memory of the interpreter has a byte string, given with each byte increased by 1, so that neither the code
# nor the search itself puts it there.
SEARCH_MEMORY = """
import re
wanted, rot, count = bytes.fromhex("{}"), bytes((value + 1) % 256 for value in range(256)), 0
for line in open("/proc/self/maps"):
    start, end, mode = re.match("([0-9a-f]+)-([0-9a-f]+) (....)", line).groups()
    if mode[:2] == "rw":
        with open("/proc/self/mem", "rb", 0) as memory:
            try:
                memory.seek(int(start, 16))
                count += memory.read(int(end, 16) - int(start, 16)).translate(rot).count(wanted)
            except OSError:
                pass
print(count > 0)
"""


def test_output_and_exit_code_are_returned(processes):
    result = processes.run(["sh", "-c", "printf out; printf err >&2; exit 3"])
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out", b"err")
    assert (result.signal, result.timed_out, result.dropped_stdout, result.dropped_stderr) == (None, False, 0, 0)


def test_shell_command_is_run_by_shell(processes):
    assert processes.run("echo $((1 + 2)) | tr 3 4").stdout == b"4\n"


def test_output_is_binary(processes):
    data = bytes(range(256)) * 1000
    assert processes.run(["cat"], stdin=data).stdout == data


def test_large_input_and_output_pass(processes):
    data = os.urandom(5_000_000)
    result = processes.run(["cat"], stdin=data)
    assert result.stdout == data


def test_stdin_is_empty_by_default(processes):
    assert processes.run(["cat"]).exit_code == 0


def test_unread_stdin_is_no_error(processes):
    assert processes.run(["true"], stdin=bytes(1_000_000)).exit_code == 0


@pytest.mark.parametrize(
    ("command", "exit_code", "message"),
    [
        (["no-such-program"], 127, "no-such-program: No such file or directory\n"),
        (["/no/such/program"], 127, "/no/such/program: No such file or directory\n"),
        (["/etc/passwd"], 126, "/etc/passwd: Permission denied\n"),
        (["/"], 126, "/: Permission denied\n"),
    ],
)
def test_command_that_cannot_be_executed_explains_itself(processes, command, exit_code, message):
    result = processes.run(command)
    assert (result.exit_code, result.stderr_text) == (exit_code, message)


def test_missing_working_directory_explains_itself(processes):
    result = processes.run("pwd", cwd="missing")
    assert result.exit_code == 127
    assert result.stderr_text.endswith("missing: No such file or directory\n")


def test_empty_arguments_are_kept(processes):
    assert processes.run(["printf", "[%s]", "", "a", ""], env={"EMPTY": ""}).stdout == b"[][a][]"


def test_working_directory_is_shared_with_interpreter(session, processes):
    session.run("import os; os.mkdir('sub'); open('sub/file', 'w').write('text')")
    assert processes.run("cat file", cwd="sub").stdout == b"text"
    processes.run("echo new > written")
    assert session.run("open('written').read()").stdout == "'new\\n'\n"


def test_environment_is_that_of_session(session, processes):
    names = ("HOME", "TMPDIR", "PWD", "PATH", "LANG")
    inside = session.run(f"import os; print([os.environ[name] for name in {names}])").stdout
    found = dict(line.split("=", 1) for line in processes.run(["env"]).stdout_text.splitlines())
    assert f"{[found[name] for name in names]}\n" == inside


def test_environment_variables_are_added(processes):
    value = "with spaces, = and \N{LATIN SMALL LETTER U WITH DIAERESIS}\n"
    assert processes.run('printf %s "$MINE"', env={"MINE": value}).stdout_text == value


def test_signal_that_ends_process_is_reported(processes):
    result = processes.run("kill -TERM $$; sleep 9")
    assert (result.exit_code, result.signal) == (128 + signal.SIGTERM, signal.SIGTERM)


def test_default_signal_dispositions_are_restored(processes):
    # Python ignores SIGPIPE, which child processes would inherit.
    assert processes.run("yes | head -1").stdout == b"y\n"
    assert processes.run("kill -INT $$; sleep 9").signal == signal.SIGINT


def test_output_limit_drops_and_counts(processes):
    result = processes.run("head -c 100000 /dev/zero; head -c 50 /dev/zero >&2", max_output_bytes=1000)
    assert (len(result.stdout), result.dropped_stdout) == (1000, 99_000)
    assert (len(result.stderr), result.dropped_stderr) == (50, 0)


def test_flood_is_bounded(session, processes):
    result = processes.run("yes", timeout=1, max_output_bytes=1 << 16)
    assert (len(result.stdout), result.timed_out) == (1 << 16, True)
    assert result.dropped_stdout > 1 << 20
    assert session.run("1 + 1").stdout == "2\n"


def test_output_arrives_as_it_is_written(processes):
    with processes.start("echo one; read line; echo got $line; read line", keep_stdin_open=True) as process:
        output = iter(process)
        assert next(output).stdout == b"one\n"
        process.write(b"two\n")
        assert next(output).stdout == b"got two\n"
        process.close_stdin()
        assert process.wait().stdout == b"one\ngot two\n"


def test_closed_stdin_is_refused(processes):
    with processes.start("sleep 5") as process:
        with pytest.raises(ProtocolError, match="Stdin of the process is closed"):
            process.write(b"x")
        process.kill()
        assert process.wait().signal == signal.SIGKILL


def test_last_output_is_kept(processes):
    result = processes.run("seq 1 20000; seq 1 100 >&2", max_output_bytes=1000, keep="last")
    complete = b"".join(b"%d\n" % number for number in range(1, 20_001))
    assert result.stdout == complete[-1000:]
    assert result.dropped_stdout == len(complete) - 1000
    assert (len(result.stderr), result.dropped_stderr) == (292, 0)


def test_output_that_is_not_kept_is_yielded(processes):
    with processes.start("seq 1 20000; echo err >&2") as process:
        process.keeps_stdout = False
        complete = b"".join(output.stdout for output in process)
        result = process.wait()
    assert complete == b"".join(b"%d\n" % number for number in range(1, 20_001))
    assert (result.stdout, result.dropped_stdout, result.stderr) == (b"", 0, b"err\n")
    assert process.received == {"stdout": len(complete), "stderr": 4}


@pytest.mark.every_provider
def test_terminal_is_controlling_terminal(processes):
    size = TerminalSize(rows=30, columns=100)
    with processes.start("test -t 0 && test -t 1 && stty size </dev/tty; read line; stty size", terminal=size) as process:
        output = iter(process)
        assert next(output).stdout == b"30 100\r\n"
        process.resize(rows=10, columns=20)
        process.write(b"\n")
        assert process.wait().stdout.endswith(b"10 20\r\n")


@pytest.mark.every_provider
def test_terminal_interrupts_by_control_character(processes):
    with processes.start("echo ready; sleep 60", terminal=TerminalSize()) as process:
        next(iter(process))
        process.write(b"\x03")
        assert process.wait().exit_code == 128 + signal.SIGINT


@pytest.mark.parametrize("line", [b"line\n", b"line"])
def test_terminal_input_ends_for_program_that_reads_it(processes, line):
    with processes.start("cat; echo next; cat", terminal=TerminalSize()) as process:
        process.write(line)
        process.close_stdin()
        assert eventually(lambda: b"next" in next(iter(process)).stdout)
        process.write(b"more\n")
        process.close_stdin()
        assert b"more" in process.wait().stdout


def test_terminal_has_type(processes):
    with processes.start("echo $TERM", terminal=TerminalSize()) as process:
        assert process.wait().stdout == b"xterm-256color\r\n"


def test_resize_requires_terminal(processes):
    with processes.start("sleep 5") as process:
        with pytest.raises(ProtocolError, match="no terminal"):
            process.resize(rows=1, columns=1)
        process.kill()


def test_arguments_do_not_reach_later_workers(session, processes):
    search = SEARCH_MEMORY.format(b"battery-staple".translate(ROT).hex())
    session.run("kept = b'-elpats-yrettab-'[::-1]")
    assert session.run(search).stdout == "True\n"
    assert processes.run("exit 3", env={"SECRET": "correct-battery-staple"}).exit_code == 3
    session.reset()
    assert session.run(search).stdout == "False\n"


def test_concurrent_large_requests_keep_their_streams(processes):
    def run(number):
        environment = {"LARGE": "x" * 100_000, "N": str(number)}
        assert processes.run(["echo", str(number)], env=environment).stdout == f"{number}\n".encode()

    check_side_by_side(run, range(16), at_once=16)


@pytest.mark.parametrize(
    "command",
    [
        "printf '%s.' a b",
        b"printf '%s.' a b",
        ["printf", "%s.", "a", "b"],
        ("printf", b"%s.", Path("a"), PurePosixPath("b")),
        Path("script"),
    ],
)
def test_commands_are_text_bytes_or_paths(processes, command):
    processes.run("printf '#!/bin/sh\nprintf a.b.' > script; chmod +x script")
    assert processes.run(command, env={"PATH": ".:/usr/bin:/bin"}).stdout == b"a.b."


@pytest.mark.parametrize("stdin", ["text", b"text", bytearray(b"text"), memoryview(b"text")])
def test_input_is_text_or_bytes(processes, stdin):
    assert processes.run(["cat"], stdin=stdin).stdout == b"text"


def test_variables_and_directory_are_text_bytes_or_paths(processes):
    processes.run("mkdir sub")
    variables = {"A": "a", b"B": b"b", "C": Path("/c")}
    for directory in ("sub", b"sub", Path("sub")):
        result = processes.run('echo "$A$B$C $(basename "$PWD")"', env=variables, cwd=directory)
        assert result.stdout == b"ab/c sub\n"


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (5, {}, "command= to be a command for the shell, a path, or a list of arguments, got int: 5"),
        (None, {}, "command= .* got NoneType"),
        ({"ls"}, {}, "command= .* got set"),
        ({"ls": 1}, {}, "command= .* got dict"),
        (bytearray(b"ls"), {}, "command= .* got bytearray"),
        (["sleep", 5], {}, r"command\[1\] to be text, bytes or a path, got int: 5"),
        (["echo", b"\xff"], {}, r"command\[1\] to be UTF-8"),
        (["echo", None], {}, r"command\[1\] .* got NoneType"),
        ("true", {"cwd": 5}, "cwd= to be text, bytes or a path, got int"),
        ("true", {"env": [("A", "b")]}, "env= to be a mapping of names to values, got list"),
        ("true", {"env": {"A": 1}}, r"env\['A'\] to be text, bytes or a path, got int: 1"),
        ("true", {"env": {1: "a"}}, "a name in env= .* got int"),
        ("true", {"stdin": 5}, "stdin= to be bytes or text, got int"),
        ("true", {"stdin": Path("file")}, r"stdin= .* got PosixPath: .*\. Pass the content of a file"),
        ("true", {"stdin": "\ud83d"}, "stdin= to be text that UTF-8 can encode"),
    ],
)
def test_messages_say_what_was_expected(processes, command, options, message):
    with pytest.raises(ConfigurationError, match=f"Expected {message}"):
        processes.start(command, **options)


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ([], {}),
        ("\ud83d", {}),
        ("true", {"stdin": "\ud83d"}),
        ("a\0b", {}),
        (["echo", "a\0b"], {}),
        ("true", {"env": {"A=B": "x"}}),
        ("true", {"env": {"A": "x\0"}}),
        ("true", {"env": {"": "x"}}),
        ("true", {"timeout": 0}),
        ("true", {"max_output_bytes": -1}),
        ("true", {"cwd": "a\0"}),
        ("true", {"user": "nobody"}),
        ("true", {"user": "no such user"}),
        ("true", {"terminal": {"rows": 0}}),
    ],
)
def test_invalid_arguments_are_refused(processes, command, options):
    with pytest.raises(ConfigurationError):
        processes.start(command, **options)
    assert processes.list() == []
