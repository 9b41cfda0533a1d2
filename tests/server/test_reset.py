"""Effects of a reset, and isolation of sessions from each other."""

from __future__ import annotations

import ast
import contextlib
import time

import pytest

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.running_server import gone_within, is_alive
from tests.support.sandbox_processes import ITSELF, host_process, processes_of, server_of
from tests.support.timing import eventually

# A grandchild that has left its session and its parent; the file contains its pid.
DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open('daemon', 'w').write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
os.wait()
while not os.path.exists('daemon') or not open('daemon').read(): time.sleep(0.001)
print(open('daemon').read(), end='')
"""


@pytest.fixture(scope="module")
def single_sandbox(provider):
    with lasting_sandbox(provider=provider, sessions=1) as sandbox:
        yield sandbox


@pytest.fixture
def single_session(connect, single_sandbox):
    return connect(single_sandbox)


def show(session, expression):
    seen = session.run(f"print({expression}, end='')")
    assert (seen.stderr, seen.exit_code) == ("", 0)
    return seen.stdout


def process_of(sandbox, session, pid):
    """Return the process that has a process id in a session."""
    return host_process(sandbox, (pid, ast.literal_eval(show(session, ITSELF))[1]))


# What a cell leaves in the interpreter, none of which hides another.
LEFT_IN_INTERPRETER = [
    ("x = 1", "'x' in globals()", "False"),
    ("5", "hasattr(__import__('builtins'), '_')", "False"),
    ("import builtins; builtins.leak = 1", "hasattr(__import__('builtins'), 'leak')", "False"),
    ("import sys; sys.modules['leak'] = sys", "'leak' in __import__('sys').modules", "False"),
    ("import json; json.leak = 1", "hasattr(__import__('json'), 'leak')", "False"),
    ("import sys; sys.path.append('leak')", "'leak' in __import__('sys').path", "False"),
    ("import sys; sys.argv.append('leak')", "__import__('sys').argv", "['']"),
    ("import os; os.environ['LEAK'] = '1'", "'LEAK' in __import__('os').environ", "False"),
    ("import sys; sys.setrecursionlimit(5000)", "__import__('sys').getrecursionlimit()", "1000"),
    ("import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 64))", "__import__('resource').getrlimit(7)[0] > 64", "True"),
    ("import signal; signal.signal(15, signal.SIG_IGN)", "__import__('signal').getsignal(15) == 0", "True"),
    ("import decimal; decimal.getcontext().prec = 3", "__import__('decimal').getcontext().prec", "28"),
    ("import numpy; numpy.set_printoptions(precision=2)", "__import__('numpy').get_printoptions()['precision']", "8"),
]


def test_reset_restores_the_interpreter(session, sandbox):
    niceness = server_of(sandbox).nice() + 10
    # Nothing exceeds 19.
    nice = [("import os; os.nice(5)", "__import__('os').nice(0)", str(niceness))] if niceness < 19 else []
    left = [*LEFT_IN_INTERPRETER, *nice]
    session.reset()
    for leave, look, expected in left:
        assert session.run(leave).exit_code == 0, leave
        assert show(session, look) != expected, look
    for _ in range(2):
        # The first executor may be a spare; the second is the recycled one.
        session.reset()
        for _, look, expected in left:
            assert show(session, look) == expected, look


# What needs its own episode, because it would hide what another cell leaves.
LEFT_IN_PROCESS = [
    ("open('mod.py', 'w').write('x = 1'); import mod", "'mod' in __import__('sys').modules", "False"),
    ("import os; os.environ.clear()", "'HOME' in __import__('os').environ", "True"),
    ("import os; os.umask(0o777)", "oct(__import__('os').umask(0o22))", "0o22"),
    ("import os; os.chdir('/')", "__import__('os').getcwd() != '/'", "True"),
    ("import locale; locale.setlocale(locale.LC_ALL, 'C')", "__import__('locale').getpreferredencoding()", "UTF-8"),
    ("import warnings; warnings.simplefilter('error')", "__import__('warnings').warn('w', ImportWarning)", "None"),
    ("from __future__ import annotations", "(lambda: 0).__code__.co_flags & 0x1000000", "0"),
    ("import os; os.dup2(os.open('/dev/null', 1), 1)", "'seen'", "seen"),
    ("exit(3)", "1", "1"),
    ("import os; os._exit(3)", "1", "1"),
]

LEFT_IN_SYSTEM = [
    ("import os; open('f', 'w'); os.mkdir('d')", "__import__('os').listdir()", "[]"),
    (
        "import os; open(os.path.expanduser('~/f'), 'w')",
        "__import__('os').listdir(__import__('os').path.expanduser('~'))",
        "[]",
    ),
    (
        "import tempfile; tempfile.mkdtemp(suffix='.left')",
        "__import__('glob').glob(__import__('tempfile').gettempdir() + '/*.left')",
        "[]",
    ),
    ("open('../f', 'w')", "__import__('os').path.exists('../f')", "False"),
    (
        "import os; os.rmdir(os.getcwd()); os.chmod('..', 0) if os.path.exists('..') else 0",
        "__import__('os').listdir()",
        "[]",
    ),
    ("import os; os.rename(os.getcwd(), os.environ['HOME'] + '/moved')", "__import__('os').listdir()", "[]"),
    ("import os, shutil; d = os.getcwd(); shutil.rmtree(d); os.symlink('/usr', d)", "__import__('os').listdir()", "[]"),
    ("import os; os.mkfifo('p'); os.link('p', 'q')", "__import__('os').listdir()", "[]"),
    ("import socket; s = socket.socket(socket.AF_UNIX); s.bind('sock')", "__import__('os').listdir()", "[]"),
    ("import os; os.open(os.fsencode('\\udcff\\n'), os.O_CREAT)", "__import__('os').listdir()", "[]"),
    ("import os; os.mkdir('d'); open('d/f', 'w'); os.chmod('d', 0)", "__import__('os').listdir()", "[]"),
    (
        "import os; os.makedirs('a/b/c'); os.chmod('a/b/c', 0); os.chmod('a/b', 0o500); os.chmod('a', 0); os.chmod('.', 0)",
        "__import__('os').listdir()",
        "[]",
    ),
    (
        "import os\nfor _ in range(2500):\n    os.mkdir('d' * 50); os.chdir('d' * 50)\nopen('f', 'w'); os.chmod('.', 0)",
        "__import__('os').listdir()",
        "[]",
    ),
    ("import os\nfor i in range(5000): os.close(os.open(f'f{i}', os.O_CREAT))", "__import__('os').listdir()", "[]"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "1", "1"),
]


def reset_removes(session, case):
    leave, look, expected = case
    session.reset()
    session.run(leave, timeout=1.5)
    for _ in range(2):
        # The first executor may be a spare; the second is the recycled one.
        session.reset()
        assert show(session, look) == expected


def test_reset_replaces_the_process(check_on_sessions):
    check_on_sessions(reset_removes, LEFT_IN_PROCESS)


@pytest.mark.every_provider
def test_reset_removes_files_and_processes(check_on_sessions):
    check_on_sessions(reset_removes, LEFT_IN_SYSTEM)


def test_reset_has_no_output(session):
    session.run("import threading; threading.Timer(0.05, lambda: print('late')).start(); print('early')")
    seen = session.reset()
    assert (seen.stdout, seen.stderr, seen.exit_code) == ("", "", 0)
    assert not seen.metadata.state_lost
    time.sleep(0.1)
    assert session.run("1").stdout == "1\n"


# Each prints a process id.
LASTING = [
    "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, end='')",
    "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, end='')",
    "import subprocess; print(subprocess.Popen('trap \"\" TERM INT HUP; sleep 60', shell=True).pid, end='')",
    "import multiprocessing as mp, time; p = mp.Process(target=time.sleep, args=(60,)); p.start(); print(p.pid, end='')",
    "import os, signal, time\nif (pid := os.fork()) == 0: os.kill(os.getpid(), signal.SIGSTOP)\nprint(pid, end='')",
    "import os; print(os.getpid(), end='')",
    DAEMON,
]


@pytest.mark.every_provider
@pytest.mark.parametrize("by", ["reset", "close"])
def test_processes_end_with_their_session(open_session, sandbox, by):
    session = open_session()
    processes = {start: process_of(sandbox, session, int(session.run(start).stdout)) for start in LASTING}
    if by == "reset":
        session.reset()
    else:
        session.close()
    alive = gone_within([*processes.values()])
    assert [start for start, process in processes.items() if process in alive] == []


@pytest.mark.every_provider
def test_no_code_runs_after_reset_answer(session):
    session.run(
        DAEMON.replace("time.sleep(60)", 'exec(\'while True: open("/proc/self/cwd/beat", "w").write(str(time.time()))\')')
    )
    path = f"__import__('pathlib').Path({show(session, 'os.getcwd()')!r}, 'beat')"
    beat = f"(lambda path: path.exists() and path.stat().st_mtime_ns)({path})"
    before = show(session, beat)
    assert eventually(lambda: show(session, beat) != before)
    session.reset()
    at_reset = show(session, beat)
    time.sleep(0.1)
    assert show(session, beat) in (at_reset, "False")


def test_reset_ends_many_processes(session):
    assert session.run("import subprocess\nfor _ in range(40): subprocess.Popen(['sleep', '60'])").exit_code == 0
    session.reset()
    assert show(session, "1") == "1"


@pytest.mark.every_provider
def test_dropped_connection_during_step_ends_session(open_session, sandbox):
    session = open_session()
    worker = host_process(sandbox, ast.literal_eval(show(session, ITSELF)))
    session.begin("import time; time.sleep(60)", timeout=60)
    time.sleep(0.1)
    assert is_alive(worker)
    session.close()
    assert gone_within([worker]) == []


@pytest.mark.every_provider
def test_immediately_dropped_connections_leave_no_processes(open_session, sandbox):
    open_session().run("1")
    before = len(processes_of(sandbox))
    for _ in range(20):
        session = open_session()
        session.begin("import time; time.sleep(60)", timeout=60)
        session.close()
    assert eventually(lambda: len(processes_of(sandbox)) <= before + 10)


@pytest.mark.every_provider
@pytest.mark.parametrize("depth", [3, 1500])
def test_symlinks_are_not_followed(session, open_session, depth):
    other = open_session()
    kept = show(other, "__import__('os').getcwd()")
    other.run("import os; os.mkdir('d'); open('d/f', 'w').write('kept'); os.chmod('d', 0o755)")
    session.run(
        f"import os; os.symlink('{kept}', 'l'); os.symlink('{kept}/d/f', 'm'); os.symlink('/nowhere', 'n')\n"
        f"for _ in range({depth}):\n    os.mkdir('d'); os.symlink('{kept}/d', 'l2'); os.chdir('d')\n"
    )
    session.reset()
    session.reset()
    session.close()
    assert show(other, "open('d/f').read()") == "kept"


@pytest.mark.every_provider
def test_workspaces_of_closed_sessions_are_removed(session, open_session, provider, sandbox):
    # One executor becomes a spare, the others are removed.
    inodes = "(lambda s: s.f_files - s.f_ffree)(__import__('os').statvfs('.'))"
    if provider == "local":
        inodes = f"sum(len(d) + len(f) for _, d, f in __import__('os').walk('{sandbox._directory}/ws'))"
    before = int(show(session, inodes))
    ended = [open_session() for _ in range(4)]
    for other in ended:
        other.run("import os\nfor i in range(200): open(f'f{i}', 'w')")
        other.run("os.mkdir('d'); open('d/f', 'w'); os.chmod('d', 0)")
        other.run("for _ in range(1500): os.mkdir('deep'); os.chdir('deep')")
    for other in ended:
        other.close()
    assert eventually(lambda: int(show(session, inodes)) <= before + 100)


@pytest.mark.parametrize("name", ["CODING_GYM_TOKEN", "DOCKER_HOST", "PYTHONPATH", "VIRTUAL_ENV", "SECRET"])
def test_environment_contains_no_server_variables(session, name):
    assert show(session, f"{name!r} in __import__('os').environ") == "False"


@pytest.mark.every_provider
@pytest.mark.parametrize("name", ["HOME", "TMPDIR", "PWD"])
def test_session_directories_are_private(session, open_session, name):
    other = open_session()
    paths = {show(s, f"__import__('os').environ[{name!r}]") for s in (session, other)}
    assert len(paths) == 1
    session.run(f"import os; os.chdir(os.environ[{name!r}]); open('f', 'w').write('x')")
    assert show(session, "__import__('os').path.exists('f')") == "True"
    assert show(other, f"__import__('os').path.exists(__import__('os').environ[{name!r}] + '/f')") == "False"
    mode = "0o777" if name == "TMPDIR" else "0o700"
    assert show(session, "oct(os.stat('.').st_mode & 0o777)") == mode


def test_tempfile_uses_session_directory(session):
    assert show(session, "__import__('tempfile').gettempdir() == __import__('os').environ['TMPDIR']") == "True"


@pytest.mark.every_provider
def test_private_tmp_is_cleared_on_reset(single_session):
    single_session.run("import os, time; os.makedirs('/tmp/d/e'); open('/tmp/d/f', 'w').write('x'); os.chmod('/tmp/d', 0)")
    single_session.run("open('/dev/shm/leftover', 'w').write('x')")
    # What starts with a dot belongs to the screen, and links lead to Python.
    entries = "[e.path for d in ('/tmp', '/dev/shm') for e in __import__('os').scandir(d) if not e.is_symlink()]"
    visible = f"[path for path in {entries} if '/.' not in path]"
    assert show(single_session, visible) == str(["/tmp/d", "/dev/shm/leftover"])
    for _ in range(2):
        single_session.reset()
        assert show(single_session, visible) == "[]"
    single_session.reset(screen=None)
    assert show(single_session, entries) == "[]"


@pytest.mark.every_provider
def test_private_tmp_survives_interpreter_death(single_session):
    single_session.run("open('/tmp/f', 'w').write('x')\nimport os; os._exit(1)")
    assert show(single_session, "open('/tmp/f').read()") == "x"


@pytest.mark.every_provider
def test_reset_removes_only_own_shared_memory(session, open_session, provider):
    make = (
        "from multiprocessing.shared_memory import SharedMemory; s = SharedMemory(create=True, size=8); print(s.name, end='')"
    )
    name, kept = session.run(make).stdout, None
    other = open_session()
    kept = other.run(make).stdout
    assert (name[:4], kept[:4]) == ("psm_", "psm_")
    session.reset()
    session.reset()
    look = "__import__('os').path.exists('/dev/shm/{}')"
    assert eventually(lambda: show(session, look.format(name)) == "False")
    assert show(other, look.format(kept)) == "True"


def test_preloaded_modules_import_instantly(session, provider):
    session.reset(screen=None)
    modules = "numpy, pandas, matplotlib.pyplot"
    seen = session.run(f"import time; t = time.process_time()\nimport {modules}\nprint(time.process_time() - t)")
    assert (seen.stderr, seen.exit_code) == ("", 0)
    if provider == "docker":
        assert float(seen.stdout) < 0.05
    assert show(session, "int(pandas.Series(numpy.arange(4)).sum()), matplotlib.get_backend().lower()") == "6 agg"
    assert session.run("plt = matplotlib.pyplot; plt.plot([1, 2]); plt.savefig('p.png')").exit_code == 0
    assert show(session, "open('p.png', 'rb').read(4)") == r"b'\x89PNG'"


DRAWS = {
    "random": "__import__('random').random()",
    "numpy": "__import__('numpy').random.rand()",
    "pandas": "__import__('pandas').Series(range(1000)).sample(3).tolist()",
    "shuffle": "sorted(range(100), key=lambda _: __import__('random').random())",
}


@pytest.mark.parametrize("name", DRAWS)
def test_seed_makes_random_numbers_reproducible(session, open_session, name):
    def draw(seed, of=session):
        of.reset(seed=seed)
        return show(of, DRAWS[name])

    other = open_session()
    assert draw(7) == draw(7) == draw(7, other)
    assert len({draw(0), draw(1), draw(2**32 - 1), draw(2**31)}) == 4
    assert draw(2**63 - 1) == draw(2**63 - 1)
    assert len({draw(None), draw(None), draw(None, other), draw(None, other), draw(0)}) == 5


def test_unseeded_sessions_differ(open_session):
    assert len({show(open_session(), DRAWS["random"] + "," + DRAWS["numpy"]) for _ in range(5)}) == 5


def test_hashes_are_equal_in_all_sessions(session, open_session):
    code = "hash('text'), list({'a', 'b', 'c', 'd'}), __import__('subprocess').getoutput(\"python3 -c 'print(hash(0.5))'\")"
    session.reset(seed=1)
    first = show(session, code)
    session.reset(seed=1)
    assert first == show(session, code) == show(open_session(), code)


@pytest.mark.every_provider
def test_sessions_cannot_access_each_others_names_or_files(session, open_session):
    other = open_session()
    secret = "/proc/1/cwd"
    other.run("x = 1; open('f', 'w').write('secret')")
    assert "NameError" in session.run("x").stderr
    for attack in (
        f"open('{secret}/f').read()",
        f"open('{secret}/f', 'w')",
        f"open('{secret}/g', 'w')",
        f"import os; os.listdir('{secret}')",
        f"import os; os.listdir('{secret}/../..')",
        f"import os; os.rename('{secret}/f', 'f')",
        f"import os; os.link('{secret}/f', 'f')",
        f"import os; os.unlink('{secret}/f')",
        f"import os; os.truncate('{secret}/f', 0)",
        f"import os; os.mkdir('{secret}/d')",
    ):
        assert "Error: [Errno" in session.run(attack).stderr, attack
    assert show(other, "open('f').read(), __import__('os').listdir()") == "secret ['f']"


ATTACKS_ON_PROCESS = [
    "os.kill({pid}, 0)",
    "os.kill({pid}, 9)",
    "signal.pidfd_send_signal(os.pidfd_open({pid}), 9)",
    "open('/proc/{pid}/environ').read()",
    "open('/proc/{pid}/mem', 'rb')",
    "os.readlink('/proc/{pid}/cwd')",
    "os.listdir('/proc/{pid}/root/')",
    "open('/proc/{pid}/fd/1', 'w').write('forged')",
    "open('/proc/{pid}/oom_score_adj', 'w').write('1000')",
    "check(libc.ptrace(16, {pid}, 0, 0))",
    "check(libc.syscall(438, os.pidfd_open({pid}), 1, 0))",
]


@pytest.mark.every_provider
def test_sessions_cannot_name_each_others_processes(session, open_session):
    other = open_session()
    # Of a number that the other session has not reached.
    other.run("import subprocess; child = [subprocess.Popen(['sleep', '600']) for _ in range(5)][-1]")
    session.run(
        "import ctypes, os, signal; libc = ctypes.CDLL(None, use_errno=True)\n"
        "def check(result):\n    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))"
    )
    # Its root and itself.
    assert show(session, "len([name for name in os.listdir('/proc') if name.isdigit()])") == "2"
    for attack in ATTACKS_ON_PROCESS:
        for pid in (1, show(other, "child.pid")):
            assert "Error: [Errno" in session.run(attack.format(pid=pid)).stderr, (attack, pid)
    assert show(other, "child.poll()") == "None"


SERVERS = """
import http.server, socket, threading, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
def serve(family, address, port):
    class Server(http.server.ThreadingHTTPServer):
        address_family = family
    server = Server((address, port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    host = f'[{address}]' if family == socket.AF_INET6 else address
    return urllib.request.urlopen(f'http://{host}:{port}/').status
"""


@pytest.mark.every_provider
def test_each_session_has_a_loopback(session, open_session):
    # The same ports, below 1024 as well.
    for one in (session, open_session()):
        one.run(SERVERS)
        assert show(one, "serve(socket.AF_INET, '127.0.0.1', 80), serve(socket.AF_INET6, '::1', 80)") == "204 204"
        one.run("a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)); a.bind(('127.0.0.1', 80))")
        assert show(one, "b.sendto(b'datagram', a.getsockname()), a.recv(100)") == "8 b'datagram'"
    assert "Network is unreachable" in session.run("socket.create_connection(('192.0.2.1', 80), 1)").stderr
    assert show(session, "socket.if_nameindex()") == "[(1, 'lo')]"


@pytest.mark.every_provider
def test_sockets_of_other_sessions_are_unreachable(session, open_session):
    other = open_session()
    other.run("import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0name'); s.listen()")
    other.run("t = socket.create_server(('127.0.0.1', 8123))")
    session.run("import socket")
    assert "Error: [Errno" in session.run("socket.socket(socket.AF_UNIX).connect('\\0name')").stderr
    assert "ConnectionRefusedError" in session.run("socket.create_connection(('127.0.0.1', 8123), 1)").stderr


def test_server_start_directory_is_inaccessible(connect, tmp_path, monkeypatch):
    (tmp_path / "secret").write_text("secret")
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=(), spare_workers=0))) as sandbox:
        observation = connect(sandbox).run(f"open({str(tmp_path / 'secret')!r}).read()")
        # Invisible, or inaccessible if no mount namespace is available.
        assert "FileNotFoundError" in observation.stderr or "PermissionError" in observation.stderr


@pytest.mark.every_provider
def test_system_is_read_only(session):
    for path in ("/etc/f", "/usr/f", "/f", "/proc/self/comm_", "/sys/f", "/workspaces/f"):
        assert "Error: [Errno" in session.run(f"open({path!r}, 'w')").stderr


def test_session_supports_many_resets(session):
    for episode in range(60):
        session.reset()
        assert session.run(f"x = {episode}\nx").stdout == f"{episode}\n"
