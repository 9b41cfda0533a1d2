"""Leftovers of a session are removed: the next episode and the next session see nothing of them."""

from __future__ import annotations

import contextlib
import secrets

import pytest

from tests.security.attack import unrefused
from tests.support.sandbox_processes import command_line, processes_of
from tests.support.timing import eventually

pytestmark = pytest.mark.every_provider

AS_BEFORE = object()
"""Expected result that depends on the form of the session: the same as in the session before it."""

LEFT = {
    "user site": (
        "import site\nd = site.getusersitepackages(); os.makedirs(d); open(d + '/planted.py', 'w').close()\n"
        "for name in ('usercustomize', 'sitecustomize'): open(f'{d}/{name}.py', 'w').write('import os; "
        'os.environ["OWNED"] = "1"\')\n'
        "open(d + '/planted.pth', 'w').write('import os; os.environ[\"OWNED\"] = \"1\"')",
        "subprocess.run([sys.executable, '-c', 'import os; print(os.environ.get(\"OWNED\"))'], capture_output=True).stdout",
        b"None\n",
    ),
    "dot files": (
        "for name in ('.bashrc', '.profile', '.pythonrc', '.pdbrc'): open(os.path.expanduser('~/') + name, 'w').close()",
        "os.listdir(os.path.expanduser('~'))",
        [],
    ),
    "hidden files": ("os.makedirs('.a/.b'); os.chmod('.a/.b', 0); os.chmod('.a', 0)", "os.listdir('.')", []),
    "files beside": ("open('../beside', 'w').close()", "attempt(lambda: os.stat('../beside'))", AS_BEFORE),
    "attributes": (
        "for path in ('.', '..', os.path.expanduser('~')): attempt(lambda: os.setxattr(path, 'user.note', b'hello'))",
        "[os.listxattr(path) for path in ('.', '..', os.path.expanduser('~'))]",
        [[], [], []],
    ),
    "times": (
        "for path in ('.', '..'): os.utime(path, (1234, 1234))",
        "[os.stat(p).st_atime == 1234 for p in ('.', '..')]",
        [False] * 2,
    ),
    "modes": (
        "for path in ('..', '.'): attempt(lambda: os.chmod(path, 0o1777 if path == '..' else 0))",
        "[os.stat(p).st_mode & 0o7777 for p in ('.', '..')]",
        AS_BEFORE,
    ),
    "a link for a directory": (
        "here = os.getcwd(); os.chdir('/'); os.rename(here, here + '2'); os.symlink('/etc', here)",
        "(os.path.islink(os.getcwd()), os.listdir('.'))",
        (False, []),
    ),
    "a file for a directory": (
        "here = os.getcwd(); os.chdir('/'); os.rmdir(here); open(here, 'w').close()",
        "os.path.isdir(os.getcwd())",
        True,
    ),
    "shared memory": (
        "attempt(lambda: os.makedirs('/dev/shm/planted-directory')); attempt(lambda: open('/dev/shm/planted', "
        "'w').write('x'))\n"
        "attempt(lambda: open('/dev/shm/planted-directory/file', 'w').write('x'))",
        "[os.path.exists(p) for p in ('/dev/shm/planted', '/dev/shm/planted-directory')]",
        [False, False],
    ),
    "environment": ("os.environ['PATH'] = os.environ['PLANTED'] = '/planted'", "'planted' in str(os.environ)", False),
    "modules": (
        "import json\njson.dumps = lambda x: 'owned'; sys.modules['planted'] = json",
        "__import__('json').dumps(1)",
        "1",
    ),
    "builtins": ("import builtins\nbuiltins.len = lambda x: -1", "len([])", 0),
    "C globals": (
        "import locale\nlocale.setlocale(locale.LC_ALL, 'C'); time.tzset(); libc.srand(5); libc.setenv(b'PLANTED', b'1', 1)",
        "libc.getenv(b'PLANTED')",
        0,
    ),
    "locale": ("libc.setlocale(6, b'C')", "__import__('locale').setlocale(__import__('locale').LC_CTYPE)", "C.UTF-8"),
    "limits": (
        "for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC): resource.setrlimit(limit, (64, 64))",
        "resource.getrlimit(resource.RLIMIT_NOFILE)[1] > 64",
        True,
    ),
    "umask": ("os.umask(0o777)", "os.umask(0o22)", 0o22),
    "scheduling policy": (
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))",
        "os.sched_getscheduler(0) == os.SCHED_BATCH",
        True,
    ),
    "affinity": (
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})",
        "len(os.sched_getaffinity(0)) == os.cpu_count()",
        True,
    ),
    "signals": (
        "for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD): signal.signal(n, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})",
        "(int(signal.getsignal(signal.SIGTERM)), len(signal.pthread_sigmask(signal.SIG_BLOCK, ())))",
        (0, 0),
    ),
    "timers": (
        "signal.setitimer(signal.ITIMER_REAL, 100); signal.alarm(100)",
        "signal.getitimer(signal.ITIMER_REAL)",
        (0.0, 0.0),
    ),
    "threads": ("threading.Thread(target=time.sleep, args=(1000,)).start()", "threading.active_count()", 1),
    "trace functions": (
        "sys.settrace(lambda *_: None); sys.setprofile(lambda *_: None); sys.excepthook = print",
        "sys.gettrace()",
        None,
    ),
    "import hooks": (
        "sys.meta_path.clear(); sys.path.insert(0, '/planted'); sys.path_hooks.clear()",
        "'/planted' in sys.path",
        False,
    ),
    "personality": ("call('personality', 8)", "call('personality', 0xFFFFFFFF)", 0),
}


