"""Root process of a grading worker: owns all processes of a submission, one submission at a time."""

from __future__ import annotations

from typing import Protocol

from coding_gym_server.ipc.messages import End, Ended, ToProcess
from coding_gym_server.linux.forking import fork_bare
from coding_gym_server.linux.process_root import reaped_cpu_time
from coding_gym_server.submission.process import SubmissionProcess
from coding_gym_server.workspace.layout import Layout
from coding_gym_server.zygote.session_root import Forked, SessionRoot

__all__ = ["PreparedProcess", "SubmissionRoot"]


class PreparedProcess(Forked, Protocol):
    """Process that has been prepared before the fork, except for its descriptors."""

    def prepare(self) -> None:
        """Set up the state that all processes share, in the root."""

    def adopt(self, connection: int, stdout: int, stderr: int) -> None:
        """Set the descriptors of this process."""


class SubmissionRoot(SessionRoot):
    """Root that forks submission processes and reports the total CPU time of a submission at its end."""

    _process: PreparedProcess

    def _handle(self, message: ToProcess, descriptors: list[int]) -> Forked | None:
        if not isinstance(message, End):
            return super()._handle(message, descriptors)
        self._kill()
        self._reap_all()
        self._exits.clear()
        self._channel.send(Ended(reaped_cpu_time()))
        return None

    def _ports_needed(self) -> int:
        return 0

    def _apply_profile(self) -> None:
        super()._apply_profile()
        layout = self._layout if self._directory is None else Layout.below(self._directory)
        self._process = self._make_process(layout.at(layout.work))
        self._process.prepare()

    def _make_process(self, layout: Layout) -> PreparedProcess:
        return SubmissionProcess(layout, profile=self._profile, prepared=self._prepared)

    def _fork_process(self) -> int:
        return fork_bare()

    def _new_worker(self, channel: int, stdout: int, stderr: int) -> Forked:
        self._process.adopt(channel, stdout, stderr)
        return self._process
