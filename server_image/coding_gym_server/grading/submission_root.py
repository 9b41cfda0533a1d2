"""The root of a booth: owns every process of the submissions that are graded there, one submission at a time."""

from __future__ import annotations

from coding_gym_server.grading.submission import SubmissionProcess
from coding_gym_server.workers.forking import fork_bare
from coding_gym_server.workers.messages import End, Ended, ToProcess
from coding_gym_server.workers.root import Forked, Root, cpu_time_of_the_dead

__all__ = ["SubmissionRoot"]


class SubmissionRoot(Root):
    """A root that forks processes of submissions, and says what all that has come of one has used in the end."""

    def _answer(self, message: ToProcess, descriptors: list[int]) -> Forked | None:
        if not isinstance(message, End):
            return super()._answer(message, descriptors)
        self._kill()
        self._reap_all()
        self._exits.clear()
        self._channel.send(Ended(cpu_time_of_the_dead()))
        return None

    def _ports_needed(self) -> int:
        return 0

    def _confine(self) -> None:
        super()._confine()
        self._process = SubmissionProcess(self._workspace, confinement=self._confinement, prepared=self._prepared)
        self._process.prepare()

    def _fork_process(self) -> int:
        return fork_bare()

    def _new_worker(self, channel: int, stdout: int, stderr: int) -> Forked:
        self._process.adopt(channel, stdout, stderr)
        return self._process
