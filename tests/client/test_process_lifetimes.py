"""Processes that are killed, joined later, and run beside cells and other processes."""

from __future__ import annotations

import signal
import time

import pytest

from coding_gym.errors import ConfigurationError, ProtocolError
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import eventually, promptly

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


@pytest.mark.every_provider
def test_timeout_kills_process_and_descendants(processes):
    def check(command):
        with promptly():
            result = processes.run(command, timeout=0.5)
        assert (result.exit_code, result.timed_out) == (124, True)
        descendant = result.stdout_text.strip()
        assert descendant.isdigit()
        assert eventually(lambda: is_gone(processes, descendant))

    check_side_by_side(check, FAMILIES)


@pytest.mark.every_provider
def test_kill_ends_descendants(processes):
    def check(command):
        with processes.start(command) as process:
            descendant = next(iter(process)).stdout.decode().strip()
            assert not is_gone(processes, descendant)
            process.kill()
            assert process.wait().signal == signal.SIGKILL
        assert eventually(lambda: is_gone(processes, descendant))

    check_side_by_side(check, FAMILIES)


@pytest.mark.every_provider
def test_kill_ends_fugitive_daemon(session, processes):
    session.run(f"open('fugitive.py', 'w').write({FUGITIVE!r})")
    with processes.start("python3 fugitive.py & sleep 60") as process:
        assert eventually(lambda: session.run("import os; os.path.exists('beat')").stdout == "True\n")
        process.kill()
        process.wait()
    size = "import os; os.path.getsize('beat')"
    before = session.run(size).stdout
    assert session.run(f"import time; time.sleep(0.3); {size}").stdout == before


@pytest.mark.every_provider
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


def test_background_child_does_not_delay_exit(processes):
    with promptly():
        assert processes.run("sleep 60 & echo done").stdout == b"done\n"


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


def test_stream_of_last_output_continues_beyond_limit(processes):
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
    session.begin("import os, time\nwhile not os.path.exists('beside'): time.sleep(0.01)\n'cell'")
    assert processes.run("echo beside | tee beside").stdout == b"beside\n"
    assert session._session.wait(timeout=30).observation.stdout == "'cell'\n"


@pytest.mark.every_provider
def test_reset_ends_processes(session, processes):
    with processes.start("sleep 60") as process:
        session.reset()
        result = process.wait()
    assert (result.exit_code, result.signal, result.lost) == (137, signal.SIGKILL, "the session was reset")
    assert processes.list() == []


@pytest.mark.every_provider
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
    with processes.start("echo started; read line; echo survived", keep_stdin_open=True) as process:
        next(iter(process))
        session.run("import os, signal; os.kill(0, signal.SIGINT)")
        process.write(b"\n")
        assert process.wait().stdout == b"started\nsurvived\n"


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


@pytest.mark.every_provider
def test_process_cannot_reach_its_ancestors(processes):
    assert processes.run(["python3", "-c", REACH_ANCESTORS]).stdout == b"[]\n"
    assert processes.run("kill -9 $PPID").exit_code != 0
    assert processes.run("true").exit_code == 0


@pytest.mark.every_provider
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


def test_number_of_processes_is_limited(processes):
    started = [processes.start("sleep 60") for _ in range(64)]
    with pytest.raises(ProtocolError, match="runs 64 processes already"):
        processes.start("true")
    started[0].kill()
    started[0].wait()
    assert processes.run("echo free").stdout == b"free\n"


def test_many_processes_run_concurrently(processes):
    def run(number):
        assert processes.run(f"sleep 0.2; echo {number}").stdout == f"{number}\n".encode()

    check_side_by_side(run, range(20), at_once=20)


@pytest.mark.every_provider
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
