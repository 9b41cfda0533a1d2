"""Hidden inputs that a submission writes elsewhere: neither a session nor the next submission can read them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest

from coding_gym.sandbox import Sandbox
from coding_gym_server.protocol.grading import GradingLimits, VerdictOutcome
from tests.grading.judging import Judge
from tests.security.attack import Inside
from tests.support.plain_container import plain_container

pytestmark = pytest.mark.every_provider

_SECRET = "4c7a-of-a-hidden-test"

_LEAK = """
import ctypes, fcntl, os, socket, struct, threading, time

def attempt(function, *arguments):
    try:
        return function(*arguments)
    except Exception:
        return None

def write(path, secret):
    with open(path, "w") as file:
        file.write(secret)
    os.chmod(path, 0o666)

def listen(name, secret):
    server = socket.socket(socket.AF_UNIX)
    server.bind(name)
    server.listen()
    while True:
        server.accept()[0].sendall(secret.encode())

def leak(secret, seconds=0):
    libc = ctypes.CDLL(None)
    for directory in ("/dev/shm", "/tmp", "/home/user", "/var/tmp", "/run", "/dev", "/dev/mqueue", "."):
        attempt(write, f"{directory}/left-by-submission", secret)
        attempt(os.mkfifo, f"{directory}/fifo-of-submission", 0o666)
    for name in ("\\0left-by-submission", "/tmp/socket-of-submission", "/dev/shm/socket-of-submission"):
        threading.Thread(target=attempt, args=(listen, name, secret), daemon=True).start()
    number = libc.shmget(0x4c7a, 4096, 0o1666)
    if number >= 0:
        libc.shmat.restype = ctypes.c_void_p
        ctypes.memmove(libc.shmat(number, None, 0), secret.encode(), len(secret))
    queue = libc.msgget(0x4c7a, 0o1666)
    if queue >= 0:
        libc.msgsnd(queue, struct.pack("l", 1) + secret.encode(), len(secret), 0)
    queue = libc.mq_open(b"/left-by-submission", os.O_RDWR | os.O_CREAT, 0o666, None)
    if queue >= 0:
        libc.mq_send(queue, secret.encode(), len(secret), 0)
    from multiprocessing.shared_memory import SharedMemory
    memory = attempt(SharedMemory, "memory-of-submission", True, 4096)
    if memory is not None:
        memory.buf[: len(secret)] = secret.encode()
    time.sleep(seconds)
    return len(secret)
"""

_LOOK = f"""
import ctypes, os, socket
SECRET = {_SECRET!r}

def look_at(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__

def read(path):
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), errors="replace").read()

def receive(name):
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(1)
    client.connect(name)
    return client.recv(100)

def look():
    libc = ctypes.CDLL(None)
    names = ("left-by-submission", "fifo-of-submission", "memory-of-submission", "psm_memory-of-submission")
    directories = ("/dev/shm", "/tmp", "/home/user", "/var/tmp", "/run", "/dev", "/dev/mqueue", ".")
    found = [look_at(read, f"{{directory}}/{{name}}") for directory in directories for name in names]
    sockets = ("\\0left-by-submission", "/tmp/socket-of-submission", "/dev/shm/socket-of-submission")
    found += [look_at(receive, name) for name in sockets]
    number = libc.shmget(0x4c7a, 4096, 0o666)
    if number >= 0:
        libc.shmat.restype = ctypes.c_void_p
        found.append(ctypes.string_at(libc.shmat(number, None, 0), 4096))
    buffer = ctypes.create_string_buffer(9000)
    queue = libc.msgget(0x4c7a, 0o666)
    if queue >= 0 and libc.msgrcv(queue, buffer, 4096, 0, 0o4000) >= 0:
        found.append(buffer.raw)
    queue = libc.mq_open(b"/left-by-submission", os.O_RDONLY | os.O_NONBLOCK)
    if queue >= 0 and libc.mq_receive(queue, buffer, 8192, None) >= 0:
        found.append(buffer.raw)
    return [number for number, text in enumerate(found) if SECRET in str(text)]
"""


@pytest.fixture(scope="module", params=["namespaces", "one session"])
def box(request: pytest.FixtureRequest, provider: str, sandbox_of: Callable[..., Sandbox]) -> Iterator[Sandbox]:
    if request.param == "namespaces":
        yield sandbox_of(provider=provider)
    elif provider == "docker":
        with plain_container() as box:
            yield box
    else:
        pytest.skip("a local sandbox has namespaces")


@pytest.fixture
def judge(box: Sandbox) -> Iterator[Judge]:
    with contextlib.closing(box.connect()) as session:
        yield Judge(session)


def test_submission_finds_what_it_has_written_itself(judge: Judge) -> None:
    """The places are the right ones: in its own process, the secret is there."""
    graded = judge.asserts(f"{_LEAK}\n{_LOOK}", f"leak({_SECRET!r})\nassert len(look()) >= 2, look()")
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases


def test_session_reads_no_hidden_input_during_grading(box: Sandbox, judge: Judge) -> None:
    limits = GradingLimits(cpu_timeout=10, wall_timeout=30)
    call = f"assert leak({_SECRET!r}, 1.5) == {len(_SECRET)}"
    grading = threading.Thread(target=judge.asserts, args=(_LEAK, call), kwargs={"limits": limits})
    with contextlib.closing(Inside(box)) as session:
        session.do(_LOOK)
        grading.start()
        looks = []
        while grading.is_alive():
            looks.append(session.see("look()"))
        grading.join()
        looks.append(session.see("look()"))
    assert len(looks) > 1
    assert [look for look in looks if look] == []


def test_next_submission_reads_no_hidden_input(judge: Judge) -> None:
    assert judge.asserts(_LEAK, f"assert leak({_SECRET!r}) == {len(_SECRET)}").outcome is VerdictOutcome.PASSED
    graded = judge.asserts(_LOOK, "assert look() == []")
    assert graded.outcome is VerdictOutcome.PASSED, graded.cases
