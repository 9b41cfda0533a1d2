"""Contexts share one system: a user, mounts and files, apart from the server and from the sessions of environments."""

from __future__ import annotations

import ast
import contextlib

import pytest

from coding_gym import CodeInterpreter
from coding_gym.client.session import Session
from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol import ResetOptions
from coding_gym_server.protocol.processes import TerminalSize
from tests.security.attack import FORK_UNTIL_REFUSED
from tests.support.sandbox_faults import is_gone
from tests.support.sandbox_processes import ITSELF, host_process, server_of, zygote_of
from tests.support.timing import eventually

pytestmark = pytest.mark.every_provider

DIRECTORIES = ("/home/user", "/tmp", "/dev/shm")


def start(provider, **options):
    interpreter = CodeInterpreter(provider=provider, preload=(), **options)
    isolation = interpreter.sandbox.health()["isolation"]
    if not isolation["session_users"]:
        interpreter.close()
        pytest.skip(isolation["shared_user_reason"])
    return interpreter


@pytest.fixture(scope="module")
def interpreter(provider):
    with start(provider) as interpreter:
        yield interpreter


@pytest.fixture
def create(interpreter):
    with contextlib.ExitStack() as stack:

        def create(**options):
            context = interpreter.contexts.create(**options)
            stack.callback(interpreter.contexts.delete, context)
            return context

        yield create


@pytest.fixture
def session(interpreter):
    with contextlib.closing(Session(interpreter.sandbox.address)) as session:
        session.ask_reset(ResetOptions(backend="python"))
        session.wait(timeout=30)
        yield session


def see(interpreter, expression, context=None):
    """Return the value of an expression in a context."""
    execution = interpreter.execute(f"print(repr({expression}))", context=context)
    assert execution.error is None, execution.error
    return ast.literal_eval(execution.stdout)


def see_in_session(session, expression):
    session.ask_step(f"print(repr({expression}))")
    return ast.literal_eval(session.wait(timeout=30).observation.stdout)


# Files


def test_files_can_be_written_before_the_first_context(provider):
    with start(provider) as interpreter:
        assert interpreter.files.list() == []
        interpreter.files.write("data/early", "text")
        assert see(interpreter, "open('data/early').read()") == "text"
        status = (
            "[(s.st_uid == os.getuid(), s.st_gid == os.getgid(), oct(s.st_mode)) for s in map(os.stat, ('data', 'data/early'))]"
        )
        interpreter.execute("import os")
        assert see(interpreter, status) == [(True, True, "0o40755"), (True, True, "0o100644")]
        interpreter.execute("open('data/early', 'a').write(' and more'); os.chmod('data/early', 0o600)")
        assert interpreter.files.read_text("data/early") == "text and more"


def test_files_of_code_can_be_listed_downloaded_and_removed(interpreter):
    interpreter.execute("""
        import os
        os.makedirs('made/below')
        open('made/below/file', 'w').write('text')
        os.chmod('made/below/file', 0o600)
        os.chmod('made', 0o700)
    """)
    assert [(entry.name, entry.type) for entry in interpreter.files.list("made")] == [("below", "dir")]
    assert interpreter.files.read_text("/home/user/made/below/file") == "text"
    interpreter.files.remove("made")
    assert see(interpreter, "os.path.exists('made')") is False


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_contexts_share_files(interpreter, create, directory):
    interpreter.execute(f"open('{directory}/shared', 'w').write('text')", context=create())
    assert see(interpreter, f"open('{directory}/shared').read()", create()) == "text"
    assert interpreter.execute(f"cat {directory}/shared", language="bash").stdout == "text"
    interpreter.execute(f"import os; os.unlink('{directory}/shared')")


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_contexts_and_sessions_do_not_see_each_others_files(interpreter, session, directory):
    interpreter.execute(f"import os; open('{directory}/of_contexts', 'w').close()")
    see_in_session(session, f"open('{directory}/of_session', 'w').close()")
    assert "of_contexts" not in see_in_session(session, f"__import__('os').listdir('{directory}')")
    assert "of_session" not in see(interpreter, f"os.listdir('{directory}')")
    interpreter.execute(f"os.unlink('{directory}/of_contexts')")


