"""The server's handle on the zygote process."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from coding_gym_server.workers.link import Link
from coding_gym_server.workers.messages import Failed, ForkRoot, FromProcess, Ready, RootForked
from coding_gym_server.workers.zygote import ZygoteConfig

__all__ = ["ForkError", "ZygoteProcess"]


class ForkError(RuntimeError):
    """A process could not be forked, for want of processes or memory."""


class ZygoteProcess:
    """Starts the zygote and asks it for session roots.

    The process begins to import at once, before there is an event loop, so that a server can load itself meanwhile.

    Args:
        config: What the zygote imports and what sessions are confined to.
        font_cache: Matplotlib's directory; matplotlib finds one by itself if None.
    """

    def __init__(self, config: ZygoteConfig, *, font_cache: Path | None = None) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *("-P", "-m", "coding_gym_server.workers.zygote"),
                    str(theirs.fileno()),
                    msgspec.json.encode(config).decode(),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(font_cache),
            )
        self._link: Link | None = None
        self._ready: asyncio.Future[FromProcess] | None = None

    @property
    def pid(self) -> int:
        """The process id of the zygote."""
        return self._process.pid

    def attach(self, *, on_exit: Callable[[], None]) -> None:
        """Serve on the running event loop from now on.

        Args:
            on_exit: Called if the zygote dies; without it no session can start.
        """
        self._link = Link(self._socket, on_closed=on_exit)
        self._ready = self._link.expect()

    async def ready(self) -> list[str]:
        """Wait until the modules are imported; returns the names of those that are not installed."""
        assert self._ready is not None
        message = await asyncio.shield(self._ready)
        assert isinstance(message, Ready)
        return message.missing

    async def fork_root(self, workspace: str, control: socket.socket) -> None:
        """Fork a session root that is controlled over ``control``.

        Raises:
            ForkError: There are no processes or no memory left.
            LinkClosedError: The zygote is gone.
        """
        await self.ready()
        assert self._link is not None
        answer = await self._link.call(ForkRoot(workspace), (control.fileno(),))
        if isinstance(answer, Failed):
            raise ForkError(answer.reason)
        assert isinstance(answer, RootForked)

    def close(self) -> None:
        """End the zygote; the session roots end as their own channels close."""
        if self._link is not None:
            self._link.close()
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _environment(font_cache: Path | None) -> dict[str, str]:
    """Return the environment of user code: nothing of the server's own, the same in every sandbox."""
    return {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONHASHSEED": "0",
        # One thread: a process with more cannot be forked safely, and sessions share the cores anyway.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        **({"MPLCONFIGDIR": str(font_cache)} if font_cache is not None else {}),
        **{name: os.environ[name] for name in ("TZ", "LD_LIBRARY_PATH") if name in os.environ},
    }
