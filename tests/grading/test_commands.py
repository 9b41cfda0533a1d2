"""The process that runs the cases of a compiled program, one after the other: no case changes how the next one ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import msgspec
import pytest

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.languages import find_language
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    Checker,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from coding_gym_server.remote_objects.program_messages import CommandEnded, NotStarted, RunCommand, Started
from tests.grading.judging import Judge

_LIMITS = GradingLimits(cpu_timeout=5.0, wall_timeout=30.0)

_NAMES = (
    "errno",
    "fcntl",
    "sched",
    "signal",
    "stdio",
    "stdlib",
    "string",
    "sys/resource",
    "sys/stat",
    "sys/wait",
    "time",
    "unistd",
)
_HEADERS = "\n".join(f"#include <{name}.h>" for name in _NAMES)

_LEFT_BEHIND = """
int main() {
  int number = 0;
  scanf("%d", &number);
  pid_t runner = getppid(), own = getpid();
  if (fork() == 0) {
    setsid();
    while (getppid() == own) usleep(100);
    for (;;) kill(runner, SIGNAL);
  }
  printf("%d\\n", number);
  return 0;
}
"""
"""Prints its input, and leaves a process behind that sends signals to the parent as soon as the program has ended."""


@pytest.fixture
def run(judge: Judge):
    """Function that grades a program in C with several cases; by default, it prints their numbers."""
    if find_language("c").missing():
        pytest.skip("this machine lacks a compiler of C")

    def grade(code: str, *cases: ProgramCase, limits: GradingLimits = _LIMITS, **options) -> Graded:
        cases = cases or tuple(ProgramCase(stdin=f"{number}\n", stdout=f"{number}\n") for number in range(6))
        tests = Programs(cases=cases, language="c", **options)
        return judge(Submission(code=f"#define _GNU_SOURCE\n{_HEADERS}\n{code}", tests=tests, limits=limits))

    return grade


def outcomes(graded: Graded) -> list[CaseOutcome]:
    assert graded.cases, graded.message
    return [case.outcome for case in graded.cases]


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", "SIGINT", "SIGCHLD", "SIGCONT"])
def test_end_of_the_process_concerns_no_other_case(run, signal):
    graded = run(_LEFT_BEHIND.replace("SIGNAL", signal))
    # It may end before its parent has reported that.
    allowed = (
        {CaseOutcome.PASSED}
        if signal in ("SIGCHLD", "SIGCONT")
        else {CaseOutcome.PASSED, CaseOutcome.KILLED, CaseOutcome.ERROR}
    )
    assert set(outcomes(graded)) <= allowed
    assert outcomes(run('int main() { int n; scanf("%d", &n); printf("%d\\n", n); }')) == [CaseOutcome.PASSED] * 6


def test_stopped_process_goes_on(run):
    limits = GradingLimits(cpu_timeout=5.0, wall_timeout=3.0)
    found = set(outcomes(run(_LEFT_BEHIND.replace("SIGNAL", "SIGSTOP"), limits=limits)))
    assert found <= {CaseOutcome.PASSED, CaseOutcome.TIMEOUT, CaseOutcome.NOT_RUN}


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_only_the_case_that_ends_its_process_fails(run, signal):
    code = (
        f'int main() {{ int n; scanf("%d", &n); if (n == 2) {{ kill(getppid(), {signal}); sleep(1); }} printf("%d\\n", n); }}'
    )
    found = outcomes(run(code, limits=GradingLimits(cpu_timeout=5.0, wall_timeout=3.0)))
    assert found[:2] == [CaseOutcome.PASSED] * 2
    if signal == "SIGKILL":
        assert found == [CaseOutcome.PASSED] * 2 + [CaseOutcome.KILLED] + [CaseOutcome.PASSED] * 3
    else:
        # The program has ended, but its parent could not report it.
        assert found[2:] == [CaseOutcome.TIMEOUT] + [CaseOutcome.NOT_RUN] * 3


def test_process_cannot_be_changed_or_read(run):
    code = """
#define TRY(call) errno = 0; if ((call) != -1) printf("%s ", #call)
int main() {
  int number;
  scanf("%d", &number);
  pid_t runner = getppid();
  struct rlimit none = {0, 0};
  TRY(prlimit(runner, RLIMIT_NOFILE, &none, 0));
  TRY(prlimit(runner, RLIMIT_DATA, &none, 0));
  TRY(setpriority(PRIO_PROCESS, runner, 19));
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(0, &cores);
  TRY(sched_setaffinity(runner, sizeof cores, &cores));
  const char *names[] = {"mem", "maps", "environ", "fd/0", "fd/200", "oom_score_adj", "cwd", "root"};
  for (int i = 0; i < 8; ++i) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", runner, names[i]);
    int opened = open(path, i == 5 ? O_WRONLY : O_RDONLY);
    if (opened >= 0) printf("%s ", path);
  }
  printf("%d\\n", number);
  return 0;
}
"""
    graded = run(code)
    assert (graded.stdout, graded.outcome) == ("", VerdictOutcome.PASSED)


def test_cases_share_no_streams_limits_or_directory(run):
    code = """
