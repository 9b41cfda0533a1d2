"""Isolation of screens: other sessions have no access, attacks do not affect them, and captures keep working."""

from __future__ import annotations

import contextlib
import textwrap
import threading
import time

import pytest

from coding_gym_server.protocol import InterruptRequest, Outcome
from tests.gallery.gui_programs import SCENES
from tests.security.attack import Inside, unrefused
from tests.support.sandbox_processes import command_line, processes_of
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import eventually, promptly

pytestmark = pytest.mark.every_provider

WINDOW = next(scene for scene in SCENES if scene.name == "xcb_window").code

TOOLS = """
def number():
    return int(os.environ["DISPLAY"].lstrip(":"))

def own_cookie():
    # Xau(3): a family, and four strings with their lengths, the last of them the cookie.
    data, position = open(os.environ["XAUTHORITY"], "rb").read(), 2
    for _ in range(4):
        length = struct.unpack_from(">H", data, position)[0]
        text, position = data[position + 2:position + 2 + length], position + 2 + length
    return text

def padded(data):
    return data + bytes(-len(data) % 4)

def connect(address, cookie=None, name=b"MIT-MAGIC-COOKIE-1"):
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(address)
    cookie = own_cookie() if cookie is None else cookie
    setup = struct.pack("<BxHHHHxx", 0x6C, 11, 0, len(name), len(cookie)) + padded(name) + padded(cookie)
    connection.sendall(setup)
    return connection

def lets_in(address, *arguments):
    try:
        with connect(address, *arguments) as connection:
            return connection.recv(1) == b"\\1"
    except OSError:
        return False

def path(n=None):
    return f"/tmp/.X11-unix/X{number() if n is None else n}"

def raw():
    # A connection that is let in, its resource ids, its root window.
    connection = connect(path())
    head = connection.recv(8, socket.MSG_WAITALL)
    assert head[0] == 1, head
    answer = head + connection.recv(4 * struct.unpack("<H", head[6:8])[0], socket.MSG_WAITALL)
    base, vendor, formats = struct.unpack_from("<I", answer, 12)[0], struct.unpack_from("<H", answer, 24)[0], answer[29]
    root = struct.unpack_from("<I", answer, 40 + len(padded(bytes(vendor))) + 8 * formats)[0]
    return connection, base, root
"""


def equip(session):
    session.reset(screen=(640, 480), capture="auto")
    session.do(TOOLS)
    return session


def draw(session):
    """Show a window, and return the screenshot."""
    seen = session.run(WINDOW)
    assert seen.metadata.outcome is Outcome.OK, seen.stderr
    assert seen.screenshot is not None
    return seen.screenshot


@pytest.fixture(scope="module")
def box(screen_provider, sandbox_of):
    return sandbox_of(provider=screen_provider)


@pytest.fixture(scope="module")
def shown(box):
    """Session whose window is attacked, and its screenshot."""
    with contextlib.closing(Inside(box)) as session:
        equip(session)
        picture = draw(session)
        yield session, picture


@pytest.fixture
def victim(shown):
    session, picture = shown
    yield session
    seen = session.run("sync() and None")
    assert seen.metadata.outcome is Outcome.OK, seen.stderr
    assert seen.screenshot == picture


@pytest.fixture(scope="module")
def neighbor(box, shown):
    """Session with a separate window, shared by all attacks that leave its display unchanged."""
    with contextlib.closing(Inside(box)) as session:
        equip(session)
        draw(session)
        yield session


@pytest.fixture
def attacker(enter, shown):
    return equip(enter())


# Access to other displays


COOKIES = {"none": "b'', b''", "empty": "b''", "wrong": "os.urandom(16)", "short": "own_cookie()[:8]"}


def test_display_refuses_wrong_cookies(neighbor, victim):
    theirs, cookie = victim.see("(number(), own_cookie().hex())")
    cookies = {**COOKIES, "another's": f"bytes.fromhex({cookie!r})"}
    assert neighbor.see("lets_in(path(), own_cookie())")
    # Where sessions have their own directories, all have the same number.
    for n in ("number()", theirs):
        found = neighbor.sees({name: f"lets_in(path({n}), {cookie})" for name, cookie in cookies.items()})
        assert found == dict.fromkeys(cookies, False)


ROOT = """
import xcffib
display = xcffib.connect(":{}")
root = display.get_setup().roots[0].root
"""


