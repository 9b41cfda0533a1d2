"""What processes have in common with those that they were forked from, and what not."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from coding_gym_server.workers.forking import fork_when_possible


def _run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fork_waits_for_room() -> None:
    answers = iter([BlockingIOError(errno.EAGAIN, "none left"), BlockingIOError(errno.EAGAIN, "none left"), 7])
    meanwhile = []

    def fork() -> int:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    assert fork_when_possible(fork, meanwhile=lambda: meanwhile.append(1)) == 7
    assert len(meanwhile) == 2


def test_a_fork_does_not_wait_for_ever() -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "none left")

    with pytest.raises(BlockingIOError):
        fork_when_possible(fork)


def test_a_fork_does_not_wait_for_memory() -> None:
    def fork() -> int:
        raise OSError(errno.ENOMEM, "no memory")

    with pytest.raises(OSError, match="no memory"):
        fork_when_possible(fork)


def test_a_bare_fork_is_a_process_like_any_other() -> None:
    said = _run(
        """
        import os
        from coding_gym_server.workers.forking import fork_bare
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


def test_a_bare_fork_that_fails_says_why() -> None:
    said = _run(
        """
        import os, resource
        from coding_gym_server.workers.forking import fork_bare
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


def test_reserved_memory_lies_in_one_piece() -> None:
    said = _run(
        """
        from coding_gym_server.workers import heap
        heap.reserve(8 << 20)
        print(open("/proc/self/maps").read())
        """
    )
    sizes = [
        int(end, 16) - int(start, 16) for start, end in re.findall(r"^(\w+)-(\w+) rw-p 00000000 00:00 0 *$", said, re.MULTILINE)
    ]
    assert max(sizes) >= 7 << 20


def test_immortal_objects_are_as_before() -> None:
    said = _run(
        """
        import gc, json, sys, weakref
        class Thing: pass
        kept = Thing()
        from coding_gym_server.workers import heap
        heap.immortalize()
        gc.freeze()
        print(sys.version_info < (3, 12) or sys.getrefcount(kept) == sys.getrefcount(None))
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
    )
    assert said == "True\nTrue True\n{'a': [1]}\n"


def test_sessions_share_what_they_do_not_change(session: Any) -> None:
    seen = session.run(
        "import sys, json, threading, os\n"
        "print(sys.version_info < (3, 12) or sys.getrefcount(json) == sys.getrefcount(None))\n"
        "print(sys.getrefcount(object()) < 3, threading.main_thread().native_id == os.getpid())\n"
        "print(sys.stdout.seekable(), sys.stdin.read() == '', sys.stdout is sys.__stdout__)"
    )
    assert seen.stdout == "True\nTrue True\nFalse True True\n"
