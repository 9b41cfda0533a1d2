"""Sandbox processes as seen from the host, and their memory consumption."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import defaultdict
from pathlib import Path

from coding_gym.sandbox.base import Sandbox

__all__ = ["NotMeasurableError", "RssPeak", "cpu_seconds_of_sandboxes", "find_processes", "find_server", "pss", "rss"]

_PROCESS = re.compile(r"coding[-_]gym[-_]server")
_SERVER = re.compile(r"coding-gym-server |-m coding_gym_server ")
_POLL_SECONDS = 0.001
_TICKS = os.sysconf("SC_CLK_TCK")


class NotMeasurableError(Exception):
    """The sandbox's processes cannot be inspected from the host."""


def find_processes(sandbox: Sandbox) -> list[int]:
    """Return the process ids of a sandbox, as seen from the host."""
    from coding_gym.sandbox.process_tree import ProcessTree

    # A local server is a child of this process; a container's first process is a child of the container runtime's.
    ancestor = os.getpid() if isinstance(sandbox, ProcessTree) else _first_process(sandbox)
    children = defaultdict(list)
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            children[_parent(pid)].append(pid)
    found, unseen = [], [ancestor]
    while unseen:
        pid = unseen.pop()
        unseen += children[pid]
        found.append(pid)
    return [pid for pid in found if pid != os.getpid()]


def find_server(pids: list[int]) -> int:
    """Return the process id of a sandbox's server.

    Args:
        pids: Process ids of the sandbox.

    Raises:
        NotMeasurableError: If none of the processes is the server: they are on another machine, for example.
    """
    parents = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            if _SERVER.search(" ".join(_command(pid))):
                parents[pid] = _parent(pid)
    # The init of a container and the launcher, which are its ancestors, have the same command line.
    if server := next((pid for pid in parents if pid not in parents.values()), None):
        return server
    message = "the server is in another pid namespace"
    raise NotMeasurableError(message)


def cpu_seconds_of_sandboxes() -> dict[int, float]:
    """Return the CPU time of each process of all sandboxes on this machine, without its children, by process id."""
    found = {}
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if _PROCESS.search(" ".join(_command(pid))):
                fields = _stat(pid)
                found[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def pss(pids: list[int]) -> float:
    """Return the total PSS of processes in MB, which counts memory that they share only once.

    Raises:
        NotMeasurableError: If reading the memory statistics is not permitted.
    """
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except PermissionError as error:
            message = "reading the memory of the sandbox's processes needs root"
            raise NotMeasurableError(message) from error
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += _kilobytes(text, "Pss")
    return total / 1024


def rss(pid: int) -> float:
    """Return the RSS of a process in MB."""
    return _kilobytes(Path(f"/proc/{pid}/status").read_text(), "VmRSS") / 1024


class RssPeak:
    """Context manager that samples the RSS of a process and records its peak.

    Args:
        pid: Process id.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.megabytes = rss(pid)

    def __enter__(self) -> RssPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            self.megabytes = max(self.megabytes, rss(self._pid))


def _first_process(sandbox: Sandbox) -> int:
    from coding_gym.sandbox.docker.provider import DockerSandbox

    assert isinstance(sandbox, DockerSandbox)
    sandbox.container.reload()
    return int(sandbox.container.attrs["State"]["Pid"])


def _all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[bytes]:
    """Return the fields after the name of a process; see proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")


def _kilobytes(text: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) if match else 0
