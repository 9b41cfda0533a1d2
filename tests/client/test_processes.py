"""Processes of a session, from start to exit."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path, PurePosixPath

import pytest

from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym_server.protocol.processes import TerminalSize
from tests.support.sandbox_faults import eventually

pytestmark = pytest.mark.every_provider(always=False)

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


@pytest.fixture
def processes(session):
    session.reset()
    return session.http.processes


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


# Each prints the process id of a descendant and keeps running: one in another session, an orphan, an orphan in another session.
FAMILIES = [
    "setsid sleep 60 & echo $!; sleep 61",
    "(sleep 60 & echo $!); sleep 61",
    "setsid sh -c 'sleep 60 & echo $!'; sleep 61",
]

# Moves to another process id and session all the time.
FUGITIVE = """
import os, time
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
    open("beat", "a").write(".")
    time.sleep(0.002)
"""


def is_gone(processes, pid):
    return not processes.run(f"grep -v ') Z' /proc/{pid}/stat").stdout


@pytest.mark.parametrize("command", FAMILIES)
def test_timeout_kills_process_and_descendants(processes, command):
    started = time.monotonic()
    result = processes.run(command, timeout=0.5)
    assert time.monotonic() - started < 10
    assert (result.exit_code, result.timed_out) == (124, True)
    descendant = result.stdout_text.strip()
    assert descendant.isdigit()
    assert eventually(lambda: is_gone(processes, descendant))


@pytest.mark.parametrize("command", FAMILIES)
def test_kill_ends_descendants(processes, command):
    with processes.start(command) as process:
        descendant = next(iter(process)).stdout.decode().strip()
        assert not is_gone(processes, descendant)
        process.kill()
        assert process.wait().signal == signal.SIGKILL
    assert eventually(lambda: is_gone(processes, descendant))


def test_kill_ends_fugitive_daemon(session, processes):
    session.run(f"open('fugitive.py', 'w').write({FUGITIVE!r})")
    with processes.start("python3 fugitive.py & sleep 60") as process:
        assert eventually(lambda: session.run("import os; os.path.exists('beat')").stdout == "True\n")
        process.kill()
        process.wait()
    size = "import os; os.path.getsize('beat')"
    before = session.run(size).stdout
    assert session.run(f"import time; time.sleep(0.3); {size}").stdout == before


def test_kill_spares_other_processes(session, processes):
    session.run("kept = 1")
    with processes.start(FAMILIES[2]) as other, processes.start("sleep 60") as process:
        daemon = next(iter(other)).stdout.decode().strip()
        process.kill()
        assert process.wait().signal == signal.SIGKILL
        assert not is_gone(processes, daemon)
        other.signal(signal.SIGTERM)
        assert other.wait().signal == signal.SIGTERM
        assert not is_gone(processes, daemon)
    assert session.run("kept").stdout == "1\n"


def test_output_limit_drops_and_counts(processes):
    result = processes.run("head -c 100000 /dev/zero; head -c 50 /dev/zero >&2", max_output_bytes=1000)
    assert (len(result.stdout), result.dropped_stdout) == (1000, 99_000)
    assert (len(result.stderr), result.dropped_stderr) == (50, 0)


def test_flood_is_bounded(session, processes):
    result = processes.run("yes", timeout=1, max_output_bytes=1 << 16)
    assert (len(result.stdout), result.timed_out) == (1 << 16, True)
    assert result.dropped_stdout > 1 << 20
    assert session.run("1 + 1").stdout == "2\n"


def test_background_child_does_not_delay_exit(processes):
    started = time.monotonic()
    assert processes.run("sleep 30 & echo done").stdout == b"done\n"
    assert time.monotonic() - started < 10


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


def test_left_process_can_be_joined(processes):
    with processes.start("echo before; read line; echo after $line", keep_stdin_open=True) as process:
        pass
    [info] = processes.list()
    assert (info.id, info.pid, info.result) == (process.id, process.pid, None)
    process.write(b"joined\n")
    with processes.join(process.id) as joined:
        assert joined.wait().stdout == b"before\nafter joined\n"
    # Also after the process has exited.
    with processes.join(process.id) as joined:
        assert joined.wait().exit_code == 0
    [info] = processes.list()
    assert info.result.exit_code == 0


def test_stream_continues_after_received_bytes(processes):
    command = "printf 12345; printf abc >&2; read line; printf 67890; printf def >&2"
    with processes.start(command, keep_stdin_open=True) as process:
        output = iter(process)
        while process.received != {"stdout": 5, "stderr": 3}:
            next(output)
    with processes.join(process.id, **process.received) as joined:
        joined.write(b"\n")
        result = joined.wait()
    assert (result.stdout, result.stderr) == (b"67890", b"def")
    assert (result.dropped_stdout, result.dropped_stderr) == (0, 0)
    assert joined.received == {"stdout": 10, "stderr": 6}
    # Also after the exit, in the middle, and beyond the end.
    assert processes.join(process.id, stdout=3, stderr=6).wait().stdout == b"4567890"
    assert processes.join(process.id, stdout=99).wait().stdout == b""


@pytest.mark.parametrize("offsets", [{"stdout": -1}, {"stderr": "x"}, {"stdout": 10**20}])
def test_invalid_offsets_are_refused(processes, offsets):
    process = processes.start("true")
    process.wait()
    with pytest.raises(ConfigurationError, match="to be a number of bytes"):
        processes.join(process.id, **offsets)


def test_last_output_is_kept(processes):
    result = processes.run("seq 1 20000; seq 1 100 >&2", max_output_bytes=1000, keep="last")
    complete = b"".join(b"%d\n" % number for number in range(1, 20_001))
    assert result.stdout == complete[-1000:]
    assert result.dropped_stdout == len(complete) - 1000
    assert (len(result.stderr), result.dropped_stderr) == (292, 0)


def test_stream_of_last_output_goes_on_beyond_limit(processes):
    # Each line is waited for, so that none is lost.
    command = "for n in $(seq 100); do read line; echo $n; done"
    with processes.start(command, keep_stdin_open=True, max_output_bytes=10, keep="last") as process:
        output = iter(process)
        seen = b""
        for _ in range(100):
            process.write(b"\n")
            seen += next(output).stdout
        result = process.wait()
    assert seen == b"".join(b"%d\n" % number for number in range(1, 101))
    assert (result.stdout, result.dropped_stdout) == (seen[-10:], len(seen) - 10)


def test_late_client_learns_what_it_has_missed(processes):
    with processes.start("seq 1000; touch written; sleep 60", max_output_bytes=20, keep="last") as process:
        pass
    assert eventually(lambda: processes.run("test -e written").exit_code == 0)
    with processes.join(process.id) as joined:
        event = next(iter(joined))
        assert (event.stdout[-9:], event.skipped_stdout) == (b"999\n1000\n", 3893 - 20)
        joined.kill()
        result = joined.wait()
    assert result.dropped_stdout + len(result.stdout) == 3893


def test_unknown_process_is_not_found(processes):
    with pytest.raises(ProtocolError, match="Process 0123 not found"):
        processes.join("0123")


def test_process_runs_beside_cell(session, processes):
    results = []
    thread = threading.Thread(target=lambda: results.append(session.run("import time; time.sleep(1); 'cell'").stdout))
    thread.start()
    started = time.monotonic()
    assert processes.run("echo beside").stdout == b"beside\n"
    assert time.monotonic() - started < 0.9
    thread.join()
    assert results == ["'cell'\n"]


def test_reset_ends_processes(session, processes):
    with processes.start("sleep 60") as process:
        session.reset()
        result = process.wait()
    assert (result.exit_code, result.signal, result.lost) == (137, signal.SIGKILL, "the session was reset")
    assert processes.list() == []


def test_death_of_interpreter_ends_processes(session, processes):
    with processes.start("echo before; sleep 60") as process:
        next(iter(process))
        session.run("import os; os.kill(os.getpid(), 9)")
        result = process.wait()
    assert (result.stdout, result.signal) == (b"before\n", signal.SIGKILL)
    assert "interpreter was killed" in result.lost
    [info] = processes.list()
    assert info.result.lost == result.lost
    assert processes.run("echo after").stdout == b"after\n"


def test_killed_process_is_not_lost(processes):
    with processes.start("sleep 60") as process:
        process.kill()
        result = process.wait()
    assert (result.signal, result.lost) == (signal.SIGKILL, None)


def test_interrupt_of_cell_spares_process(session, processes):
    with processes.start("sleep 1; echo survived") as process:
        session.run("import os, signal; os.kill(0, signal.SIGINT)")
        assert process.wait().stdout == b"survived\n"


REACH_ANCESTORS = """
import os
pid, reached = os.getppid(), []
for ancestor in ("shim", "spawner", "root"):
    for name in ("mem", "environ", "fd/0"):
        try:
            os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
            reached.append((ancestor, name))
        except OSError:
            pass
    try:
        os.kill(pid, 0)
        reached.append((ancestor, "kill"))
    except OSError:
        pass
    pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