def test_disk_of_contexts_is_limited(provider):
    with start(provider, disk="16m") as interpreter, contextlib.closing(Session(interpreter.sandbox.address)) as session:
        assert interpreter.execute("open('/tmp/large', 'wb').write(bytes(32 << 20))").error.name == "OSError"
        assert interpreter.execute("open('/home/user/small', 'wb').write(bytes(1 << 20))").error.name == "OSError"
        assert see_in_session(session, "open('/tmp/large', 'wb').write(bytes(8 << 20))") == 8 << 20
        # A context that restarts would otherwise lose the files, or never start again.
        interpreter.contexts.restart(interpreter.contexts.list()[0])
        assert see(interpreter, "__import__('os').path.getsize('/tmp/large')") >= 8 << 20


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_files_outlive_contexts(interpreter, create, directory):
    context = create()
    interpreter.execute(f"open('{directory}/kept', 'w').write('kept')", context=context)
    # More than there are spare interpreters.
    for _ in range(3):
        interpreter.contexts.restart(context)
        assert see(interpreter, f"open('{directory}/kept').read()", context) == "kept"
    interpreter.execute("import os; os.kill(os.getpid(), 9)", context=context)
    assert see(interpreter, f"open('{directory}/kept').read()", context) == "kept"
    gone = interpreter.contexts.create()
    interpreter.execute(f"open('{directory}/left', 'w').write('left')", context=gone)
    interpreter.contexts.delete(gone)
    assert see(interpreter, f"open('{directory}/left').read()", context) == "left"


def test_mode_of_home_is_repaired(interpreter, create):
    context = create()
    interpreter.execute("import os; os.chmod('/home/user', 0); os.chmod('/tmp', 0)", context=context)
    interpreter.contexts.restart(context)
    assert see(interpreter, "[oct(__import__('os').stat(p).st_mode) for p in ('.', '/tmp')]", context) == ["0o40700", "0o41777"]


def test_working_directory_can_be_anywhere(interpreter, create):
    interpreter.execute("import os; os.makedirs('/tmp/a/b', exist_ok=True); os.makedirs('/home/user/c', exist_ok=True)")
    for cwd in (*DIRECTORIES, "/tmp/a/b", "/home/user/c", "/home/user/../user/c", "/usr"):
        context = create(cwd=cwd)
        assert see(interpreter, "__import__('os').getcwd()", context) == cwd.replace("/../user", "")
    for cwd in ("/tmp/missing", "/home/user/missing", "/home/other", "tmp", "/home/user/../../tmp/missing"):
        with pytest.raises(ConfigurationError, match="not an accessible directory"):
            interpreter.contexts.create(cwd=cwd)


# Users and processes


def test_contexts_have_a_user_of_their_own(interpreter, create, session):
    sandbox = interpreter.sandbox

    def user_of(found):
        return host_process(sandbox, found).uids().real

    contexts = {user_of(see(interpreter, ITSELF, create())) for _ in range(3)}
    assert len(contexts) == 1
    assert contexts.isdisjoint({server_of(sandbox).uids().real, user_of(see_in_session(session, ITSELF))})
    interpreter.execute("import os")
    assert see(interpreter, "(os.getuid(), os.getgid(), os.getgroups())") == (10001, 10001, [])


def test_contexts_cannot_access_each_others_processes(interpreter, create):
    first, second = create(), create()
    pids = "sorted(int(name) for name in __import__('os').listdir('/proc') if name.isdigit())"
    interpreter.execute("import subprocess; child = subprocess.Popen(['sleep', '600'])", context=first)
    # Its root and itself.
    assert len(see(interpreter, pids, second)) == 2
    child = see(interpreter, "child.pid", first)
    for attack in ("os.kill({}, 9)", "os.kill(-1, 9)", "os.readlink('/proc/{}/fd/0')", "open('/proc/{}/mem')"):
        found = interpreter.execute(f"import os; {attack.format(child)}", context=second).error.name
        assert found in ("ProcessLookupError", "FileNotFoundError")
    assert see(interpreter, "child.poll()", first) is None


STAY = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"


