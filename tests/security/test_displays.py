"""Isolation of screens: other sessions have no access, attacks do not affect them, and captures keep working."""

from __future__ import annotations

import contextlib
import textwrap
import time

import pytest

from coding_gym_server.protocol import Outcome
from tests.gallery.gui_programs import SCENES
from tests.security.attack import REFUSED, Inside

pytestmark = pytest.mark.every_provider

WINDOW = next(scene for scene in SCENES if scene.name == "xcb_window").code
ATTACK_SECONDS = 1.0
FLOOD_SECONDS = 0.5
ANSWER_SECONDS = 20.0

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

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def servers():
    # The command lines of this sandbox's: their displays are children of the zygote, as the sessions' roots are.
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words, pid = open(path).read().split("\\0"), int(path.split("/")[2])
            if os.path.basename(words[0]) == "Xvfb" and parent(parent(pid)) == parent(os.getppid()):
                found[pid] = words
        except OSError:
            pass
    return found
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
    """Session whose window is attacked, its screenshot, and the process ids of its display."""
    with contextlib.closing(Inside(box)) as session:
        equip(session)
        picture = draw(session)
        (server,) = session.see("list(servers())")
        pids = {"server": server, "display": session.see(f"parent({server})")}
        yield session, picture, pids


@pytest.fixture
def victim(shown):
    session, picture, _ = shown
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


COOKIES = {"none": "b'', b''", "empty": "b''", "wrong": "os.urandom(16)", "short": "own_cookie()[:8]", "own": "own_cookie()"}


@pytest.mark.parametrize("cookie", COOKIES.values(), ids=COOKIES)
def test_display_refuses_wrong_cookie(neighbor, victim, cookie):
    theirs = victim.see("number()")
    assert theirs != neighbor.see("number()")
    assert neighbor.see("lets_in(path(), own_cookie())")
    assert not neighbor.see(f"lets_in(path({theirs}), {cookie})")