print(reached)
"""


def test_process_cannot_reach_its_ancestors(processes):
    assert processes.run(["python3", "-c", REACH_ANCESTORS]).stdout == b"[]\n"
    assert processes.run("kill -9 $PPID").exit_code != 0
    assert processes.run("true").exit_code == 0


def test_cell_cannot_signal_spawner(session, processes):
    processes.run("true")
    session.run("import os; root = os.getppid(); children = open(f'/proc/{root}/task/{root}/children').read().split()")
    session.run("[spawner] = [int(pid) for pid in children if int(pid) != os.getpid()]")
    assert "PermissionError" in session.run("os.kill(spawner, 9)").stderr
    assert "PermissionError" in session.run("open(f'/proc/{spawner}/mem', 'rb')").stderr


def test_spawner_starts_with_first_program(session, processes):
    count = "import os; root = os.getppid(); len(open(f'/proc/{root}/task/{root}/children').read().split())"
    assert session.run(count).stdout == "1\n"
    for _ in range(3):
        processes.run("true")
        assert session.run(count).stdout == "2\n"
    session.reset()
    assert session.run(count).stdout == "1\n"


def test_process_has_priority_and_rank_of_cells(session, processes):
    code = "import os; print(os.nice(0), open('/proc/self/oom_score_adj').read().strip())"
    assert processes.run(["python3", "-c", code]).stdout_text == session.run(code).stdout


def test_terminal_is_controlling_terminal(processes):
    size = TerminalSize(rows=30, columns=100)
    with processes.start("test -t 0 && test -t 1 && stty size </dev/tty; read line; stty size", terminal=size) as process:
        output = iter(process)
        assert next(output).stdout == b"30 100\r\n"
        process.resize(rows=10, columns=20)
        process.write(b"\n")
        assert process.wait().stdout.endswith(b"10 20\r\n")


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


def test_finished_output_is_forgotten_beyond_budget(processes):
    for _ in range(6):
        assert len(processes.run("head -c 16000000 /dev/zero").stdout) == 16_000_000
    assert 1 <= len(processes.list()) <= 4


def test_output_of_descendants_after_exit_is_discarded(processes):
    with processes.start("(sleep 0.3; echo late) & echo now") as process:
        assert process.wait().stdout == b"now\n"
    time.sleep(0.6)
    with processes.join(process.id) as joined:
        assert joined.wait().stdout == b"now\n"


def test_arguments_do_not_reach_later_workers(session, processes):
    search = SEARCH_MEMORY.format(b"battery-staple".translate(ROT).hex())
    session.run("kept = b'-elpats-yrettab-'[::-1]")
    assert session.run(search).stdout == "True\n"
    assert processes.run("exit 3", env={"SECRET": "correct-battery-staple"}).exit_code == 3
    session.reset()
    assert session.run(search).stdout == "False\n"


def test_concurrent_large_requests_keep_their_streams(processes):
    results = {}

    def run(number):
        results[number] = processes.run(["echo", str(number)], env={"LARGE": "x" * 100_000, "N": str(number)}).stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"{number}\n".encode() for number in range(16)}


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


def test_number_of_processes_is_limited(processes):
    started = [processes.start("sleep 60") for _ in range(64)]
    with pytest.raises(ProtocolError, match="runs 64 processes already"):
        processes.start("true")
    started[0].kill()
    started[0].wait()
    assert processes.run("echo free").stdout == b"free\n"


def test_many_processes_run_concurrently(processes):
    results = {}

    def run(number):
        results[number] = processes.run(f"sleep 0.2; echo {number}").stdout

    threads = [threading.Thread(target=run, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: f"{number}\n".encode() for number in range(20)}


def test_processes_of_closed_session_are_gone(connect, sandbox):
    session = connect(sandbox)
    session.reset()
    process = session.http.processes.start("sleep 60")
    processes = session.http.processes
    session.close()
    assert process.wait().lost == "the session was closed"
    with pytest.raises(ProtocolError, match="not found"):
        processes.list()


def test_sessions_see_only_their_processes(open_session):
    first, second = open_session(), open_session()
    first.reset()
    second.reset()
    with first.http.processes.start("sleep 5") as process:
        with pytest.raises(ProtocolError, match="not found"):
            second.http.processes.join(process.id)
        process.kill()
    assert second.http.processes.list() == []
