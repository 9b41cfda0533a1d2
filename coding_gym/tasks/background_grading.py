"""``BackgroundGrading``: a submission is graded while its sender does something else in the same sandbox."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from coding_gym.errors import ProviderError
from coding_gym.providers import Sandbox, SandboxSlot
from coding_gym.tasks.grading_place import GradingPlace, Run, not_run
from coding_gym.tasks.task import Task
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.grading.messages import VerdictOutcome

__all__ = ["BackgroundGrading", "BorrowedSlot"]

_RETRIES = 2


class BackgroundGrading:
    """Grades one submission at a time, in a thread. It takes a place of a sandbox from its first submission until ``close``.

    Args:
        slot: Where the sandbox comes from.
    """

    def __init__(self, slot: SandboxSlot) -> None:
        self._place = GradingPlace(slot, retries=_RETRIES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="coding_gym_grading")
        self._under_way: tuple[Run, Future[Verdict]] | None = None

    def begin(self, task: Task, code: str) -> None:
        """Begin to grade; what was under way is cancelled."""
        self.cancel()
        run = Run()
        self._under_way = run, self._thread.submit(self._grade, task, code, run)

    def finish(self) -> Verdict | None:
        """Wait for the verdict on what was begun; None if nothing was.

        Raises:
            ConfigurationError: The task cannot be graded, whatever the submission.
        """
        if self._under_way is None:
            return None
        try:
            return self._under_way[1].result()
        except BaseException:
            # Interrupted, perhaps: nobody asks for this verdict any more.
            self.cancel()
            raise
        finally:
            self._under_way = None

    def cancel(self) -> None:
        """Give up what is under way; harmless if nothing is."""
        if self._under_way is not None:
            run, verdict = self._under_way
            self._under_way = None
            run.is_cancelled = True
            if not verdict.cancel() and not verdict.done():
                self._place.abort(run)

    def close(self) -> None:
        """Give up what is under way, and the place in the sandbox."""
        self.cancel()
        self._thread.shutdown()
        self._place.close()

    def _grade(self, task: Task, code: str, run: Run) -> Verdict:
        try:
            return Verdict.of(task.id, self._place.grade(task, task.submission(code), run))
        except ProviderError as error:
            return Verdict(task_id=task.id, outcome=VerdictOutcome.INFRASTRUCTURE, cases=not_run(task), message=str(error))


class BorrowedSlot(SandboxSlot):
    """The sandbox that is in somebody else's slot, who starts and removes it.

    Args:
        owner: The slot.
    """

    def __init__(self, owner: SandboxSlot) -> None:
        super().__init__(owner.config)
        self._owner = owner
        self._used: Sandbox | None = None

    @property
    def sandbox(self) -> Sandbox | None:
        return self._used

    def obtain(self) -> Sandbox:
        self._used = self._owner.obtain()
        return self._used

    def give_up(self, sandbox: Sandbox) -> None:
        self._owner.give_up(sandbox)

    def begin_episode(self) -> bool:
        # Nothing but whether it is still there: episodes are the owner's to count.
        return self._used is self._owner.sandbox

    def close(self) -> None:
        self._used = None
