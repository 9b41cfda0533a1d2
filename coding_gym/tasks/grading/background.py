"""``BackgroundGrading``: grades a submission while its sender keeps using the same sandbox."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from coding_gym.errors import ProviderError
from coding_gym.sandbox import ManagedSandbox, Sandbox
from coding_gym.tasks.grading.connection import CancellationToken, GradingConnection, not_run
from coding_gym.tasks.task import Task
from coding_gym.tasks.verdict import Verdict
from coding_gym.tracing import in_current_context
from coding_gym_server.protocol.grading import VerdictOutcome

__all__ = ["BackgroundGrading", "BorrowedSandbox"]

_RETRIES = 2


class BackgroundGrading:
    """Grades one submission at a time in a background thread.

    It occupies a session slot of a sandbox from its first submission until ``close``.

    Args:
        slot: Source of the sandbox.
    """

    def __init__(self, slot: ManagedSandbox) -> None:
        self._connection = GradingConnection(slot, retries=_RETRIES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="coding_gym_grading")
        self._in_progress: tuple[CancellationToken, Future[Verdict]] | None = None

    def begin(self, task: Task, code: str) -> None:
        """Start grading a submission; cancels the one in progress."""
        self.cancel()
        run = CancellationToken()
        self._in_progress = run, self._thread.submit(in_current_context(self._grade), task, code, run)

    def finish(self) -> Verdict | None:
        """Wait for the verdict on the submission in progress; None if there is none.

        Raises:
            ConfigurationError: If the task cannot be graded, regardless of the submission.
        """
        if self._in_progress is None:
            return None
        try:
            return self._in_progress[1].result()
        except BaseException:
            # Possibly a KeyboardInterrupt: no caller is left to use this verdict.
            self.cancel()
            raise
        finally:
            self._in_progress = None

    def cancel(self) -> None:
        """Cancel the submission in progress. Idempotent."""
        if self._in_progress is not None:
            run, verdict = self._in_progress
            self._in_progress = None
            run.is_cancelled = True
            if not verdict.cancel() and not verdict.done():
                self._connection.abort(run)

    def close(self) -> None:
        """Cancel the submission in progress and release the session slot."""
        self.cancel()
        self._thread.shutdown()
        self._connection.close()

    def _grade(self, task: Task, code: str, run: CancellationToken) -> Verdict:
        try:
            return Verdict.of(task.id, self._connection.grade(task, task.submission(code), run))
        except ProviderError as error:
            return Verdict(task_id=task.id, outcome=VerdictOutcome.INFRASTRUCTURE, cases=not_run(task), message=str(error))


class BorrowedSandbox(ManagedSandbox):
    """Sandbox borrowed from another slot, whose owner starts and removes it.

    Args:
        owner: The slot that owns the sandbox.
        fork_of: See ``ManagedSandbox``.
    """

    def __init__(self, owner: ManagedSandbox, *, fork_of: str | None = None) -> None:
        super().__init__(owner.config, fork_of=fork_of)
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
        # Only checks that the sandbox is still there: the owner counts episodes.
        return self._used is self._owner.sandbox

    def _remove(self) -> None:
        self._used = None
