"""Zygote: imports heavy modules once, then forks session roots, roots of test runners and display processes on request.

It stays single-threaded, holds no secrets and never runs user code, so a fork of it is equivalent to a new process.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all, close_others
from coding_gym_server.ipc.messages import Failed, ToProcess
from coding_gym_server.ipc.snapshot_messages import ForkSlotMaker, SlotMakerForked
from coding_gym_server.ipc.streams import open_streams_ahead
from coding_gym_server.ipc.zygote_messages import (
    SLOT_MAKER,
    SUBMISSION,
    DisplayForked,
    ForkDisplay,
    ForkRoot,
    ForkTestRunnerRoot,
    Ready,
    RootForked,
    TestRunnerRootForked,
)
from coding_gym_server.isolation import session_user
from coding_gym_server.linux import cloning, fontconfig, mounts, procfs, user_namespaces
from coding_gym_server.linux.forking import adopt_orphans, default_to_fork, fork_when_possible
from coding_gym_server.linux.sigchld import ChildExits
from coding_gym_server.packages import overlay
from coding_gym_server.submission import process as submission
from coding_gym_server.worker.backends.registry import backend_class
from coding_gym_server.worker.branching import census
from coding_gym_server.zygote import heap
from coding_gym_server.zygote.config import ZygoteConfig
from coding_gym_server.zygote.session_root import SessionRoot
from coding_gym_server.zygote.slot_maker import SlotMaker
from coding_gym_server.zygote.submission_root import SubmissionRoot

__all__ = ["main"]


# Modules that workers and typical programs use; imported here, they do not slow down sessions.
_BASE_PRELOAD = (
    "asyncio",
    "inspect",
    "json",
    # Its random numbers are part of the seed of an episode.
    "numpy",
    "multiprocessing.pool",
    "multiprocessing.shared_memory",
    "subprocess",
    "tempfile",
)


_RESPONSES = {
    ForkRoot: RootForked,
    ForkDisplay: DisplayForked,
    ForkTestRunnerRoot: TestRunnerRootForked,
    ForkSlotMaker: SlotMakerForked,
}
_Request = ForkRoot | ForkDisplay | ForkTestRunnerRoot | ForkSlotMaker

_DISPLAY_MODULE = "coding_gym_server.display.process"


class _Forked(Protocol):
    """Object that a forked child runs."""

    def run(self) -> None:
        """Run until the end of the process."""


def main(descriptor: str, configuration: str) -> None:
    """Serve fork requests until the server exits.

    Args:
        descriptor: Descriptor number of the channel.
        configuration: ``ZygoteConfig`` as JSON.
    """
    channel: Channel[ToProcess] = Channel(socket.socket(fileno=int(descriptor)))
    config = msgspec.json.decode(configuration, type=ZygoteConfig)
    if config.namespace is not None:
        # For the mounts of the session roots. A process can enter a user namespace only while it has a single thread.
        mounts.join(config.namespace, mounts.NEW_USERS)
        os.close(config.namespace)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if config.overlay is not None:
        overlay.use(Path(config.overlay))
    # Most programs use little of the preload list, but submissions use all of their short one. Objects that exist before
    # make_immortal() cause no page copies when they are used.
    often_used, rarely_used = (config.preload, []) if config.is_minimal else (_BASE_PRELOAD, config.preload)
    missing = _preload(often_used)
    if not config.is_minimal:
        default_to_fork()
    open_streams_ahead()
    is_prepared = _try_to_prepare(config.backend)
    heap.make_immortal()
    if rarely_used:
        # Matplotlib is one of them by default.
        with fontconfig.writable_copy():
            missing += _preload(rarely_used)
    heap.freeze()
    census.remember_inherited()
    if config.profile.users is None:
        # Sessions have its user, and all that it forks has its memory.
        user_namespaces.forbid_inspection()
    channel.send(Ready(missing))
    forked = _Zygote(channel, config, is_prepared=is_prepared).serve()
    if forked is not None:
        forked.run()


def _preload(modules: Sequence[str]) -> list[str]:
    missing = []
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a module may raise anything, and sessions work without it
            if not isinstance(error, ModuleNotFoundError):
                import logging

                logging.getLogger(__name__).warning("cannot preload module %s: %s", module, error)
            missing.append(module)
    return missing


def _prepare(backend: str) -> None:
    """Load the modules of a backend, and warm up the code that its processes execute first."""
    if backend == SUBMISSION:
        submission.warm_up()
    elif backend != SLOT_MAKER:
        # What that needs is imported by its roots: few sandboxes have any.
        from coding_gym_server.worker import worker

        backend_class(backend).prepare(backend)
        worker.warm_up()


def _try_to_prepare(backend: str) -> bool:
    """Prepare a backend; return whether that succeeded. If not, the first request for it fails with the reason."""
    try:
        _prepare(backend)
    except ImportError:
        return False
    return True


def _root_class(backend: str) -> type[SessionRoot]:
    return SubmissionRoot if backend == SUBMISSION else SessionRoot


def _settle() -> None:
    """Keep the objects that have been created since the fork of a root from causing page copies in its own forks."""
    heap.make_immortal()
    gc.freeze()


class _Zygote:
    """Fork processes on request, and kill the orphans of those that died.

    Args:
        channel: Channel of the server's requests.
        config: The zygote's configuration.
        is_prepared: Whether its backend is loaded.
    """

    def __init__(self, channel: Channel[ToProcess], config: ZygoteConfig, *, is_prepared: bool) -> None:
        self._channel = channel
        self._config = config
        self._forked: set[int] = set()
        self._prepared = {config.backend} if is_prepared else set()
        # Those of a root that dies.
        adopt_orphans()
        self._exits = ChildExits()

    def serve(self) -> _Forked | None:
        """Handle requests; return what to run in each forked child, and None in the zygote once the server has exited."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._exits.fileno() in ready:
                self._exits.clear()
                self._reap()
            if self._channel.fileno() not in ready:
                continue
            try:
                for message, descriptors in self._channel.requests():
                    forked = self._handle(message, descriptors)
                    if forked is not None:
                        return forked
            except (EOFError, ConnectionError):
                return None

    def _handle(self, request: ToProcess, descriptors: list[int]) -> _Forked | None:
        assert isinstance(request, _Request)
        self._reap()
        pid = None
        try:
            self._import_for(request)
            pid = fork_when_possible(self._fork_for(request), on_wait=self._reap)
        except OSError as error:
            self._channel.send(Failed(f"fork: {error}"))
        except Exception as error:  # noqa: BLE001 - importing an optional package may raise anything
            name = f"backend {request.backend!r}" if isinstance(request, ForkRoot) else "a module of the sandbox"
            self._channel.send(Failed(f"{name} failed to load: {type(error).__name__}: {error}"))
        if pid == 0:
            self._exits.close()
            close_others(descriptors)
            return self._child(request, descriptors)
        close_all(descriptors)
        if pid is not None:
            self._forked.add(pid)
            self._channel.send(_RESPONSES[type(request)](pid))
        return None

    def _fork_for(self, request: _Request) -> Callable[[], int]:
        """Return the function that forks what is requested."""
        users = self._config.profile.users
        if users is None:
            return os.fork
        if isinstance(request, ForkSlotMaker):
            return functools.partial(cloning.clone_into, mounts.NEW_MOUNTS)
        if isinstance(request, ForkDisplay):
            return functools.partial(cloning.clone_into, mounts.NEW_NETWORK)
        return functools.partial(session_user.fork_into_namespaces, users)

    def _import_for(self, request: _Request) -> None:
        """Import what the first display or the first root of submissions requires, for all that follow."""
        if isinstance(request, ForkTestRunnerRoot | ForkSlotMaker):
            return
        name = request.backend if isinstance(request, ForkRoot) else _DISPLAY_MODULE
        if name in self._prepared:
            return
        if isinstance(request, ForkRoot):
            _prepare(request.backend)
        else:
            importlib.import_module(_DISPLAY_MODULE)
        heap.freeze()
        self._prepared.add(name)

    def _child(self, request: _Request, descriptors: list[int]) -> _Forked:
        """Create the object that a forked child runs."""
        users = self._config.profile.users
        # Session roots, and roots of test runners that borrow files, do so themselves.
        if users is not None and users.count and isinstance(request, ForkDisplay):
            user_namespaces.become(users.server)
        if isinstance(request, ForkSlotMaker):
            return SlotMaker(self._config.profile, request.number, *descriptors)
        control, *others = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if isinstance(request, ForkDisplay):
            from coding_gym_server.display.messages import DisplayConfig
            from coding_gym_server.display.process import DisplayProcess, display_requests

            display = msgspec.msgpack.decode(request.config, type=DisplayConfig)
            return DisplayProcess(Channel(control, display_requests), others[0], display, self._config.profile)
        if isinstance(request, ForkTestRunnerRoot):
            from coding_gym_server.test_runner.messages import test_runner_root_requests
            from coding_gym_server.test_runner.root import TestRunnerRoot

            requests = Channel(control, test_runner_root_requests)
            return TestRunnerRoot(requests, request.directory, self._config.profile, settle=_settle)
        make = _root_class(request.backend)
        profile = self._config.profile
        return make(
            Channel(control),
            profile.of_submissions() if issubclass(make, SubmissionRoot) else profile,
            request.directory,
            backend=request.backend,
            user=request.user,
            authorized_imports=self._config.authorized_imports,
            image=self._config.image,
        )

    def _reap(self) -> None:
        """Reap terminated children, and kill their orphans."""
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._forked.discard(pid)
        # Those of a maker of slots are their inits, which end with their roots.
        orphans = set() if self._config.backend == SLOT_MAKER else procfs.children(os.getpid()) - self._forked
        for orphan in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
