"""Namespaces of sessions: what does not exist in one cannot be attacked. Each attack is made in every form of code."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from coding_gym import CodeInterpreter
from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import ProgramCase, Programs, Submission, VerdictOutcome
from conftest import TestSession
from tests.grading.judging import Judge
from tests.security.attack import TOOLS
from tests.support.program_requests import client_of, post_program
from tests.support.sandbox_processes import server_of, zygote_of

pytestmark = pytest.mark.every_provider

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="requires root, to read the namespaces of others")
KINDS = ("user", "pid", "net", "mnt", "ipc", "uts")
MARKER = "3457"
"""Argument of a process of the victim, which no other session lists."""

Run = Callable[[str], str]


class Place(NamedTuple):
    """A sandbox with code in each form.

    Attributes:
        sandbox: The sandbox.
        forms: Functions that run a program and return what it has printed, by the names of the forms.
        victim: A session that is attacked.
    """

    sandbox: Sandbox
    forms: dict[str, Run]
    victim: TestSession

    def see(self, form: str, code: str) -> object:
        """Return what a program of a form has found: the value of its variable ``found``."""
        return ast.literal_eval(self.forms[form](f"{TOOLS}\n{code}\nprint(repr(found))"))


FORMS = ("environment", "another", "process", "fork", "context", "another context", "submission", "tests", "program")

ALL = {*KINDS}
COMMON = {
    ("environment", "process"): ALL,
    ("context", "another context"): {"ipc"},
}
"""Namespaces that two forms have in common."""
ONE_AFTER_THE_OTHER = {("submission", "program")}
"""Forms that the same grading worker may run."""


@pytest.fixture(scope="module")
def place(provider: str) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        interpreter = stack.enter_context(CodeInterpreter(provider=provider, preload=(), sessions=8))
        sandbox = interpreter.sandbox
        assert sandbox is not None
        isolation = sandbox.health()["isolation"]
        if not isolation["session_mounts"]:
            pytest.skip(isolation["shared_files_reason"])

        def begin(fork: str | None = None) -> TestSession:
            session = stack.enter_context(contextlib.closing(TestSession(sandbox)))
            if fork is None:
                session.reset(seed=1)
            else:
                session._session.ask_restore(fork)
                session._session.wait(timeout=30)
            return session

        environment, another, victim = begin(), begin(), begin()
        (ticket,) = environment._session.fork(1)
        fork = begin(ticket)
        judge = Judge(environment._session)
        http = stack.enter_context(client_of(sandbox))
        contexts = [interpreter.contexts.create() for _ in range(2)]

        def in_process(code: str) -> str:
            result = environment.http.processes.run(["python3", "-c", code])
            assert result.exit_code == 0, result.stderr
            return result.stdout.decode()

        def in_context(number: int, code: str) -> str:
            execution = interpreter.execute(code, context=contexts[number])
            assert execution.error is None, execution.error
            return execution.stdout

        def in_session(session: TestSession, code: str) -> str:
            seen = session.run(code)
            assert seen.exit_code == 0, seen.stderr
            return seen.stdout

        def in_submission(code: str) -> str:
            return judge(Submission(code=code, tests=Programs(cases=(ProgramCase(stdout="what no attack prints"),)))).stdout

        def in_tests(code: str) -> str:
            wrapped = (
                f"with contextlib.redirect_stdout(io.StringIO()) as out: exec({code!r}, {{}})\nassert False, out.getvalue()"
            )
            graded = judge.asserts("", f"import contextlib, io\n{wrapped}")
            assert graded.outcome is VerdictOutcome.FAILED, graded
            return graded.cases[0].message.rpartition("AssertionError: ")[2].strip()

        def in_program(code: str) -> str:
            answer = post_program(http, {"code": code, "language": "python"}).json()["run_result"]
            assert answer["return_code"] == 0, answer
            return answer["stdout"]

        forms: dict[str, Run] = {
            "environment": lambda code: in_session(environment, code),
            "another": lambda code: in_session(another, code),
            "process": in_process,
            "fork": lambda code: in_session(fork, code),
            "context": lambda code: in_context(0, code),
            "another context": lambda code: in_context(1, code),
            "submission": in_submission,
            "tests": in_tests,
            "program": in_program,
        }
        assert (*forms,) == FORMS
        sleeping = stack.enter_context(victim.http.processes.start(["sleep", MARKER]))
        prepared = victim.run(f"{TOOLS}\n{VICTIM}")
        assert prepared.exit_code == 0, prepared.stderr
        yield Place(sandbox, forms, victim)
        assert ast.literal_eval(victim.run("print(repr((kept, [s.fileno() > 0 for s in sockets])))").stdout) == (
            "kept",
            [True] * 5,
        )
        assert any(info.id == sleeping.id and info.result is None for info in victim.http.processes.list())
        sleeping.kill()


VICTIM = """
kept = "kept"
sockets = [socket.socket(family, kind) for family in (socket.AF_INET, socket.AF_INET6) for kind in (1, 2)]
for one in sockets:
    one.bind(("127.0.0.1" if one.family == socket.AF_INET else "::1", 4321))
