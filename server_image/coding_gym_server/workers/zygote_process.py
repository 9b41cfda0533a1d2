"""The server's handle on the zygote process."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from coding_gym_server.workers.link import Link
from coding_gym_server.workers.messages import (
    DisplayForked,
    ExaminerForked,
    Failed,
    ForkDisplay,
    ForkExaminer,
    ForkRoot,
    FromProcess,
    Ready,
    RootForked,
)
from coding_gym_server.workers.zygote import ZygoteConfig

__all__ = ["ForkError", "ZygoteProcess"]


_log = logging.getLogger(__name__)

_LIVES = 5
_A_LIFE_SECONDS = 60.0


class ForkError(RuntimeError):
    """A process could not be forked, for want of processes or memory."""


class ZygoteProcess:
    """Starts the zygote, asks it for session roots, and starts another one when it dies.

    The process begins to import at once, before there is an event loop, so that a server can load itself meanwhile.

    Args:
        config: What the zygote imports and what sessions are confined to.
        font_cache: Matplotlib's directory; matplotlib finds one by itself if None.
    """

    def __init__(self, config: ZygoteConfig, *, font_cache: Path | None = None) -> None:
        self._config = config
        self._font_cache = font_cache
        self._link: Link[FromProcess] | None = None
        self._ready: asyncio.Future[FromProcess] | None = None
        self._on_gone: Callable[[], None] = lambda: None
        self._lives_left = _LIVES
        self._start()

    @property
    def pid(self) -> int:
        """The process id of the zygote."""
        return self._process.pid

    def attach(self, *, on_gone: Callable[[], None]) -> None:
        """Serve on the running event loop from now on.

        Args:
            on_gone: Called when it has died too often to be replaced; without it no session can start.
        """
        self._on_gone = on_gone
        self._listen()

    async def ready(self) -> list[str]:
        """Wait until the modules are imported; returns the names of those that are not installed.

        Raises:
            LinkClosedError: The zygote died.
        """
        assert self._ready is not None
        message = await asyncio.shield(self._ready)
        assert isinstance(message, Ready)
        return message.missing

    async def fork_root(self, request: ForkRoot, control: socket.socket) -> int:
        """Fork a session root that is controlled over ``control``; returns its process id.

        Raises:
            ForkError: There are no processes or no memory left, or the backend cannot be loaded.
            LinkClosedError: The zygote died.
        """
        return await self._fork(request, control)

    async def fork_display(self, request: ForkDisplay, control: socket.socket, listener: socket.socket) -> int:
        """Fork a display process that is controlled over ``control`` and serves ``listener``; returns its process id.

        Raises:
            ForkError: There are no processes or no memory left.
            LinkClosedError: The zygote died.
        """
        return await self._fork(request, control, listener)

    async def fork_examiner(self, request: ForkExaminer, control: socket.socket) -> int:
        """Fork an examiner that is controlled over ``control``; returns its process id.

        Raises:
            ForkError: There are no processes or no memory left.
            LinkClosedError: The zygote died.
        """
        return await self._fork(request, control)

    def close(self) -> None:
        """End the zygote; the session roots end as their own channels close."""
        if self._link is not None:
            self._link.close()
        self._end()

    async def _fork(self, request: ForkRoot | ForkDisplay | ForkExaminer, *sockets: socket.socket) -> int:
        await self.ready()
        assert self._link is not None
        answer = await self._link.call(request, tuple(connection.fileno() for connection in sockets))
        if isinstance(answer, Failed):
            raise ForkError(answer.reason)
        assert isinstance(answer, RootForked | DisplayForked | ExaminerForked)
        return answer.pid

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *("-P", "-m", "coding_gym_server.workers.zygote_start"),
                    str(self._config.heap_bytes),
                    str(theirs.fileno()),
                    msgspec.json.encode(self._config).decode(),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(self._font_cache),
            )

    def _listen(self) -> None:
        self._link = Link(self._socket, on_closed=self._replace)
        self._ready = self._link.expect()
        # Whoever waits for it is told; nobody need.
        self._ready.add_done_callback(asyncio.Future.exception)

    def _replace(self) -> None:
        """Start another one: the sessions that there are need none, those to come do."""
        self._end()
        self._lives_left -= 1
        if self._lives_left == 0:
            self._on_gone()
            return
        asyncio.get_running_loop().call_later(_A_LIFE_SECONDS, self._regain_life)
        _log.warning("the zygote died: starting another one")
        self._start()
        self._listen()

    def _regain_life(self) -> None:
        self._lives_left += 1

    def _end(self) -> None:
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
        # Nobody listens, and what a program prints is its own.
        "SDL_AUDIODRIVER": "dummy",
        "PYGAME_HIDE_SUPPORT_PROMPT": "1",
        **({"MPLCONFIGDIR": str(font_cache)} if font_cache is not None else {}),
        **{name: os.environ[name] for name in ("TZ", "LD_LIBRARY_PATH") if name in os.environ},
    }