def test_libraries_do_not_reach_other_displays(neighbor, victim):
    theirs = victim.see("number()")
    name, text = 39, 31
    victim.do(f"{ROOT.format(theirs)}display.core.ChangePropertyChecked(0, root, {name}, {text}, 8, 6, b'victim').check()")
    got_in = neighbor.run(ROOT.format(theirs)).metadata.outcome is Outcome.OK
    if got_in:
        assert neighbor.see(f"display.core.GetProperty(False, root, {name}, {text}, 0, 9).reply().value.to_string()") == ""
    assert got_in == (theirs == neighbor.see("number()"))


def test_cookie_of_other_session_cannot_be_found(neighbor, victim):
    neighbor.do("""
        def search(top, secret):
            found = []
            for directory, _, names in os.walk(top):
                for path in (os.path.join(directory, name) for name in names):
                    try:
                        if secret in open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb").read(1 << 20):
                            found.append(path)
                    except OSError:
                        pass
            return found
        def search_all(secret):
            # What a session's own directories cover is Python.
            tops = [path for path in glob.glob("/run/*") if path not in ("/run/covered", "/run/beside")]
            tops += ["/tmp", "/dev/shm", "/var/tmp", "/home", "/workspaces"]
            found = [path for top in tops for path in search(top, secret)]
            for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
                attempt(lambda: secret in open(path, "rb").read() and found.append(path))
            return found
    """)
    assert neighbor.see("search(os.path.dirname(os.environ['XAUTHORITY']), own_cookie())")
    cookie = victim.see("own_cookie().hex()")
    assert neighbor.see(f"search_all(bytes.fromhex({cookie!r}))") == []


def test_display_proxy_cannot_be_bypassed(neighbor, victim):
    """Xvfb requires a cookie that no session knows, and listens on a socket that no session can reach."""
    neighbor.do("""
        addresses = {line.split()[-1] for line in open("/proc/net/unix") if ".X11-unix/X" in line}
        addresses |= {f"@/tmp/.X11-unix/X{n}" for n in range(100)} | set(glob.glob("/tmp/.X11-unix/*"))
        names = [address.replace("@", "\\0") for address in addresses - {path()}]
    """)
    cookies = {"its own": "own_cookie()", "another's": f"bytes.fromhex({victim.see('own_cookie().hex()')!r})"}
    let_in = f"[name for name in names if name != path({victim.see('number()')}) and lets_in(name, {{}})]"
    found = neighbor.sees({whose: let_in.format(cookie) for whose, cookie in cookies.items()})
    assert found == {"its own": [], "another's": []}


def test_disabling_access_control_admits_no_other_session(attacker, victim):
    """The attacker disables access control as ``xhost +`` does."""
    attacker.do("""
        import xcffib
        from xcffib.xproto import AccessControl, Family, HostMode
        own = xcffib.connect()
        own.core.SetAccessControl(AccessControl.Disable)
        own.core.ChangeHosts(HostMode.Insert, Family.Internet, 4, b"\\x7f\\0\\0\\1")
        own.core.GetInputFocus().reply()
    """)
    theirs = attacker.see("number()")
    assert [session.see(f"lets_in(path({theirs}), b'', b'')") for session in (attacker, victim)] == [False, False]


# Files of displays


ON_FILES = [
    "open(f'{directory}/{file}', 'rb')",
    "open(f'{directory}/{file}', 'r+b')",
    "os.truncate(f'{directory}/{file}', 0)",
    "os.unlink(f'{directory}/{file}')",
    "os.rename(f'{directory}/{file}', 'taken')",
    "os.link(f'{directory}/{file}', 'linked')",
    "os.listdir(directory)",
    "os.rename(directory, directory + '-2')",
    "open(f'{directory}/new', 'w')",
    "open(f'/proc/self/root{directory}/{file}', 'rb')",
]


def test_display_files_are_inaccessible(box, neighbor, victim):
    """Reading the file of pixels would reveal the screen; truncating it would kill the process that maps it."""
    commands = [command_line(process).split() for process in processes_of(box)]
    directories = [words[words.index("-fbdir") + 1] for words in commands if "-fbdir" in words]
    assert len(directories) >= 2
    found = neighbor.attempts(
        {
            f"{action} in {directory}, {file}": f"(lambda directory, file: {action})({directory!r}, {file!r})"
            for action in ON_FILES
            for directory in directories
            for file in ("Xvfb_screen0", "authority")
        }
    )
    assert unrefused(found, "ENOENT", "EXDEV") == {}