sockets.append(socket.socket(socket.AF_UNIX))
sockets[-1].bind("\\0victim")
for one in sockets:
    if one.type == 1: one.listen()
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
netlink.bind((4321, 0))
"""

ATTACKS = {
    "processes of others": f"""
found = [path for path in glob.glob("/proc/[0-9]*/cmdline") if b"{MARKER[:2]}" b"{MARKER[2:]}" in open(path, "rb").read()]
""",
    "numbers of processes": """
def own(): return {int(path.split("/")[-1]) for path in glob.glob("/proc/[0-9]*/task/[0-9]*")}
before = own()
opened = {n for n in range(1, 5001) if result_of(lambda: os.close(os.pidfd_open(n))) != "ESRCH"}
found = sorted(opened - before - own())
""",
    # The parent of a fork's interpreter is outside of its pid namespace: 0.
    "signals": """
numbers = [(pid, number) for pid in {1, os.getppid()} - {0} for number in (0, 9, 15)]
found = [(pid, number) for pid, number in numbers if attempt(lambda: os.kill(pid, number)) == "done"]
""",
    "signals to any number": """
def own(): return {int(path.split("/")[-1]) for path in glob.glob("/proc/[0-9]*/task/[0-9]*")}
before = own()
found = [n for n in range(2, 5001) if n not in before and attempt(lambda: os.kill(n, 0)) != "ESRCH" and n not in own()]
""",
    "memory and tracing": """
found = [
    (pid, name)
    for pid in {1, os.getppid()} - {0}
    for name, action in {
        "trace": lambda: call("ptrace", 16, pid, 0, 0), "seize": lambda: call("ptrace", 0x4206, pid, 0, 0),
        "memory": lambda: open(f"/proc/{pid}/mem", "r+b"), "environment": lambda: open(f"/proc/{pid}/environ").read(),
        "root": lambda: os.listdir(f"/proc/{pid}/root/"), "descriptors": lambda: os.listdir(f"/proc/{pid}/fd"),
        "namespace": lambda: os.readlink(f"/proc/{pid}/ns/mnt"),
    }.items()
    if attempt(action) == "done"
]
""",
    "lists of sockets": """
ports = {f":{4321:04X}"}
found = [line for name in ("tcp", "tcp6", "udp", "udp6") for line in open(f"/proc/net/{name}") if line.split()[1][-5:] in ports]
found += [line for line in open("/proc/net/unix") if "victim" in line or "server.sock" in line]
found += [line for line in open("/proc/net/netlink") if line.split()[2] == "4321"]
""",
    "sockets of others": """
