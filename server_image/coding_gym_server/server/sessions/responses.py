"""Responses of sessions to resets and steps."""

from __future__ import annotations

import msgspec

from coding_gym_server.protocol import INFRASTRUCTURE_EXIT_CODE, Metadata, Observation, ObservationData, Outcome
from coding_gym_server.server.supervisor.cell_run import CompletedCell
from coding_gym_server.server.supervisor.executor import Executor

__all__ = ["infrastructure_failure", "response", "unfinished"]


def response(stdout: str, stderr: str, exit_code: int, metadata: Metadata, *, reward: float = 0.0) -> ObservationData:
    """Return the response with an observation."""
    observation = Observation(stdout=stdout, stderr=stderr, exit_code=exit_code, metadata=metadata)
    # Results may be large, so they are included only once.
    brief = msgspec.structs.replace(metadata, results=[]) if metadata.results else metadata
    return ObservationData(observation=observation, reward=reward, done=False, metadata=brief)


def infrastructure_failure(error: Exception) -> ObservationData:
    """Return the response to a step that the sandbox failed to run."""
    message = f"the sandbox failed to run this step: {str(error) or type(error).__name__}\n"
    metadata = Metadata(outcome=Outcome.INFRASTRUCTURE, state_lost=True, truncated=True)
    return response("", message, INFRASTRUCTURE_EXIT_CODE, metadata)


def unfinished(executor: Executor, *, is_running: bool) -> CompletedCell:
    """Return the outcome of a step in which no cell ended, with the output since the last step.

    Args:
        executor: The executor.
        is_running: Whether a program has been left running.
    """
    stdout, stderr = executor.take_output()
    return CompletedCell(
        outcome=Outcome.RUNNING if is_running else Outcome.OK,
        exit_code=0,
        state_lost=False,
        stdout=stdout,
        stderr=stderr,
        note="",
        raised=None,
    )
