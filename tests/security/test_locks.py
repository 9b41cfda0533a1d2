"""Locks of files: what the kernel remembers of them counts toward the memory of no control group."""

from __future__ import annotations

import pytest

from coding_gym_server.protocol import Outcome
from tests.support.timing import promptly

pytestmark = pytest.mark.every_provider

TAKE = """
    import fcntl, os, struct
    # The kernel searches a file's locks one by one.
    files = [os.open(f"file{n}", os.O_RDWR | os.O_CREAT) for n in range(200)]
    def take(count, operation=fcntl.F_SETLK):
        for n in range(count):
            # Not next to each other: the kernel would merge them.
            begin = n // len(files) * 2
            fcntl.fcntl(files[n % len(files)], operation, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, begin, 1, 0))
        return count
"""


def test_many_locks_are_permitted(attacker, victim):
    attacker.do(TAKE)
    assert attacker.see("take(2000)") == 2000
    assert (
        attacker.run("import sqlite3; c = sqlite3.connect('d'); c.execute('create table t (x)')").metadata.outcome is Outcome.OK
    )


@pytest.mark.parametrize("where", ["in the interpreter", "in a child", "in daemons"])
def test_session_with_very_many_locks_is_ended(attacker, victim, where):
    attacker.do(TAKE)
    code = {
        "in the interpreter": "take(10 ** 9)",
        "in a child": "os.fork() or take(10 ** 9)\nos.wait()",
        "in daemons": "for _ in range(3): os.fork() or (os.setsid(), os.fork() or take(10 ** 9), os._exit(0))\ntime.sleep(60)",
    }[where]
    with promptly():
        seen = attacker.run(code, 60)
    assert (seen.metadata.outcome, "locks of files or more; the limit is" in seen.stderr) == (Outcome.KILLED, True)
    attacker.reset()
    assert attacker.see("6 * 7") == 42


def test_locks_of_nobody_are_refused(attacker):
    attacker.do(TAKE)
    found = attacker.attempts([f"take(1, {number})" for number in (37, 38)])
    assert set(found.values()) == {"EINVAL"}