there = [(socket.AF_INET, 1, ("127.0.0.1", 4321)), (socket.AF_INET6, 1, ("::1", 4321)), (socket.AF_UNIX, 1, chr(0) + "victim")]
there += [(socket.AF_INET, 2, ("127.0.0.1", 4321)), (socket.AF_INET6, 2, ("::1", 4321))]
def reach(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(5)
        one.connect(address)
        # Only the answer to a datagram tells that nobody has received it.
        one.send(b"x")
        one.send(b"x")
found = [address for family, kind, address in there if attempt(lambda: reach(family, kind, address)) != "ECONNREFUSED"]
def bind_netlink():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as one: one.bind((4321, 0))
# The number is taken in the namespace of the victim only.
found += [] if attempt(bind_netlink) == "done" else ["netlink"]
""",
    "settings of the kernel": """
paths = ("sys/kernel/hostname", "sys/kernel/core_pattern", "sys/net/ipv4/ip_forward", "sys/vm/drop_caches", "sysrq-trigger",
         "sys/user/max_inotify_instances", "irq/default_smp_affinity")
paths = [*(f"/proc/{path}" for path in paths), "/sys/kernel/uevent_helper"]
found = [path for path in paths if attempt(lambda: os.open(path, os.O_WRONLY)) == "done"]
options = {line.split()[4]: line.split()[5].split(",") for line in open("/proc/self/mountinfo")}
read_only = ("/proc/sys", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/sysrq-trigger", "/sys")
found += [path for path in read_only if os.path.exists(path) and "ro" not in options.get(path, [])]
""",
    "masked paths": """
masked = ("acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "scsi", "sched_debug", "timer_list", "timer_stats")
masked = [*(f"/proc/{name}" for name in masked), "/sys/firmware", "/sys/devices/virtual/powercap"]
def content(path): return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(9)
found = [path for path in masked if os.path.exists(path) and result_of(lambda: content(path)) not in ([], b"", "EACCES")]
""",
    "directories of the server": """
directories = ("/workspaces", "/run/workspaces", "/run/coding-gym")
found = [path for path in directories if result_of(lambda: os.listdir(path)) not in ([], "EACCES", "ENOENT")]
names = ("/run/coding-gym/token", "/run/coding-gym/server.sock", SOCKET, os.path.dirname(SOCKET) + "/token")
found += [path for path in names if result_of(lambda: os.stat(path)) not in ("EACCES", "ENOENT")]
# Of all mounts, only the session's own can be changed.
own = ("/proc", "/sys/firmware", "/sys/devices/virtual/powercap", "/dev/pts", "/dev/ptmx", "/dev/shm", "/tmp", "/home/user")
own += ("/mnt", "/data", "/run/beside/")
last = {line.split()[4]: line.split()[5] for line in open("/proc/self/mountinfo")}
found += [path for path, options in last.items() if not options.startswith("ro") and not path.startswith(own)]
""",
    "namespaces and mounts": """
NAMES = os.listdir("/proc/self/ns")
found = [
    name
    for name, action in {
        **{f"unshare {kind:x}": lambda kind=kind: call("unshare", kind) for kind in (0x10000000, 0x20000, 0x40000000)},
        **{f"join {name}": lambda name=name: call("setns", os.open(f"/proc/self/ns/{name}", os.O_RDONLY), 0) for name in NAMES},
        "umount": lambda: call("umount2", b"/proc", 2),
        "host name": lambda: socket.sethostname("x"),
    }.items()
    if attempt(action) == "done"
]
""",
}


@ROOT
def test_namespaces_are_different(place: Place) -> None:
    look = f"found = {{kind: os.readlink(f'/proc/self/ns/{{kind}}') for kind in {KINDS}}}"
    seen = {form: place.see(form, look) for form in FORMS}
    outside = {
        "server": server_of(place.sandbox).pid,
        "zygote": zygote_of(place.sandbox).pid,
        "tests of this suite": os.getpid(),
    }
    for name, pid in outside.items():
        seen[name] = {kind: os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS}
    common = {
        pair: {kind for kind in KINDS if seen[pair[0]][kind] == seen[pair[1]][kind]}
        for pair in itertools.combinations(seen, 2)
        if not {*pair} <= outside.keys() and pair not in ONE_AFTER_THE_OTHER
    }
    assert {pair: kinds for pair, kinds in common.items() if kinds} == COMMON


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_of_others_can_be_named(place: Place, attack: str) -> None:
    code = f"SOCKET = {place.sandbox.address.socket_path!r}\n{ATTACKS[attack]}"
    found = {form: place.see(form, code) for form in FORMS}
    assert {form: names for form, names in found.items() if names} == {}


def test_signals_to_all_reach_no_other_session(place: Place) -> None:
    """The fixture checks the victim at the end."""
    strike = "signal.signal(15, signal.SIG_IGN)\nfound = attempt(lambda: os.kill(-1, 15)) and []"
    assert [form for form in FORMS if place.see(form, strike)] == []
    assert place.victim.run("print(kept)").stdout == "kept\n"


EXHAUST = """
kept_open, found = [], None
try:
    while len(kept_open) < LIMIT: kept_open.append(OPEN)
except OSError as error:
    found = errno.errorcode[error.errno]
found = (len(kept_open), found)
"""


def exhaust(opening: str, limit: int) -> str:
    return EXHAUST.replace("OPEN", opening).replace("LIMIT", str(limit))


def test_each_form_has_its_terminals(place: Place) -> None:
    seen = {form: place.see(form, exhaust("os.openpty()", 100)) for form in FORMS}
    # The process has those of its session, all of which are in use.
    assert seen.pop("process") == (0, "ENOSPC")
    # Tests need none.
    assert seen.pop("tests") == (0, "EACCES")
    assert seen == dict.fromkeys(seen, (64, "ENOSPC"))


def test_directory_watches_of_one_session_are_not_those_of_another(place: Place) -> None:
    """All sessions but one use up their instances; the last one still gets some."""
    watch = exhaust("call('inotify_init1', os.O_CLOEXEC)", 4000)
    seen = {form: place.see(form, watch) for form in FORMS}
    # The processes and forks of a session have a part of those of the session, which it has used up.
    assert [seen.pop(form) for form in ("process", "fork")] == [(0, "EMFILE")] * 2
    assert {error for _, error in seen.values()} == {"EMFILE"}
    assert {form: count for form, (count, _) in seen.items() if count == 0} == {}
