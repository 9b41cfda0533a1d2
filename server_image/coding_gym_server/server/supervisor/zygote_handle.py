"""The server's handle on the zygote process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import site
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from coding_gym_server.ipc.async_channel import AsyncChannel, ChannelClosedError
from coding_gym_server.ipc.messages import Failed, FromProcess
from coding_gym_server.ipc.snapshot_messages import ForkSlotMaker, SlotMakerForked
from coding_gym_server.ipc.zygote_messages import (
    DisplayForked,
    ForkDisplay,
    ForkRoot,
    ForkTestRunnerRoot,
    Ready,
    RootForked,
    TestRunnerRootForked,
)
from coding_gym_server.launcher.client import LaunchedZygote, LauncherClient
from coding_gym_server.launcher.messages import StartZygote
from coding_gym_server.server.supervisor.stderr_tail import StderrTail
from coding_gym_server.worker.backends.registry import runs_in_worker
from coding_gym_server.zygote.config import ZygoteConfig

__all__ = ["ForkError", "ZygoteHandle", "open_connection"]

_log = logging.getLogger(__name__)

_RESTART_BUDGET = 5
_RESTART_INTERVAL_SECONDS = 60.0
"""Seconds after which a restart no longer counts against the budget."""


_INTERPRETER = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE")
"""Variables by which an interpreter may find itself and its packages: modules of clusters, ``pip install --target``, Bazel."""


class ForkError(RuntimeError):
    """A process cannot be forked: the process limit or memory is exhausted, or the backend fails to load."""

    @classmethod
    def of_connection(cls, error: OSError) -> ForkError:
        """Return the error of a process to which the server cannot open a connection."""
        return cls(f"the server cannot connect to a process: {error.strerror}; close sessions or processes")


def open_connection() -> tuple[socket.socket, socket.socket]:
    """Return the server's and the process's end of a connection to a process that is about to be forked.

    Raises:
        ForkError: If the server's file descriptors are exhausted.
    """
    try:
        return socket.socketpair()
    except OSError as error:
        raise ForkError.of_connection(error) from error


class ZygoteHandle:
    """Start the zygote, send it fork requests, and restart it when it dies.

    The process starts importing immediately, before the event loop runs, in parallel with the server's own imports.

    Args:
        config: Configuration of the zygote.
        font_cache: Matplotlib's cache directory, None for matplotlib's default.
        launcher: Starts the zygote in a user namespace; None for a child of the server.
    """

    def __init__(self, config: ZygoteConfig, *, font_cache: Path | None = None, launcher: LauncherClient | None = None) -> None:
        self._config = config
        self._font_cache = font_cache
        self._launcher = launcher
        self._channel: AsyncChannel[FromProcess] | None = None
        self._ready: asyncio.Future[FromProcess] | None = None
        self._on_gone: Callable[[], None] = lambda: None
        self._restarts_left = _RESTART_BUDGET
        self._stderr = StderrTail()
        self._process: subprocess.Popen[bytes] | LaunchedZygote
        try:
            self._start()
        except BaseException:
            self._stderr.close()
            raise

    def start_another(self, config: ZygoteConfig) -> ZygoteHandle:
        """Start another zygote in the same user namespace, whose forks can thus enter what those of this one have made.

        Args:
            config: Configuration of the other zygote.

        Raises:
            OSError: If it cannot be started.
            EOFError: If the launcher has exited.
        """
        return ZygoteHandle(msgspec.structs.replace(config, namespace=self._config.namespace), launcher=self._launcher)

    def start_for(self, backend: str) -> ZygoteHandle:
        """Start another zygote like this one for the sessions of another backend.

        Args:
            backend: Name of the backend.

        Raises:
            OSError: If it cannot be started.
            EOFError: If the launcher has exited.
        """
        preload = self._config.preload if runs_in_worker(backend) else []
        config = msgspec.structs.replace(self._config, backend=backend, preload=preload)
        return ZygoteHandle(config, font_cache=self._font_cache, launcher=self._launcher)

    @property
    def backend(self) -> str:
        """Name of the backend of its session roots."""
        return self._config.backend

    @property
    def pid(self) -> int:
        """Process id of the zygote."""
        return self._process.pid

    def attach(self, *, on_gone: Callable[[], None]) -> None:
        """Attach the channel to the running event loop.

        Args:
            on_gone: Called when the restart budget is exhausted, after which no session can start.
        """
        self._on_gone = on_gone
        self._stderr.attach()
        self._listen()

    async def ready(self) -> list[str]:
        """Wait until the modules are imported; return the names of those that are not installed.

        Raises:
            ChannelClosedError: If the zygote died.
        """
        assert self._ready is not None
        with self.explaining():
            message = await asyncio.shield(self._ready)
        assert isinstance(message, Ready)
        return message.missing

    @contextlib.contextmanager
    def explaining(self) -> Iterator[None]:
        """Add to the ``ChannelClosedError`` of a block what the zygote and processes that it forked have printed last."""
        try:
            yield
        except ChannelClosedError as error:
            lines = self._stderr.last_lines()
            if not lines or lines in str(error):
                raise
            message = f"it printed: {lines}"
            raise ChannelClosedError(message) from error

    async def fork_root(self, request: ForkRoot, control: socket.socket) -> int:
        """Fork a session root that is controlled over ``control``; return its process id.

        Raises:
            ForkError: If the process limit or memory is exhausted, or the backend fails to load.
            ChannelClosedError: If the zygote died.
        """
        return await self._fork(request, control)

    async def fork_display(self, request: ForkDisplay, control: socket.socket, listener: socket.socket) -> int:
        """Fork a display process that is controlled over ``control`` and serves ``listener``; return its process id.

        Raises:
            ForkError: If the process limit or memory is exhausted.
            ChannelClosedError: If the zygote died.
        """
        return await self._fork(request, control, listener)

    async def fork_test_runner_root(self, request: ForkTestRunnerRoot, control: socket.socket) -> int:
        """Fork a root of test runners that is controlled over ``control``; return its process id.

        Raises:
            ForkError: If the process limit or memory is exhausted.
            ChannelClosedError: If the zygote died.
        """
        return await self._fork(request, control)

    async def fork_slot_maker(self, request: ForkSlotMaker, control: socket.socket, *namespaces: int) -> int:
        """Fork a process that makes the namespaces of a slot and responds over ``control``; return its process id.

        Raises:
            ForkError: If the process limit or memory is exhausted.
            ChannelClosedError: If the zygote died.
        """
        return await self._fork(request, control, descriptors=namespaces)

    def close(self) -> None:
        """End the zygote. Session roots end when their own channels close."""
        if self._channel is not None:
            self._channel.close()
        self._end()
        self._stderr.close()

    async def _fork(
        self,
        request: ForkRoot | ForkDisplay | ForkTestRunnerRoot | ForkSlotMaker,
        *sockets: socket.socket,
        descriptors: tuple[int, ...] = (),
    ) -> int:
        await self.ready()
        assert self._channel is not None
        response = await self._channel.call(request, (*(connection.fileno() for connection in sockets), *descriptors))
        if isinstance(response, Failed):
            raise ForkError(response.reason)
        assert isinstance(response, RootForked | DisplayForked | TestRunnerRootForked | SlotMakerForked)
        return response.pid

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair()
        environment = _environment(self._font_cache)
        users = self._config.profile.users
        if users is not None and users.have_root:
            environment["TMPDIR"] = tempfile.gettempdir()
        configuration = msgspec.json.encode(self._config).decode()
        with theirs:
            if self._launcher is not None:
                request = StartZygote(self._config.heap_bytes, configuration, environment)
                self._process = self._launcher.start(request, theirs.fileno(), self._stderr.descriptor)
                return
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    *("-P", "-m", "coding_gym_server.zygote.bootstrap"),
                    str(self._config.heap_bytes),
                    str(theirs.fileno()),
                    configuration,
                ],
                pass_fds=[theirs.fileno(), *([] if (namespace := self._config.namespace) is None else [namespace])],
                stdin=subprocess.DEVNULL,
                stderr=self._stderr.descriptor,
                env=environment,
            )

    def _listen(self) -> None:
        self._channel = AsyncChannel(self._socket, on_closed=self._replace)
        self._ready = self._channel.expect()
        # Retrieve the exception even if no caller awaits the future.
        self._ready.add_done_callback(asyncio.Future.exception)

    def _replace(self) -> None:
        """Restart the zygote for future sessions; existing ones do not depend on it."""
        self._end()
        self._restarts_left -= 1
        if self._restarts_left == 0:
            self._on_gone()
            return
        asyncio.get_running_loop().call_later(_RESTART_INTERVAL_SECONDS, self._restore_restart)
        _log.warning("the zygote died; restarting it")
        try:
            self._start()
        except (OSError, EOFError) as error:
            _log.error("the zygote cannot be restarted: %s", error)
            self._on_gone()
            return
        self._listen()

    def _restore_restart(self) -> None:
        self._restarts_left += 1

    def _end(self) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()


def _environment(font_cache: Path | None) -> dict[str, str]:
    """Return the environment of user code, which excludes the server's variables and is equal in all sandboxes."""
    return {
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), "/usr/local/bin", "/usr/bin", "/bin"]),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONHASHSEED": "0",
        # Multithreaded processes cannot be forked safely, and sessions share the cores anyway.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MPLBACKEND": "Agg",
        # No audio device, and no banner in the output of programs.
        "SDL_AUDIODRIVER": "dummy",
        "PYGAME_HIDE_SUPPORT_PROMPT": "1",
        **({"MPLCONFIGDIR": str(font_cache)} if font_cache is not None else {}),
        # Packages of ``pip install --user`` are looked for in a directory of HOME otherwise, which user code does not have.
        **({"PYTHONUSERBASE": site.getuserbase()} if site.getusersitepackages() in sys.path else {}),
        **{name: os.environ[name] for name in ("TZ", *_INTERPRETER) if name in os.environ},
    }
