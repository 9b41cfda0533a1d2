"""The zygote: imports the heavy modules once, then forks a session root whenever the server asks.

It stays single-threaded, holds no secret and never runs user code, so that a fork of it is as good as a new process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import signal
import socket
import sys

import msgspec

from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.workers.channel import Channel, close_all
from coding_gym_server.workers.huge_pages import collapse_heap
from coding_gym_server.workers.messages import Failed, ForkRoot, Ready, RootForked
from coding_gym_server.workers.root import Root

__all__ = ["ZygoteConfig", "main"]

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
        confinement: What each session is confined to.
    """

    preload: list[str]
    confinement: Confinement


def main() -> None:
    """Serve ``ForkRoot`` requests until the server is gone. Arguments: the channel's descriptor and a ``ZygoteConfig``."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    config = msgspec.json.decode(sys.argv[2], type=ZygoteConfig)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    missing = _preload(config.preload)
    config.confinement.apply_to_zygote()
    gc.collect()
    gc.freeze()
    collapse_heap()
    channel.send(Ready(missing))
    root = _serve(channel, config.confinement)
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


def _serve(channel: Channel, confinement: Confinement) -> Root | None:
    """Answer requests; returns the new root in each forked child, and None once the server is gone."""
    while True:
        try:
            message, descriptors = channel.receive_with_descriptors()
        except (EOFError, ConnectionError):
            return None
        assert isinstance(message, ForkRoot)
        _reap()
        try:
            pid = os.fork()
        except OSError as error:
            channel.send(Failed(f"fork: {error}"))
            close_all(descriptors)
            continue
        if pid == 0:
            channel.close()
            return Root(Channel(socket.socket(fileno=descriptors[0])), confinement, message.workspace)
        close_all(descriptors)
        channel.send(RootForked())


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()
