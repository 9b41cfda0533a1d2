"""The zygote: imports the heavy modules once, then forks a session root whenever the server asks.

It stays single-threaded, holds no secret and never runs user code, so that a fork of it is as good as a new process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
from pathlib import Path

import msgspec

from coding_gym_server import overlay
from coding_gym_server.backends import backend_class
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.workers import process_table
from coding_gym_server.workers.channel import Channel, close_all
from coding_gym_server.workers.child_exits import ChildExits
from coding_gym_server.workers.huge_pages import collapse_heap
from coding_gym_server.workers.messages import Failed, ForkRoot, Ready, RootForked
from coding_gym_server.workers.root import Root

__all__ = ["ZygoteConfig", "main"]

_PR_SET_CHILD_SUBREAPER = 36

_log = logging.getLogger(__name__)

# What a worker or a usual program needs anyway; imported here, they cost a session nothing.
_OWN_PRELOAD = (
    "asyncio",
    "inspect",
    "json",
    "numpy",
    "multiprocessing.pool",
    "multiprocessing.shared_memory",
    "subprocess",
    "tempfile",
)


class ZygoteConfig(msgspec.Struct, kw_only=True):
    """What the server tells the zygote on its command line, as JSON.

    Attributes:
        preload: Modules to import before serving; those that are not installed are passed over.
        backend: What most sessions will be executed by.
        confinement: What each session is confined to.
        authorized_imports: Modules that backends with a list of such let user code import, beyond their own.
        overlay: A directory of packages beyond the interpreter's own.
    """

    preload: list[str]
    backend: str
    confinement: Confinement
    authorized_imports: tuple[str, ...] = ()
    overlay: str | None = None


def main() -> None:
    """Serve ``ForkRoot`` requests until the server is gone. Arguments: the channel's descriptor and a ``ZygoteConfig``."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    config = msgspec.json.decode(sys.argv[2], type=ZygoteConfig)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if config.overlay is not None:
        overlay.use(Path(config.overlay))
    missing = _preload(config.preload)
    _prepare(config.backend)
    config.confinement.apply_to_zygote()
    channel.send(Ready(missing))
    root = _Zygote(channel, config).serve()
    if root is not None:
        root.run()


def _preload(modules: list[str]) -> list[str]:
    missing = []
    for module in (*_OWN_PRELOAD, *modules):
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - whatever a module does, sessions can do without it
            if not isinstance(error, ModuleNotFoundError):
                _log.warning("%s cannot be imported beforehand: %s", module, error)
            missing.append(module)
    return missing


@functools.cache
def _prepare(backend: str) -> None:
    """Load what a backend needs, once, and leave what is there now out of every collection to come."""
    backend_class(backend).prepare(backend)
    gc.collect()
    gc.freeze()
    collapse_heap()


class _Zygote:
    """Forks session roots, and ends what a root that died has left.

    Args:
        channel: The server's requests.
        config: What the server told.
    """

    def __init__(self, channel: Channel, config: ZygoteConfig) -> None:
        self._channel = channel
        self._config = config
        self._roots: set[int] = set()
        # The processes of a root that dies become ours.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._exits = ChildExits()

    def serve(self) -> Root | None:
        """Answer requests; returns the new root in each forked child, and None once the server is gone."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._exits.fileno() in ready:
                self._exits.clear()
                self._bury()
            if self._channel.fileno() not in ready:
                continue
            try:
                for message, descriptors in self._channel.requests():
                    assert isinstance(message, ForkRoot)
                    root = self._answer(message, descriptors)
                    if root is not None:
                        return root
            except (EOFError, ConnectionError):
                return None

    def _answer(self, request: ForkRoot, descriptors: list[int]) -> Root | None:
        self._bury()
        pid = None
        try:
            _prepare(request.backend)
            pid = os.fork()
        except OSError as error:
            self._channel.send(Failed(f"fork: {error}"))
        except Exception as error:  # noqa: BLE001 - whatever an optional package does as it is imported
            self._channel.send(Failed(f"the backend {request.backend!r} cannot be loaded: {type(error).__name__}: {error}"))
        if pid == 0:
            self._exits.close()
            self._channel.close()
            return Root(
                Channel(socket.socket(fileno=descriptors[0])),
                self._config.confinement,
                request.workspace,
                backend=request.backend,
                shared=request.shared,
                authorized_imports=self._config.authorized_imports,
            )
        close_all(descriptors)
        if pid is not None:
            self._roots.add(pid)
            self._channel.send(RootForked(pid))
        return None

    def _bury(self) -> None:
        """Reap what has died, and kill the orphans of dead roots."""
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._roots.discard(pid)
        for orphan in process_table.children(os.getpid()) - self._roots:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)


if __name__ == "__main__":
    main()