int main() {
  int number;
  scanf("%d", &number);
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur == 7 || (fcntl(1, F_GETFL) & O_NONBLOCK) || access("left", F_OK) == 0) return 1;
  for (int n = 3; n < 300; ++n) if (fcntl(n, F_GETFD) != -1) return n;
  fclose(fopen("left", "w"));
  files.rlim_cur = 7;
  setrlimit(RLIMIT_NOFILE, &files);
  setpgid(0, 0);
  for (int n = 0; n < 3; ++n) fcntl(n, F_SETFL, O_NONBLOCK);
  printf("%d\\n", number);
  fflush(stdout);
  chmod(".", 0);
  return 0;
}
"""
    graded = run(code)
    assert outcomes(graded) == [CaseOutcome.PASSED] * 6, graded.cases


def test_output_of_each_case_is_its_own(run):
    size = 300_000
    code = 'int main() { int n; scanf("%d", &n); for (int i = 0; i < SIZE; ++i) putchar(97 + n); fprintf(stderr, "%d", n); }'
    cases = [ProgramCase(stdin=str(number), stdout=chr(97 + number) * size) for number in range(4)]
    assert outcomes(run(code.replace("SIZE", str(size)), *cases)) == [CaseOutcome.PASSED] * 4
    assert (
        run('int main() { int n; return scanf("%d", &n) != EOF; }', *[ProgramCase(stdout="")] * 3).outcome
        is VerdictOutcome.PASSED
    )


def test_time_is_that_of_each_case(run):
    code = """
int main() {
  int number;
  scanf("%d", &number);
  clock_t until = clock() + CLOCKS_PER_SEC * 3 / 10;
  if (fork() == 0) { while (clock() < until / 2); _exit(0); }
  while (clock() < until);
  wait(0);
  printf("%d\\n", number);
  return 0;
}
"""
    graded = run(code, limits=GradingLimits(cpu_timeout=1.0, wall_timeout=30.0))
    assert outcomes(graded) == [CaseOutcome.PASSED] * 6
    assert 6 * 0.3 < graded.cpu_seconds < 6 * 1.0


def test_memory_is_that_of_each_case(run):
    """A case that is killed has not used what the compiler has, or the case before."""
    code = """
int main() {
  int number;
  scanf("%d", &number);
  printf("%d\\n", number);
  fflush(stdout);
  volatile char *all = malloc(60 << 20);
  for (int i = 0; number == 0 && i < 60 << 20; i += 512) all[i] = 1;
  if (number == 1) for (;;);
  return 0;
}
"""
    limits = GradingLimits(cpu_timeout=0.5, wall_timeout=30.0, max_memory_bytes=96 << 20)
    graded = run(code, limits=limits)
    assert outcomes(graded) == [CaseOutcome.PASSED, CaseOutcome.TIMEOUT] + [CaseOutcome.NOT_RUN] * 4
    assert graded.cases[0].memory_bytes
    assert 60 << 20 < graded.cases[0].memory_bytes < 96 << 20
    assert graded.cases[1].memory_bytes is None


def test_memory_beyond_a_limit_that_was_raised_counts(run):
    code = """
int main() {
  struct rlimit data;
  getrlimit(RLIMIT_DATA, &data);
  data.rlim_cur = data.rlim_max;
  setrlimit(RLIMIT_DATA, &data);
  size_t size = 400 << 20;
  volatile char *all = malloc(size);
  if (all == 0) return 1;
  for (size_t i = 0; i < size; i += 512) all[i] = 1;
  return 0;
}
"""
    limits = GradingLimits(cpu_timeout=5.0, wall_timeout=30.0, max_memory_bytes=32 << 20)
    assert outcomes(run(code, *[ProgramCase(stdout="")] * 2, limits=limits)) == [CaseOutcome.MEMORY] * 2


def test_checkers_run_between_cases(run):
    checker = Checker(
        language="c",
        code='#include <stdio.h>\nint main(int n, char **names) { int in, out; fscanf(fopen(names[1], "r"), "%d", &in);\n'
        '  fscanf(fopen(names[2], "r"), "%d", &out); return in != out; }',
    )
    graded = run(_LEFT_BEHIND.replace("SIGNAL", "SIGKILL"), checker=checker)
    assert set(outcomes(graded)) <= {CaseOutcome.PASSED, CaseOutcome.KILLED}
    assert not graded.checker_failed


_RUN_COMMANDS = """
import socket, sys
from coding_gym_server.remote_objects.program_messages import RunCommand
from coding_gym_server.submission.commands import run_commands
run_commands(RunCommand(tuple(sys.argv[3:]), ""), socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
"""


def test_commands_end_as_in_a_shell(tmp_path):
    (tmp_path / "text").write_text("")
    ours, theirs = socket.socketpair()
    channel = Channel(ours, msgspec.msgpack.Decoder(Started | NotStarted | CommandEnded))
    with theirs:
        command = [sys.executable, "-c", _RUN_COMMANDS, str(theirs.fileno()), str(tmp_path), "nope-ü"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()])

    def ended() -> int:
        assert channel.receive() == Started()
        message = channel.receive()
        assert isinstance(message, CommandEnded)
        return os.waitstatus_to_exitcode(message.status)

    assert ended() == 127
    for arguments, exit_code, printed in (
        (("./text",), 126, b"./text: Permission denied\n"),
        (("sh", "-c", "cat; pwd; exit 5"), 5, f"input{tmp_path}\n".encode()),
        (("sh", "-c", "kill -9 $$"), -9, b""),
    ):
        read, write = os.pipe()
        channel.send(RunCommand(arguments, "input", has_streams=True), (write, write))
        os.close(write)
        assert ended() == exit_code
        with open(read, "rb") as file:
            assert file.read() == printed
    channel.close()
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr.decode()) == (1, b"", "nope-ü: No such file or directory\n")
