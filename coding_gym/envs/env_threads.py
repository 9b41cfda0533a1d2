"""``EnvThreads``: a thread for each environment that is stepped first come, first served."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from coding_gym.envs.answers import Answers
from coding_gym.envs.episode import StepResult
from coding_gym.tracing import in_current_context

__all__ = ["EnvThreads"]

_CANCEL_SECONDS = 5.0
"""Maximum number of seconds that ``close`` waits for calls in progress."""

_ABORT_SECONDS = 0.05
"""Pause between attempts to abort a call: a reset may open another session afterwards."""


class EnvThreads:
    """Runs the steps and resets of environments, those of each one after another in its own thread.

    The threads start with their first calls. They are daemon threads: those of ``ThreadPoolExecutor`` would delay the exit of
    the process until their calls return.

    Args:
        answers: Gets the results and errors.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._threads: dict[int, threading.Thread] = {}
        self._calls: dict[int, SimpleQueue[Callable[[], None] | None]] = {}

    def submit(self, index: int, call: Callable[[], StepResult], then: Callable[[int, StepResult], None]) -> None:
        """Run a call for an environment.

        Args:
            index: The environment.
            call: The call; its result, or the error that it raises, is the answer.
            then: Is called with the index and the result after the answer has been put. Must not raise.
        """
        call = in_current_context(call)

        def run() -> None:
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - recv raises it
                self._answers.put(index, error)
                return
            self._answers.put(index, result)
            then(index, result)

        if index not in self._threads:
            calls = self._calls[index] = SimpleQueue()
            thread = threading.Thread(target=_run_all, args=(calls,), name=f"coding_gym_env_{index}", daemon=True)
            self._threads[index] = thread
            thread.start()
        self._calls[index].put(run)

    def close(self, abort: Callable[[int], None]) -> None:
        """End the threads; wait some seconds for calls in progress.

        Args:
            abort: Lets the call of an environment fail.
        """
        for calls in self._calls.values():
            calls.put(None)
        deadline = time.monotonic() + _CANCEL_SECONDS
        left = list(self._threads.values())
        while left and time.monotonic() < deadline:
            for index in self._answers.pending:
                abort(index)
            for thread in left:
                thread.join(_ABORT_SECONDS / len(left))
            left = [thread for thread in left if thread.is_alive()]


def _run_all(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        # A waiting thread keeps the environment of its last call from being collected otherwise.
        del call
