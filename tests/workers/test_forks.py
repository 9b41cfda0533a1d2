"""State that forked processes share with their parents, and state that they do not."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from coding_gym.sandbox.docker.images import ensure_image
from coding_gym_server.linux.forking import fork_when_possible
from coding_gym_server.zygote import heap
from conftest import TestSession


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sessions_have_secrets_of_their_own(open_session: Callable[[], TestSession]) -> None:
    code = "import multiprocessing\nprint(multiprocessing.current_process().authkey.hex())"
    sessions = [open_session() for _ in range(2)]
    found = [session.run(code).stdout for session in sessions]
    sessions[0].reset()
    found.append(sessions[0].run(code).stdout)
    assert len(set(found)) == len(found) == 3


def test_fork_retries_while_processes_are_exhausted() -> None:
    answers = iter([BlockingIOError(errno.EAGAIN, "none left"), BlockingIOError(errno.EAGAIN, "none left"), 7])
    meanwhile = []

    def fork() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert fork_when_possible(fork, on_wait=lambda: meanwhile.append(1)) == 7
    assert len(meanwhile) == 2


def test_fork_retry_gives_up_eventually() -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "none left")

    with pytest.raises(BlockingIOError):
        fork_when_possible(fork)


def test_fork_never_retries_memory_errors() -> None:
    def fork() -> int:
        raise OSError(errno.ENOMEM, "no memory")

    with pytest.raises(OSError, match="no memory"):
        fork_when_possible(fork)


def test_bare_fork_supports_threads_and_forks() -> None:
    said = _run(
        """
        import os
        from coding_gym_server.linux.forking import fork_bare
        pid = fork_bare()
        if not pid:
            import json, threading
            thread = threading.Thread(target=print, args=(json.dumps([1]),), kwargs={"flush": True})
            thread.start()
            thread.join()
            if not os.fork(): os._exit(3)
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]) + 4)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert said == "[1]\n7\n"


def test_failed_bare_fork_raises_os_error() -> None:
    said = _run(
        """
        import os, resource
        from coding_gym_server.linux.forking import fork_bare
        if os.getuid() == 0:
            # There is no limit for root.
            os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        try:
            fork_bare()
        except BlockingIOError as error:
            print(error)
        """
    )
    assert "Resource temporarily unavailable" in said


RESERVE = """
from coding_gym_server.zygote import heap
heap.reserve(64 << 20)
print(open("/proc/self/maps").read())
"""

IMMORTALIZE = """
import gc, json, sys, weakref
class Thing: pass
kept = Thing()
from coding_gym_server.zygote import heap
heap.make_immortal()
gc.freeze()
print(sys.getrefcount(kept) == sys.getrefcount(None))
# What comes later is mortal.
new = Thing()
seen = weakref.ref(new)
del new
print(seen() is None, sys.getrefcount(Thing()) < 3)
for _ in range(100_000):
    kept, json.dumps({"a": [1, None, "b"]}), dict(sys.modules)
del kept
heap.collapse()
print(json.loads('{"a": [1]}'))
"""

IS_TUNED = "from coding_gym_server.zygote import heap; print(heap.is_tuned())"


@pytest.fixture(scope="module")
def run_in_image(docker_engine: docker.DockerClient) -> Callable[[str], str]:
    """Function that runs a program in the interpreter of the image."""
    image = ensure_image(docker_engine, None)

    def run(code: str) -> str:
        command = ["-c", code]
        return docker_engine.containers.run(image, command, entrypoint="python", remove=True, network_mode="none").decode()

    return run


def _largest_region(maps: str) -> int:
    regions = re.findall(r"^(\w+)-(\w+) rw-p 00000000 00:00 0 *$", maps, re.MULTILINE)
    return max(int(end, 16) - int(start, 16) for start, end in regions)


@pytest.mark.docker
def test_image_interpreter_is_tuned(run_in_image: Callable[[str], str]) -> None:
    assert run_in_image(IS_TUNED) == "True\n"
    # An untuned heap grows in arenas of 1 MB; adjacent arenas form one region.
    assert _largest_region(run_in_image(RESERVE)) >= 63 << 20
    assert run_in_image(IMMORTALIZE) == "True\nTrue True\n{'a': [1]}\n"


@pytest.mark.skipif(heap.is_tuned(), reason="this interpreter is tuned, like that of the image")
def test_other_interpreters_are_not_tuned() -> None:
    assert _run(IS_TUNED) == "False\n"
    assert _largest_region(_run(RESERVE)) < 63 << 20
    assert _run(IMMORTALIZE) == "False\nTrue True\n{'a': [1]}\n"


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("implementation", SimpleNamespace(cache_tag="cpython-312")),
        ("implementation", SimpleNamespace(cache_tag="cpython-314")),
        ("implementation", SimpleNamespace(cache_tag="pypy311")),
        ("abiflags", "d"),
        ("abiflags", "t"),
        ("platform", "freebsd14"),
    ],
)
def test_only_measured_build_is_tuned(monkeypatch: pytest.MonkeyPatch, attribute: str, value: Any) -> None:
    monkeypatch.setattr(sys, "implementation", SimpleNamespace(cache_tag="cpython-313"))
    monkeypatch.setattr(sys, "abiflags", "")
    monkeypatch.setattr(sys, "platform", "linux")
    assert heap.is_tuned()
    monkeypatch.setattr(sys, attribute, value)
    assert not heap.is_tuned()


@pytest.mark.parametrize(("chosen", "method"), [(None, "fork"), ("spawn", "spawn")])
def test_multiprocessing_defaults_to_fork(chosen: str | None, method: str) -> None:
    said = _run(
        f"""
        import multiprocessing
        from coding_gym_server.linux.forking import default_to_fork
        default_to_fork()
        if {chosen!r}:
            multiprocessing.set_start_method({chosen!r})
        print(multiprocessing.get_start_method())
        """
    )
    assert said == f"{method}\n"


def test_sessions_share_unchanged_memory(session: Any, provider: str) -> None:
    seen = session.run(
        "import sys, json, threading, os\n"
        "print(sys.getrefcount(json) == sys.getrefcount(None))\n"
        "print(sys.getrefcount(object()) < 3, threading.main_thread().native_id == os.getpid())\n"
        "print(sys.stdout.seekable(), sys.stdin.read() == '', sys.stdout is sys.__stdout__)"
    )
    is_immortal = provider == "docker" or heap.is_tuned()
    assert seen.stdout == f"{is_immortal}\nTrue True\nFalse True True\n"


@pytest.mark.parametrize("fork", ["clone_sibling()", "clone_into(0)"])
def test_clone_knows_its_own_thread_id(fork: str) -> None:
    """The C library caches it, and compares it with the owners of locks."""
    _run(f"""
        import ctypes, os
        from coding_gym_server.linux import cloning
        from coding_gym_server.linux.forking import adopt_orphans

        def cached():
            address = ctypes.c_void_p()
            assert ctypes.CDLL(None).prctl(40, ctypes.byref(address), 0, 0, 0) == 0
            return ctypes.c_int.from_address(address.value).value

        adopt_orphans()
        original = os.fork()
        if original == 0:
            if cloning.{fork} == 0:
                os._exit(0 if cached() == os.getpid() else 1)
            os._exit(0)
        while True:
            try:
                assert os.wait()[1] == 0
            except ChildProcessError:
                break
    """)
