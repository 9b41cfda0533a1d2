"""The processes of a sandbox as the host sees them, and the memory that they take."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections import defaultdict
from pathlib import Path

from coding_gym.providers.base import Sandbox

__all__ = ["NotMeasurableError", "RssPeak", "find_processes", "find_server", "pss", "rss"]

_INITS = {"docker-init", "catatonit", "tini"}
_POLL_SECONDS = 0.001


class NotMeasurableError(Exception):
    """The sandbox's processes cannot be looked at from here."""


def find_processes(sandbox: Sandbox) -> list[int]:
    """Return the process ids of a sandbox.

    Raises:
        NotMeasurableError: It is not on this machine.
    """
    from coding_gym.providers.local import LocalSandbox

    # A local server is a child of ours; a container's first process has the engine's as parent.
    ancestor = os.getpid() if isinstance(sandbox, LocalSandbox) else _first_process(sandbox)
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
                children[parent].append(int(entry.name))
    found, unseen = [], [ancestor]
    while unseen:
        pid = unseen.pop()
        unseen += children[pid]
        found.append(pid)
    return [pid for pid in found if pid != os.getpid()]


def find_server(pids: list[int]) -> int:
    """Return which of a sandbox's processes is its server.

    Raises:
        NotMeasurableError: None.
    """
    for pid in pids:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            names = " ".join(command)
            is_server = re.search(r"coding[-_]gym[-_]server", names) and "zygote" not in names
            if is_server and os.path.basename(command[0]) not in _INITS:
                return pid
    message = "the server is in another pid namespace"
    raise NotMeasurableError(message)


def pss(pids: list[int]) -> float:
    """Return the memory of processes in MB, what they share counted once.

    Raises:
        NotMeasurableError: Not everything may be read.
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
    """Return the resident memory of a process in MB."""
    return _kilobytes(Path(f"/proc/{pid}/status").read_text(), "VmRSS") / 1024


class RssPeak:
    """Watches how far the resident memory of a process rises, as a context manager.

    Args:
        pid: The process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.megabytes = rss(pid)

    def __enter__(self) -> RssPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            self.megabytes = max(self.megabytes, rss(self._pid))


def _first_process(sandbox: Sandbox) -> int:
    from coding_gym.providers.docker import DockerSandbox

    assert isinstance(sandbox, DockerSandbox)
    sandbox.container.reload()
    return int(sandbox.container.attrs["State"]["Pid"])


def _kilobytes(text: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) if match else 0