def test_xcffib_cannot_connect_to_other_display(neighbor, victim):
    neighbor.do(f"""
        import xcffib, xcffib.xproto
        refused = None
        try:
            xcffib.connect(":{victim.see("number()")}")
        except xcffib.ConnectionException as error:
            refused = type(error).__name__
    """)
    assert neighbor.see("refused")


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
            tops = ["/run", "/tmp", "/dev/shm", "/var/tmp", os.path.dirname(os.path.dirname(os.path.dirname(os.getcwd())))]
            found = [path for top in tops for path in search(top, secret)]
            for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
                attempt(lambda: secret in open(path, "rb").read() and found.append(path))
            return found
    """)
    assert neighbor.see("search(os.path.dirname(os.environ['XAUTHORITY']), own_cookie())")
    cookie = victim.see("own_cookie().hex()")
    assert neighbor.see(f"search_all(bytes.fromhex({cookie!r}))") == []


@pytest.mark.parametrize("whose", ["its own", "another's"])
def test_display_proxy_cannot_be_bypassed(neighbor, victim, whose):
    """Xvfb requires a cookie that no session knows, and listens on a socket that no session can reach."""
    neighbor.do("""
        addresses = {line.split()[-1] for line in open("/proc/net/unix") if ".X11-unix/X" in line}
        addresses |= {f"@/tmp/.X11-unix/X{n}" for n in range(100)} | set(glob.glob("/tmp/.X11-unix/*"))
        names = [address.replace("@", "\\0") for address in addresses - {path()}]
    """)
    cookie = "own_cookie()" if whose == "its own" else f"bytes.fromhex({victim.see('own_cookie().hex()')!r})"
    tried = neighbor.see(f"[name for name in names if name != path({victim.see('number()')}) and lets_in(name, {cookie})]")
    assert tried == []


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
    assert not victim.see(f"lets_in(path({attacker.see('number()')}), b'', b'')")
    assert not victim.see(f"lets_in(path({attacker.see('number()')}))")


# Processes and files of displays


@pytest.mark.parametrize(
    "action",
    [
        "os.kill(pid, 0)",
        "os.kill(pid, 2)",
        "os.kill(pid, 9)",
        "os.kill(pid, 19)",
        "call('tgkill', pid, pid, 9)",
        "call('pidfd_send_signal', os.pidfd_open(pid), 9, 0, 0)",
        "call('pidfd_getfd', os.pidfd_open(pid), 0, 0)",
        "call('ptrace', 16, pid, 0, 0)",
        "call('ptrace', 0x4206, pid, 0, 0)",
        "call('process_vm_readv', pid, struct.pack('PL', ctypes.addressof(page), 8), 1, struct.pack('PL', 0x400000, 8), 1, 0)",
        "call('process_vm_writev', pid, struct.pack('PL', ctypes.addressof(page), 8), 1, struct.pack('PL', 0x400000, 8), 1, 0)",
        "resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1))",
        "os.setpriority(os.PRIO_PROCESS, pid, 19)",
        "os.sched_setaffinity(pid, {0})",
        *(f"open(f'/proc/{{pid}}/{name}', 'rb').read(1)" for name in ("mem", "environ", "maps", "auxv", "io", "fd/3")),
        *(f"os.readlink(f'/proc/{{pid}}/{name}')" for name in ("cwd", "root", "exe", "fd/0")),
        "os.listdir(f'/proc/{pid}/map_files')",
        "os.open(f'/proc/{pid}/oom_score_adj', os.O_WRONLY)",
    ],
)
def test_display_processes_are_inaccessible(neighbor, victim, shown, action):
    for target in ("server", "display"):
        neighbor.do(f"pid = {shown[2][target]}; page = ctypes.create_string_buffer(64)")
        assert neighbor.attempt(action) in {*REFUSED, "ENOENT"}, target


@pytest.mark.parametrize(
    "action",
    [
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
    ],
)
def test_display_files_are_inaccessible(neighbor, victim, shown, action):
    """Reading the file of pixels would reveal the screen; truncating it would kill the process that maps it."""
    theirs = shown[2]["server"]
    for is_others in (False, True):
        neighbor.do(f"""
            lines = servers()
            wanted = [pid == {theirs} for pid in lines].index({is_others})
            words = list(lines.values())[wanted]
            directory = words[words.index("-fbdir") + 1]
        """)
        for name in ("Xvfb_screen0", "authority"):
            neighbor.do(f"file = {name!r}")
            assert neighbor.attempt(action) in {*REFUSED, "ENOENT", "EXDEV"}, (is_others, name)


@pytest.mark.parametrize(
    "action",
    [
        "os.unlink(path({n}))",
        "os.rename(path({n}), path(99))",
        "os.link(path({n}), 'linked')",
        "os.chmod('/tmp/.X11-unix', 0)",
        "os.rename('/tmp/.X11-unix', '/tmp/moved')",
        "socket.socket(socket.AF_UNIX).bind(path({n}))",
    ],
)
def test_sockets_of_other_displays_are_protected(enter, victim, have_users, action):
    neighbor = enter()
    neighbor.do(TOOLS)
    action = action.replace("{n}", str(victim.see("number()")))
    # With mounts of its own, a session has its own directory of sockets.
    harmless = {"done"} if have_users else set()
    assert neighbor.attempt(action) in {*REFUSED, "EADDRINUSE", "EXDEV", "ENOENT"} | harmless
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


def keeps_its_picture(attacker, code, timeout=ATTACK_SECONDS):
    """Draw, run ``code``, which need not end, and check that this screenshot and the next one are intact."""
    picture = draw(attacker)
    equip(attacker)
    seen = attacker.run(f"{WINDOW}\n{textwrap.dedent(code)}", timeout)
    assert seen.screenshot == picture
    equip(attacker)
    assert draw(attacker) == picture


GRAB = "core.GrabServer(); sync()"
SMUGGLE = """
stream, base, root = raw()
ask = lambda data: (stream.sendall(data), stream.recv(32, socket.MSG_WAITALL))[1]
opcode = ask(struct.pack("<BxHHxx", 98, 5, 12) + b"BIG-REQUESTS")[9]
# Refused for its length, so that what follows is no big request, whatever its header looks like.
assert ask(struct.pack("<BBHI", opcode, 0, 2, 0))[0] == 0
stream.sendall(struct.pack("<BBHI", 127, 0, 0, 4) + struct.pack("<BxH", 36, 1) + struct.pack("<BxH", 127, 1))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        f"{GRAB}\nwhile True: pass",
        f"{GRAB}\ntime.sleep(60)",
        f"{SMUGGLE}\ntime.sleep(60)",
        "for n in range(256): core.KillClient(n << 21 | 1)\nsync()",
        "core.KillClient(0); sync()",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "core.SetAccessControl(0); sync()",
    ],
    ids=["grab and compute", "grab and wait", "grab unseen", "kill all", "kill what is left over", "stopped", "open door"],
)
def test_screenshot_works_under_display_attacks(attacker, victim, code):
    keeps_its_picture(attacker, code)


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        """
        stream, base, root = raw()
        while True: stream.sendall(struct.pack("<BxH", 127, 1) * 100_000)
        """,
        """
        stream, base, root = raw()
        stream.settimeout(60)
        while True: stream.sendall(struct.pack("<BxH", 43, 1) * 100_000)
        """,
        """
        stream, base, root = raw()
        stream.settimeout(60)
        while True: stream.sendall(struct.pack("<BBHIhhHHI", 73, 2, 5, root, 0, 0, 640, 480, 0xFFFFFFFF) * 1000)
        """,
        """
        stream, base, root = raw()
        for n in range(100_000):
            stream.sendall(struct.pack("<BBHIIhhHHHHII", 1, 0, 8, base + n, root, n % 640, n % 480, 9, 9, 0, 1, 0, 0)
                           + struct.pack("<BxHI", 8, 2, base + n))
        """,
        """
        stream, base, root = raw()
        for n in range(100):
            stream.sendall(struct.pack("<BBHIIHH", 53, 24, 4, base + 2 * n, root, 8000, 8000)
                           + struct.pack("<BxHIII", 55, 4, base + 2 * n + 1, base + 2 * n, 0)
                           + struct.pack("<BxHIIhhHH", 70, 5, base + 2 * n, base + 2 * n + 1, 0, 0, 8000, 8000))
        time.sleep(60)
        """,
        """
        stream, base, root = raw()
        while True:
            stream.sendall(struct.pack("<BBHIIIB3xI", 18, 2, 6 + 50_000, root, 39, 31, 8, 200_000) + bytes(200_000))
        """,
        """
        stream, base, root = raw()
        stream.sendall(struct.pack("<BBHI", 18, 2, 6 + 50_000, root))
        time.sleep(60)
        """,
        """
        held = []
        while True:
            garbage = socket.socket(socket.AF_UNIX)
            garbage.connect(path())
            attempt(lambda: garbage.sendall(os.urandom(4096)))
        """,
        """
        held = []
        for size in (1, 0xFFFF):
            stream = socket.socket(socket.AF_UNIX)
            stream.connect(path())
            stream.sendall(struct.pack("<BxHHHHxx", 0x6C, 11, 0, size, size) + b"x")
            held.append(stream)
        time.sleep(60)
        """,
        """
        held = []
        for _ in range(500): attempt(lambda: held.append(connect(path())))
        time.sleep(60)
        """,
        """
        stream, base, root = raw()
        stream.sendall(struct.pack("<BBHIIhhHHHHIII", 1, 0, 9, base, root, 0, 0, 640, 480, 0, 1, 0, 2, 0xFF00FF))
        while True:
            stream.sendall((struct.pack("<BxHI", 8, 2, base) + struct.pack("<BxHI", 10, 2, base)) * 100)
        """,
        """
        stream, base, root = raw()
        while True:
            for end in os.pipe(): attempt(lambda: socket.send_fds(stream, [struct.pack("<BxH", 127, 1)], [end] * 200))
        """,
        """
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
    ],
    ids="""requests questions pictures windows pixmaps property half-a-request garbage half-a-setup connections
    mapping descriptors sizes""".split(),  # noqa: SIM905
)
def test_display_floods_do_not_delay_other_sessions(attacker, victim, shown, code):
    attacker.begin(code, FLOOD_SECONDS)
    start = time.monotonic()
    for _ in range(3):
        begin = time.monotonic()
        assert victim.see("sync() and 6 * 7") == 42
        assert time.monotonic() - begin < ANSWER_SECONDS
        # Spread over the attack.
        time.sleep(FLOOD_SECONDS / 4)
    seen = attacker.wait(FLOOD_SECONDS)
    assert seen.metadata.outcome is not Outcome.INFRASTRUCTURE
    assert time.monotonic() - start < FLOOD_SECONDS + ANSWER_SECONDS
    equip(attacker)
    assert draw(attacker) == shown[1]
