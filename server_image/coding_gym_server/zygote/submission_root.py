"""Root process of a grading worker: owns all processes of a submission, one submission at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from coding_gym_server.ipc.library_messages import ImportLibraries, LibrariesImported
from coding_gym_server.ipc.messages import End, Ended, ToProcess
from coding_gym_server.ipc.snapshot_messages import FIRST_SLOT
from coding_gym_server.linux import procfs
from coding_gym_server.linux.forking import fork_bare
from coding_gym_server.linux.process_root import reaped_cpu_time
from coding_gym_server.packages.importing import import_installed
from coding_gym_server.submission.process import SubmissionProcess
from coding_gym_server.zygote import heap
from coding_gym_server.zygote.session_root import CONVERGENCE_SECONDS, Forked, SessionRoot

__all__ = ["SubmissionRoot"]


class SubmissionRoot(SessionRoot):
    """Root that forks submission processes and reports the total CPU time of a submission at its end."""

    _process: SubmissionProcess
    # Those of libraries; Python's own are not needed.
    _needs_fork_hooks = False

    def _handle(self, message: ToProcess, descriptors: list[int]) -> Forked | None:
        match message:
            case End(keeps_worker):
                has_worker = keeps_worker and self._kill_others()
                if not has_worker:
                    self._kill()
                    self._reap_all()
                    self._exits.clear()
                self._channel.send(Ended(reaped_cpu_time(), has_worker))
            case ImportLibraries(names):
                self._import(names)
                heap.freeze()
                self._channel.send(LibrariesImported())
            case _:
                return super()._handle(message, descriptors)
        return None

    def _kill_others(self) -> bool:
        """Kill and reap all but the worker, whose children have ended; return whether that was possible."""
        root, worker = os.getpid(), self._slots[FIRST_SLOT].worker
        if worker is None:
            return False
        deadline = time.process_time() + CONVERGENCE_SECONDS
        # What has lost its parent is a child of the root.
        while others := procfs.children(root) - {worker}:
            for pid in procfs.descendants(root, without={worker}):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in others:
                self._record_exit(*os.wait4(pid, 0))
            if time.process_time() > deadline:
                return False
        # One of them may have stopped it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
        return True

    def _import(self, names: list[str]) -> None:
        """Import modules for all later processes."""
        import_installed(names)
        self._needs_fork_hooks = self._needs_fork_hooks or not sys.stdlib_module_names.issuperset(names)
        if "pytest" in sys.modules:
            from coding_gym_server.submission import pytest_framework

            pytest_framework.warm_up()

    def _apply_profile(self) -> None:
        super()._apply_profile()
        self._process = SubmissionProcess(self._layout, profile=self._profile, prepared=self._prepared)
        self._process.prepare()

    def _fork_process(self) -> int:
        return os.fork() if self._needs_fork_hooks else fork_bare()

    def _new_worker(self, channel: int, stdout: int, stderr: int, stdin: int | None = None) -> Forked:
        self._process.adopt(channel, stdout, stderr, stdin)
        return self._process