@pytest.mark.parametrize("end", ["kill", "timeout", "restart", "delete", "fork and exit"])
@pytest.mark.parametrize("language", ["python", "bash"])
def test_end_of_one_context_leaves_others_running(interpreter, create, language, end):
    first, second = create(), interpreter.contexts.create(language=language)
    interpreter.execute("import os, subprocess; kept = 'kept'; child = subprocess.Popen(['sleep', '600'])", context=first)
    with interpreter.processes(first).start("sleep 600") as process:
        match end, language:
            case "kill", "python":
                assert interpreter.execute("import os; os.kill(os.getpid(), 9)", context=second).error is not None
            case "kill", "bash":
                assert interpreter.execute("kill -9 $$", context=second).error is not None
            case "timeout", "python":
                assert interpreter.execute(STAY, context=second, timeout=0.5).error is not None
            case "timeout", "bash":
                assert interpreter.execute("trap '' INT; while :; do :; done", context=second, timeout=0.5).error is not None
            case "restart", _:
                interpreter.contexts.restart(second)
            case "fork and exit", "python":
                interpreter.execute("import os; os.fork() or os.setsid()\nos._exit(0)", context=second)
            case _:
                pass
        interpreter.contexts.delete(second)
        # Its processes are killed in the background.
        assert see(interpreter, "__import__('time').sleep(0.3)", first) is None
        assert see(interpreter, "(kept, child.poll())", first) == ("kept", None)
        process.kill()
        assert process.wait().exit_code == 128 + 9


def test_limit_of_processes_is_of_each_context(provider):
    with start(provider, session_pids_limit=50) as interpreter:
        first, second = interpreter.contexts.create(), interpreter.contexts.create()
        interpreter.execute(FORK_UNTIL_REFUSED, context=first)
        assert see(interpreter, "(found, 20 < children < 50)", first) == ("EAGAIN", True)
        assert see(interpreter, "__import__('subprocess').run(['true']).returncode", second) == 0
        interpreter.contexts.restart(second)
        assert see(interpreter, "__import__('subprocess').run(['true']).returncode", second) == 0


def test_contexts_have_terminals(interpreter, create):
    with interpreter.processes(create()).start(
        "tty && stty size < $(tty)", terminal=TerminalSize(rows=30, columns=100)
    ) as process:
        lines = process.wait().stdout.decode().split()
    assert lines[0].startswith("/dev/pts/")
    assert lines[1:] == ["30", "100"]


# Screens

DRAW = "import tkinter; window = tkinter.Tk(); window.configure(background='{}'); window.update()"


@pytest.mark.usefixtures("screen_provider")
def test_contexts_have_screens_of_their_own(interpreter, create):
    first, second = create(), create()
    for context, color in ((first, "red"), (second, "blue")):
        assert interpreter.execute(DRAW.format(color), context=context).error is None
    for context in (first, second):
        assert interpreter.execute("window.update(); other = tkinter.Tk(); other.update()", context=context).error is None
    names = "__import__('os').listdir('/tmp/.X11-unix')"
    assert len(see(interpreter, names)) >= 2
    before = see(interpreter, names)
    interpreter.contexts.restart(first)
    assert len(see(interpreter, names)) == len(before)
    temporary = interpreter.contexts.create()
    authority = see(interpreter, "__import__('os').environ['XAUTHORITY']", temporary)
    assert see(interpreter, f"__import__('os').path.exists({authority!r})") is True
    interpreter.contexts.delete(temporary)
    assert eventually(lambda: not see(interpreter, f"__import__('os').path.exists({authority!r})"))


# Failures


def test_contexts_outlive_the_zygote(provider):
    with start(provider, spare_workers=0) as interpreter:
        interpreter.execute("kept = 'kept'; open('/tmp/kept', 'w').write('kept')")
        zygote = zygote_of(interpreter.sandbox)
        zygote.kill()
        assert eventually(lambda: is_gone(zygote))
        assert see(interpreter, "kept") == "kept"
        later = interpreter.contexts.create(cwd="/tmp")
        assert see(interpreter, "open('kept').read()", later) == "kept"
        assert interpreter.files.list() == []


def test_files_outlive_all_contexts(provider):
    with start(provider, spare_workers=0) as interpreter:
        context = interpreter.contexts.create()
        interpreter.execute("open('/tmp/kept', 'w').write('kept'); open('kept', 'w').write('kept')", context=context)
        for listed in interpreter.contexts.list():
            interpreter.contexts.delete(listed)
        assert interpreter.files.read_text("kept") == "kept"
        assert see(interpreter, "open('/tmp/kept').read()") == "kept"