def test_sockets_of_other_displays_are_protected(enter, victim):
    neighbor = enter()
    neighbor.do(TOOLS)
    n = victim.see("number()")
    found = neighbor.attempts(
        [
            f"os.unlink(path({n}))",
            f"os.rename(path({n}), path(99))",
            f"os.link(path({n}), 'linked')",
            f"socket.socket(socket.AF_UNIX).bind(path({n}))",
            # The last, because they affect what the others find, if they are permitted.
            "os.chmod('/tmp/.X11-unix', 0)",
            "os.rename('/tmp/.X11-unix', '/tmp/moved')",
        ]
    )
    # A session has its own directory of sockets.
    assert unrefused(found, "EADDRINUSE", "EXDEV", "ENOENT", "done") == {}
    assert victim.see("lets_in(path())")


def test_squatted_socket_names_intercept_no_display(enter, attacker, victim):
    attacker.do("""
        traps = []
        for n in range(200):
            for name in (f"/tmp/.X11-unix/X{n}", f"\\0/tmp/.X11-unix/X{n}"):
                trap = socket.socket(socket.AF_UNIX)
                if attempt(lambda: trap.bind(name)) == "done":
                    trap.listen()
                    trap.setblocking(False)
                    traps.append(trap)
        for n in range(200):
            attempt(lambda: open(f"/tmp/.X{n}-lock", "w").write("         1\\n"))
    """)
    picture = draw(victim)
    for _ in range(2):
        other = equip(enter())
        assert draw(other) == picture
        assert draw(equip(other)) == picture
    assert attacker.see("sum(attempt(trap.accept) == 'done' for trap in traps)") == 0


# Attacks on a session's own display


def interrupt(session):
    session._session._connection.send(InterruptRequest())


GRAB = "core.GrabServer(); sync()"
SMUGGLE = """
stream, base, root = raw()
ask = lambda data: (stream.sendall(data), stream.recv(32, socket.MSG_WAITALL))[1]
opcode = ask(struct.pack("<BxHHxx", 98, 5, 12) + b"BIG-REQUESTS")[9]
# Refused for its length, so that what follows is not a big request, whatever its header looks like.
assert ask(struct.pack("<BBHI", opcode, 0, 2, 0))[0] == 0
stream.sendall(struct.pack("<BBHI", 127, 0, 0, 4) + struct.pack("<BxH", 36, 1) + struct.pack("<BxH", 127, 1))
"""


HINDERING = {
    "grab and compute": f"{GRAB}\nwhile True: pass",
    "grab and wait": f"{GRAB}\ntime.sleep(60)",
    "grab unseen": f"{SMUGGLE}\ntime.sleep(60)",
    "kill all": "for n in range(256): core.KillClient(n << 21 | 1)\nsync()",
    "kill what is left over": "core.KillClient(0); sync()",
    "stopped": "os.kill(os.getpid(), signal.SIGSTOP)",
    "open door": "core.SetAccessControl(0); sync()",
}


def test_screenshot_works_under_display_attacks(box, shown, victim):
    picture = shown[1]

    def hinder(name):
        with contextlib.closing(Inside(box)) as attacker:
            equip(attacker)
            attacker.begin(f"{WINDOW}\nopen('drawn', 'w').close()\n{textwrap.dedent(HINDERING[name])}", 60)
            files = attacker._session.http.files
            assert eventually(lambda: any(file.name == "drawn" for file in files.list()))
            time.sleep(0.3)
            # Most attacks do not end by themselves.
            interrupt(attacker)
            assert attacker.wait(60).screenshot == picture
            equip(attacker)
            assert draw(attacker) == picture

    check_side_by_side(hinder, HINDERING)