@pytest.fixture
def left(niceness):
    return {**LEFT, "nice": ("os.nice(7)", "os.nice(0)", niceness)}


def test_next_episodes_find_no_leftovers(enter, left):
    session, found, expected = enter(), {}, {}
    for name, (leave, look, result) in left.items():
        expected[name] = [session.see(look) if result is AS_BEFORE else result] * 2
        session.run(leave)
        found[name] = []
        for _ in range(2):
            session.reset()
            found[name].append(session.see(look))
    assert found == expected


def test_next_sessions_find_no_leftovers(enter, left):
    session, found, expected = enter(), {}, {}
    for name, (leave, look, result) in left.items():
        expected[name] = [session.see(look) if result is AS_BEFORE else result] * 3
        session.run(leave)
        session.close()
        with contextlib.closing(enter()) as later:
            session = enter()
            found[name] = [later.see(look), session.see(look)]
            later.reset()
            found[name].append(later.see(look))
    assert found == expected


DAEMONS = {
    "child": "subprocess.Popen(['sleep', '1234.5'])",
    "new session": "subprocess.Popen(['sleep', '1234.5'], start_new_session=True)",
    "double fork": "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: os.execlp('sleep', 'sleep', '1234.5')\n"
    "    os._exit(0)\nos.wait()",
    "nohup": "subprocess.run('nohup setsid sleep 1234.5 >/dev/null 2>&1 &', shell=True)",
    "deaf": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP INT; sleep 1234.5; sleep 1234.5'])",
    "stopped": "subprocess.Popen(['sleep', '1234.5']).send_signal(signal.SIGSTOP)",
    "sibling": "if call('clone', 0x8000 | 17, 0, 0, 0, 0) == 0: os.execlp('sleep', 'sleep', '1234.5')",
    "at": "subprocess.run('echo sleep 1234.5 | at now; echo \"* * * * * sleep 1234.5\" | crontab -', shell=True)",
}


def test_daemons_end_with_session(enter, box):
    for end in ("reset", "close"):
        naps = {name: f"1234.{secrets.randbits(40)}" for name in DAEMONS}

        def asleep(naps=naps):
            # Only the last program of a chain: one that is being executed has no arguments yet.
            commands = set(map(command_line, processes_of(box)))
            return [name for name, nap in naps.items() if f"sleep {nap}" in commands]

        session = enter()
        session.do("\n".join(daemon.replace("1234.5", naps[name]) for name, daemon in DAEMONS.items()))
        # Without this wait, one could appear after the last look. Neither at nor cron is installed.
        eventually(lambda asleep=asleep: asleep() == [name for name in DAEMONS if name != "at"])
        assert asleep() == [name for name in DAEMONS if name != "at"]
        getattr(session, end)()
        eventually(lambda asleep=asleep: asleep() == [])
        assert asleep() == [], end


PATHS = [
    "numpy.__file__",
    "json.__file__",
    "json.__cached__",
    "sys.executable",
    "sys.modules['coding_gym_server'].__file__",
    "f'{purelib}/planted.pth'",
    "f'{purelib}/sitecustomize.py'",
    "f'{purelib}/usercustomize.py'",
    "f'{stdlib}/planted.py'",
    "f'{stdlib}/__pycache__/json.cpython-313.pyc'",
    "f'{os.path.dirname(sys.executable)}/planted'",
    "f'{os.path.dirname(os.path.dirname(sys.executable))}/pyvenv.cfg'",
    "'/etc/ld.so.preload'",
    "'/etc/environment'",
    "'/etc/profile'",
    "'/usr/local/bin/planted'",
    "'/usr/local/lib/planted.so'",
    "f'{os.environ[\"MPLCONFIGDIR\"]}/matplotlibrc'",
]
WRITING = [
    "os.open({}, os.O_WRONLY)",
    "(os.chmod({}, os.stat({}).st_mode & 0o7777), os.open({}, os.O_WRONLY))",
    "(open('planted', 'w'), os.link('planted', {}))",
    "os.mkdir({})",
]
DESTROYING = [
    "open({}, 'w')",
    "(os.chmod(os.path.dirname({}), 0o777), open({}, 'w'))",
    "os.truncate({}, 0)",
    "os.unlink({})",
    "os.rename({}, {} + '.old')",
    "(open('planted', 'w'), os.replace('planted', {}))",
    "os.symlink('planted', {})",
]


def test_shared_files_cannot_be_changed(enter, provider):
    inside = enter()
    inside.do(
        "import json, numpy, site, sysconfig\npurelib, stdlib = sysconfig.get_path('purelib'), sysconfig.get_path('stdlib')"
    )
    # Locally, an attack that got through would destroy the Python installation that runs the tests.
    actions = WRITING if provider == "local" else [*WRITING, *DESTROYING]
    found = inside.attempts([action.replace("{}", path) for action in actions for path in PATHS])
    assert unrefused(found, "ENOENT", "EXDEV", "EEXIST", "ENOTDIR", "ETXTBSY") == {}
    # The files still work.
    assert enter().see(
        "(bool(__import__('numpy').arange(3).sum() == 3), subprocess.run([sys.executable, '-c', '']).returncode)"
    ) == (True, 0)
