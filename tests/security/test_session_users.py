"""Sessions with a user, mounts and a file system of their own: no trace of others."""

from __future__ import annotations

import contextlib

import pytest

from coding_gym import CodeInterpreter
from coding_gym_server.protocol import Outcome
from coding_gym_server.protocol.processes import TerminalSize

pytestmark = pytest.mark.every_provider


@pytest.fixture(scope="module")
def box(provider, sandbox_of):
    box = sandbox_of(provider=provider)
    isolation = box.health()["isolation"]
    if provider == "local" and not isolation["session_users"]:
        pytest.skip(isolation["shared_user_reason"])
    return box


def test_health_reports_users(box):
    isolation = box.health()["isolation"]
    assert (isolation["session_users"], isolation["shared_user_reason"]) == (True, "")


SAME = {
    "user": "(os.getuid(), os.geteuid(), os.getgid(), os.getgroups())",
    "name": "__import__('getpass').getuser()",
    "directories": "(os.getcwd(), os.path.expanduser('~'), __import__('tempfile').gettempdir())",
    "contents": "[sorted(os.listdir(p)) for p in ('.', '/dev/shm')]",
    "modes": "[oct(os.stat(p).st_mode) for p in ('/home/user', '/tmp', '/dev/shm')]",
    "owners": "[(os.stat(p).st_uid, os.stat(p).st_gid) for p in ('/home/user', '/tmp', '/dev/shm')]",
    "capacity": "[(os.statvfs(p).f_blocks, os.statvfs(p).f_files) for p in ('/home/user', '/tmp', '/dev/shm')]",
    "capabilities": "[line for line in open('/proc/self/status') if line.startswith('Cap')]",
    "limits": "[resource.getrlimit(n) for n in range(16)]",
    "rank": "open('/proc/self/oom_score_adj').read()",
}


def test_all_sessions_see_the_same(enter):
    everything = "{" + ", ".join(f"{name!r}: {expression}" for name, expression in SAME.items()) + "}"
    first, second = enter(), enter()
    found = first.see(everything)
    assert second.see(everything) == found
    first.reset()
    assert first.see(everything) == found


def test_files_are_private(attacker, victim):
    paths = ("/home/user/own", "/tmp/own", "/dev/shm/own")
    attacker.do(f"for path in {paths}: open(path, 'w').close()")
    assert victim.see(f"[path for path in {paths} if os.path.exists(path)]") == []


def test_other_file_system_is_unreachable(attacker, victim):
    # The only process that is not the attacker's own.
    found = attacker.attempts(
        [
            "os.listdir('/proc/1/root/home/user')",
            "os.listdir('/proc/1/cwd')",
            "open('/proc/1/environ').read()",
            "os.listdir('/proc/1/fd')",
            "open('/proc/1/mem')",
            "os.listdir('/workspaces' if os.path.exists('/workspaces') else '/run/workspaces')",
        ]
    )
    assert found == dict.fromkeys(found, "EACCES")


PRIVILEGED = [
    "libc.unshare(0x10000000)",
    "libc.unshare(0x20000)",
    "libc.mount(b'tmpfs', b'/tmp', b'tmpfs', 0, None)",
    "libc.mount(b'/etc', b'/tmp', None, 4096, None)",
    "libc.umount2(b'/tmp', 2)",
    "libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0)",
    "libc.setresuid(0, 0, 0)",
    "libc.setresuid(20001, 20001, 20001)",
    "libc.setgroups(0, None)",
]


def test_privileged_calls_fail(attacker):
    found = attacker.sees({call: f"({call}, errno.errorcode[ctypes.get_errno()])" for call in PRIVILEGED})
    assert {call: result for call, result in found.items() if result not in ((-1, "EPERM"), (-1, "EINVAL"))} == {}


def test_mount_points_cannot_be_replaced(attacker):
    assert attacker.attempt("os.rename('/home/user', '/home/other')") in ("EACCES", "EBUSY", "EROFS", "EXDEV")
    assert attacker.attempt("os.rmdir('/tmp')") in ("EACCES", "EBUSY", "EROFS", "ENOTEMPTY")


