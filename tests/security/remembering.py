"""``python -m tests.security.remembering``: measures what a submission can leave for later ones.

One grading writes random bits, and the next reads them: into counters, by counting up to a number, and into the page cache, by
reading pages of a file that nothing has read before. It prints the speed, and how many bits were read right.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable
from typing import NamedTuple

from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_server.protocol.grading import GradingLimits, ProgramCase, Programs, Submission

__all__ = ["main"]

_TRIALS = 10
_PAGES = 8192
_LIMITS = GradingLimits(cpu_timeout=60.0, wall_timeout=60.0, max_output_chars=2 * _PAGES)

_COUNTERS = """
import os, socket, time
sender, receiver = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
receiver.bind(("127.0.0.1", 0))

def inode():
    ends = os.pipe()
    number = os.fstat(ends[0]).st_ino
    for end in ends: os.close(end)
    return number // 4096  # Processors take blocks of numbers.

def process():
    pid = os.fork()
    if not pid: os._exit(0)
    os.waitpid(pid, 0)
    return pid

def refused():
    header, values = (line.split() for line in open("/proc/net/snmp") if line.startswith("Udp:"))
    return int(values[header.index("NoPorts")])

def received():
    return int(open("/proc/net/dev").read().split("lo:")[1].split()[0])

def send_to(message, modulus):
    left = (message - received()) % modulus + modulus
    while left:
        size = left if 28 <= left < 60000 else min(left - 28, 60000)
        sender.sendto(bytes(size - 28), receiver.getsockname())
        left -= size
"""

_MAPPED = """
import mmap, os, resource, time
file = os.open({path!r}, os.O_RDONLY)
pages = mmap.mmap(file, 0, prot=mmap.PROT_READ)
pages.madvise(mmap.MADV_RANDOM)
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_majflt
def is_cached(page):
    before = faults()
    pages[page * 4096]
    return faults() == before
"""


class _Counter(NamedTuple):
    """A counter.

    Attributes:
        name: What it counts.
        bits: Number of bits of the number that is written.
        read: Expression of its value.
        write: Statement that counts up until it is ``message`` modulo ``modulus``.
    """

    name: str
    bits: int
    read: str
    write: str


_ALL_COUNTERS = (
    _Counter("inode numbers of pipes", 4, "inode()", "while inode() % modulus != message: pass"),
    # The number is that of the process which reads it.
    _Counter("process ids", 8, "process()", "while process() % modulus != (message - 2) % modulus: pass"),
    _Counter(
        "refused datagrams",
        12,
        "refused()",
        "for _ in range((message - refused()) % modulus): sender.sendto(b'', ('127.0.0.1', 9))",
    ),
    _Counter("bytes of lo", 24, "received()", "send_to(message, modulus)"),
)


def main() -> None:
    """Measure in a local sandbox; the argument is a large file that submissions may read."""
    with (
        contextlib.closing(start_sandbox(SandboxConfig(provider="local", preload=()))) as sandbox,
        contextlib.closing(sandbox.connect()) as session,
    ):

        def run(code: str) -> list[str]:
            tests = Programs(cases=(ProgramCase(stdout="-"),))
            graded = session.grade(Submission(code=code, tests=tests, limits=_LIMITS), timeout=90.0)
            return graded.stdout.split()

        for counter in _ALL_COUNTERS:
            _measure_counter(counter, run)
        for path in sys.argv[1:]:
            _measure_pages(path, run)


def _measure_counter(counter: _Counter, run: Callable[[str], list[str]]) -> None:
    seconds, right = 0.0, 0
    modulus = 1 << counter.bits
    for _ in range(_TRIALS):
        message = random.randrange(modulus)
        begin = f"{_COUNTERS}\nmessage, modulus = {message}, {modulus}\nbegan = time.perf_counter()\n"
        seconds += float(run(f"{begin}{counter.write}\nprint(time.perf_counter() - began)")[0])
        right += int(run(f"{_COUNTERS}\nprint({counter.read} % {modulus})")[0]) == message
    print(f"{counter.name}: {counter.bits} bits in {seconds / _TRIALS:.4f} s, {right} of {_TRIALS} read right")


def _measure_pages(path: str, run: Callable[[str], list[str]]) -> None:
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    written = set(random.sample(range(_PAGES), _PAGES // 2))
    begin = f"{_MAPPED.format(path=path)}began = time.perf_counter()\n"
    (writing,) = run(f"{begin}for page in {written}: is_cached(page)\nprint(time.perf_counter() - began)")
    reading, found = run(
        f"{begin}found = ''.join('01'[is_cached(page)] for page in range({_PAGES}))\nprint(time.perf_counter() - began, found)"
    )
    right = sum((page in written) == (bit == "1") for page, bit in enumerate(found))
    speeds = (f"{_PAGES / float(seconds):.0f} bits/s" for seconds in (writing, reading))
    print(f"cold pages: written at {next(speeds)}, read at {next(speeds)}, {right} of {_PAGES} read right")


if __name__ == "__main__":
    main()