FLOODS = {
    "requests": """
    stream, base, root = raw()
    while True: stream.sendall(struct.pack("<BxH", 127, 1) * 100_000)
    """,
    "questions": """
    stream, base, root = raw()
    stream.settimeout(60)
    while True: stream.sendall(struct.pack("<BxH", 43, 1) * 100_000)
    """,
    "pictures": """
    stream, base, root = raw()
    stream.settimeout(60)
    while True: stream.sendall(struct.pack("<BBHIhhHHI", 73, 2, 5, root, 0, 0, 640, 480, 0xFFFFFFFF) * 1000)
    """,
    "windows": """
    stream, base, root = raw()
    for n in range(100_000):
        stream.sendall(struct.pack("<BBHIIhhHHHHII", 1, 0, 8, base + n, root, n % 640, n % 480, 9, 9, 0, 1, 0, 0)
                       + struct.pack("<BxHI", 8, 2, base + n))
    """,
    "pixmaps": """
    stream, base, root = raw()
    for n in range(100):
        stream.sendall(struct.pack("<BBHIIHH", 53, 24, 4, base + 2 * n, root, 8000, 8000)
                       + struct.pack("<BxHIII", 55, 4, base + 2 * n + 1, base + 2 * n, 0)
                       + struct.pack("<BxHIIhhHH", 70, 5, base + 2 * n, base + 2 * n + 1, 0, 0, 8000, 8000))
    time.sleep(60)
    """,
    "property": """
    stream, base, root = raw()
    while True:
        stream.sendall(struct.pack("<BBHIIIB3xI", 18, 2, 6 + 50_000, root, 39, 31, 8, 200_000) + bytes(200_000))
    """,
    "half a request": """
    stream, base, root = raw()
    stream.sendall(struct.pack("<BBHI", 18, 2, 6 + 50_000, root))
    time.sleep(60)
    """,
    "garbage": """
    held = []
    while True:
        garbage = socket.socket(socket.AF_UNIX)
        garbage.connect(path())
        attempt(lambda: garbage.sendall(os.urandom(4096)))
    """,
    "half a setup": """
    held = []
    for size in (1, 0xFFFF):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(path())
        stream.sendall(struct.pack("<BxHHHHxx", 0x6C, 11, 0, size, size) + b"x")
        held.append(stream)
    time.sleep(60)
    """,
    "connections": """
    held = []
    for _ in range(500): attempt(lambda: held.append(connect(path())))
    time.sleep(60)
    """,
    "mapping": """
    stream, base, root = raw()
    stream.sendall(struct.pack("<BBHIIhhHHHHIII", 1, 0, 9, base, root, 0, 0, 640, 480, 0, 1, 0, 2, 0xFF00FF))
    while True:
        stream.sendall((struct.pack("<BxHI", 8, 2, base) + struct.pack("<BxHI", 10, 2, base)) * 100)
    """,
    "descriptors": """
    stream, base, root = raw()
    while True:
        for end in os.pipe(): attempt(lambda: socket.send_fds(stream, [struct.pack("<BxH", 127, 1)], [end] * 200))
    """,
    "sizes": """
    stream, base, root = raw()
    stream.sendall(struct.pack("<BxHHxx", 98, 4, 5) + padded(b"RANDR"))
    opcode = stream.recv(32, socket.MSG_WAITALL)[9]
    stream.sendall(struct.pack("<BBHI", opcode, 8, 2, root))
    head = stream.recv(32, socket.MSG_WAITALL)
    crtc = struct.unpack("<I", stream.recv(4 * struct.unpack_from("<I", head, 4)[0], socket.MSG_WAITALL)[:4])[0]
    stream.sendall(struct.pack("<BBHIIIhhIHxx", opcode, 21, 7, crtc, 0, 0, 0, 0, 0, 1))
    for width, height in ((64, 64), (2048, 2048), (1, 1), (320, 479)):
        stream.sendall(struct.pack("<BBHIHHII", opcode, 7, 5, root, width, height, 100, 100))
    time.sleep(60)
    """,
}


def test_display_floods_do_not_delay_other_sessions(box, victim, shown):
    def flood(name):
        with contextlib.closing(Inside(box)) as attacker:
            equip(attacker)
            attacker.begin(FLOODS[name], 60)
            for _ in range(3):
                with victims_turn, promptly():
                    assert victim.see("sync() and 6 * 7") == 42
                # Spread over the attack.
                time.sleep(0.1)
            interrupt(attacker)
            with promptly():
                assert attacker.wait(60).metadata.outcome is not Outcome.INFRASTRUCTURE
            equip(attacker)
            assert draw(attacker) == shown[1]

    victims_turn = threading.Lock()
    check_side_by_side(flood, FLOODS)