LEFT = """
for directory in ('/home/user', '/tmp', '/dev/shm'):
    os.makedirs(f'{directory}/.a/b'); open(f'{directory}/.a/b/c', 'w').close(); os.chmod(f'{directory}/.a', 0)
    os.setxattr(directory, 'user.note', b'x'); os.utime(directory, (1234, 1234)); os.chmod(directory, 0)
"""


def test_next_episode_finds_initial_state(enter):
    state = (
        "[(sorted(os.listdir(p)) if p != '/tmp' else '.a' in os.listdir(p), oct(os.stat(p).st_mode), os.listxattr(p), "
        "os.stat(p).st_mtime == 1234) for p in ('/home/user', '/tmp', '/dev/shm')]"
    )
    kept, closed = enter(), enter()
    initial = kept.see(state)
    for session in (kept, closed):
        session.do(LEFT)
    kept.reset()
    closed.close()
    found = {"after a reset": kept.see(state), **{f"new session {n}": enter().see(state) for n in range(3)}}
    assert found == dict.fromkeys(found, initial)


def test_lost_interpreter_keeps_files(enter):
    session = enter()
    session.do("open('kept', 'w').write('kept'); os.chmod('.', 0)")
    assert session.run("os.kill(os.getpid(), 9)").metadata.outcome is Outcome.KILLED
    session.equip()
    assert session.see("open('kept').read()") == "kept"


def test_context_files_are_shared(provider):
    with contextlib.closing(CodeInterpreter(provider=provider, preload=())) as interpreter:
        interpreter.execute("open('from_first', 'w').write('text')")
        other = interpreter.contexts.create()
        assert interpreter.execute("print(open('from_first').read())", context=other).stdout == "text\n"
        assert interpreter.files.read("from_first") == b"text"


def test_standard_streams_can_be_opened_by_name(enter):
    session = enter()
    seen = session.run("open('/dev/stdout', 'w').write('out'); os.system('echo err > /dev/stderr') and None")
    assert (seen.stdout[:3], seen.stderr) == ("out", "err\n")


def test_programs_open_standard_streams_by_name(connect, box):
    session = connect(box)
    session.reset()
    result = session.http.processes.run("cat /dev/stdin > /dev/stdout; echo err > /dev/stderr", stdin=b"in")
    assert (result.stdout, result.stderr, result.exit_code) == (b"in", b"err\n", 0)


def test_programs_open_their_terminal_by_name(connect, box):
    session = connect(box)
    session.reset()
    command = (
        "tty && echo by name > $(tty) && stty size < $(tty) && test $(stat -c %u $(tty)) = $(id -u) && echo own && "
        "script -qc 'echo inside' /dev/null && echo after; read line; stty size"
    )
    with session.http.processes.start(command, terminal=TerminalSize(rows=30, columns=100)) as process:
        output = iter(process)
        seen = b""
        while b"after" not in seen:
            seen += next(output).stdout
        process.resize(rows=10, columns=20)
        process.write(b"\n")
        lines = process.wait().stdout.decode().split()
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:] == ["by", "name", "30", "100", "own", "inside", "after", "10", "20"]


def test_terminals_of_other_sessions_cannot_be_opened(connect, box, attacker):
    session = connect(box)
    session.reset()
    with session.http.processes.start("tty; sleep 60", terminal=TerminalSize()) as process:
        name = next(iter(process)).stdout.decode().strip()
        assert name.startswith("/dev/pts/")
        found = attacker.attempts([f"os.open({name!r}, {flags} | os.O_NOCTTY)" for flags in ("os.O_RDONLY", "os.O_WRONLY")])
        assert found == dict.fromkeys(found, "ENOENT")
        process.kill()


def test_listing_follows_no_link_out_of_session(connect, box):
    session = connect(box)
    session.reset()
    session.run("import os; os.symlink('/etc/passwd', 'out'); os.mkdir('d'); os.symlink('../file', 'd/in')")
    session.run("open('file', 'w').write('x' * 1000) and None")
    # Numbers of the server's descriptors, some of which are the files of other sessions.
    session.run("for n in range(100): os.symlink(f'/proc/self/fd/{n}/work', f'n{n}')")
    listed = {entry.name: entry for entry in session.http.files.list()}
    assert (listed["out"].type, listed["out"].size) == ("file", len("/etc/passwd"))
    assert not any(entry.type == "dir" for name, entry in listed.items() if name.startswith("n"))
    assert [entry.size for entry in session.http.files.list("d")] == [1000]
