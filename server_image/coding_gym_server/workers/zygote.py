"""The zygote: imports the heavy modules once, then forks a session root whenever the server asks.

It stays single-threaded, holds no secret and never runs user code, so that a fork of it is as good as a new process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from coding_gym_server import overlay
from coding_gym_server.backends import backend_class
from coding_gym_server.grading import submission
from coding_gym_server.grading.submission_root import SubmissionRoot
from coding_gym_server.isolation.confinement import Confinement
from coding_gym_server.workers import heap, process_table
from coding_gym_server.workers.channel import Channel, close_all
from coding_gym_server.workers.child_exits import ChildExits
from coding_gym_server.workers.forking import fork_when_possible
from coding_gym_server.workers.messages import (
    SUBMISSION,
    DisplayForked,
    ExaminerForked,
    Failed,
    ForkDisplay,
    ForkExaminer,
    ForkRoot,
    Ready,
    RootForked,
    ToProcess,
)
from coding_gym_server.workers.root import Root
from coding_gym_server.workers.streams import open_streams_ahead

if TYPE_CHECKING:
    from coding_gym_server.display.process import DisplayProcess
    from coding_gym_server.grading.examiner import Examiner

__all__ = ["ZygoteConfig", "main"]

_PR_SET_CHILD_SUBREAPER = 36


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


_ANSWERS = {ForkRoot: RootForked, ForkDisplay: DisplayForked, ForkExaminer: ExaminerForked}

# For the small objects of submissions, of what sessions have anyway, and of numpy, pandas and matplotlib with it.
_LEAN_BYTES = 5 << 20
_OWN_BYTES = 11 << 20
_PRELOAD_BYTES = 40 << 20

_DISPLAY_MODULE = "coding_gym_server.display.process"


class ZygoteConfig(msgspec.Struct, kw_only=True):
    """What the server tells the zygote on its command line, as JSON.

    Attributes:
        preload: Modules to import before serving; those that are not installed are passed over.
        backend: What most sessions will be executed by.
        confinement: What each session is confined to.
        authorized_imports: Modules that backends with a list of such let user code import, beyond their own.
        overlay: A directory of packages beyond the interpreter's own.
        displays: Whether sessions may have screens.
    """

    preload: list[str]
    backend: str
    confinement: Confinement
    authorized_imports: tuple[str, ...] = ()
    overlay: str | None = None
    displays: bool = False

    @property
    def heap_bytes(self) -> int:
        """About what the small objects take: those of the zygote itself, and of what it imports."""
        if self.backend == SUBMISSION:
            return _LEAN_BYTES
        return _PRELOAD_BYTES if self.preload else _OWN_BYTES


def main(descriptor: str, configuration: str) -> None:
    """Fork what the server asks for, until it is gone.

    Args:
        descriptor: The channel's.
        configuration: A ``ZygoteConfig`` in JSON.
    """
    channel: Channel[ToProcess] = Channel(socket.socket(fileno=int(descriptor)))
    config = msgspec.json.decode(configuration, type=ZygoteConfig)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if config.overlay is not None:
        overlay.use(Path(config.overlay))
    # Of what sessions may import, most programs use next to nothing; submissions have little, and use it.
    lean = config.backend == SUBMISSION
    used, unused = (config.preload, []) if lean else (_OWN_PRELOAD, config.preload)
    missing = _preload(used)
    open_streams_ahead()
    _prepare(config.backend)
    heap.immortalize()
    missing += _preload([*unused, *([_DISPLAY_MODULE] if config.displays else [])])
    _settle()
    config.confinement.apply_to_zygote()
    channel.send(Ready(missing))
    forked = _Zygote(channel, config).serve()
    if forked is not None:
        forked.run()


def _preload(modules: Sequence[str]) -> list[str]:
    missing = []
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - whatever a module does, sessions can do without it
            if not isinstance(error, ModuleNotFoundError):
                import logging

                logging.getLogger(__name__).warning("%s cannot be imported beforehand: %s", module, error)
            missing.append(module)
    return missing


def _prepare(backend: str) -> None:
    """Load what a backend needs, and rehearse what its processes do first."""
    if backend == SUBMISSION:
        submission.rehearse()
    else:
        from coding_gym_server.workers import worker

        backend_class(backend).prepare(backend)
        worker.rehearse()


def _settle() -> None:
    """Leave what is there now out of every collection to come, and make the most of its memory."""
    gc.collect()
    gc.freeze()
    heap.collapse()


class _Zygote:
    """Forks session roots and display processes, and ends what one that died has left.

    Args:
        channel: The server's requests.
        config: What the server told.
    """

    def __init__(self, channel: Channel[ToProcess], config: ZygoteConfig) -> None:
        self._channel = channel
        self._config = config
        self._forked: set[int] = set()
        self._prepared = {config.backend}
        # The processes of one that dies become ours.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._exits = ChildExits()

    def serve(self) -> Root | DisplayProcess | Examiner | None:
        """Answer requests; returns what to run in each forked child, and None once the server is gone."""
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
                    forked = self._answer(message, descriptors)
                    if forked is not None:
                        return forked
            except (EOFError, ConnectionError):
                return None

    def _answer(self, request: ToProcess, descriptors: list[int]) -> Root | DisplayProcess | Examiner | None:
        assert isinstance(request, ForkRoot | ForkDisplay | ForkExaminer)
        self._bury()
        pid = None
        try:
            if isinstance(request, ForkRoot) and request.backend not in self._prepared:
                _prepare(request.backend)
                _settle()
                self._prepared.add(request.backend)
            pid = fork_when_possible(meanwhile=self._bury)
        except OSError as error:
            self._channel.send(Failed(f"fork: {error}"))
        except Exception as error:  # noqa: BLE001 - whatever an optional package does as it is imported
            backend = request.backend if isinstance(request, ForkRoot) else None
            self._channel.send(Failed(f"the backend {backend!r} cannot be loaded: {type(error).__name__}: {error}"))
        if pid == 0:
            self._exits.close()
            self._channel.close()
            return self._be(request, descriptors)
        close_all(descriptors)
        if pid is not None:
            self._forked.add(pid)
            self._channel.send(_ANSWERS[type(request)](pid))
        return None

    def _be(self, request: ForkRoot | ForkDisplay | ForkExaminer, descriptors: list[int]) -> Root | DisplayProcess | Examiner:
        """Return what a forked child is to be."""
        control, *others = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if isinstance(request, ForkDisplay):
            from coding_gym_server.display.process import DisplayProcess, display_requests

            return DisplayProcess(Channel(control, display_requests), others[0], request.config, self._config.confinement)
        if isinstance(request, ForkExaminer):
            from coding_gym_server.grading.examiner import Examiner, examiner_requests

            return Examiner(Channel(control, examiner_requests), request.directory, self._config.confinement)
        make = SubmissionRoot if request.backend == SUBMISSION else Root
        return make(
            Channel(control),
            self._config.confinement,
            request.workspace,
            backend=request.backend,
            shared=request.shared,
            authorized_imports=self._config.authorized_imports,
        )

    def _bury(self) -> None:
        """Reap what has died, and kill its orphans."""
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self._forked.discard(pid)
        for orphan in process_table.children(os.getpid()) - self._forked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
