"""``EpisodeReports``: reports of an environment's resets and steps, for spans and for watching."""

from __future__ import annotations

from typing import Any

from coding_gym.envs.options import EnvOptions
from coding_gym.telemetry import Group, SessionReporter
from coding_gym.tracing import OperationTrace
from coding_gym_server.protocol import Observation

__all__ = ["EpisodeReports"]


class EpisodeReports:
    """Reports of an environment's resets and steps: spans of OpenTelemetry, while they are recorded, and reports to watchers.

    Args:
        env_id: The id of the environment.
        settings: Options of the environment.

    Attributes:
        watched: The reports to watchers.
    """

    def __init__(self, env_id: str, settings: EnvOptions) -> None:
        self.watched = SessionReporter(env_id, backend=settings.backend, screen=settings.screen_size)
        self._env_id = env_id
        self._backend = settings.backend
        self._step_timeout = settings.step_timeout
        self._index: int | None = None
        self._trace = OperationTrace()

    def place(self, group: Group, index: int) -> None:
        """Set the place of the environment in a vector environment."""
        self.watched.place(group, index)
        self._index = index

    def resetting(self, *, step_timeout: float) -> None:
        """Report that a reset has begun.

        Args:
            step_timeout: Wall-clock limit of the steps after it, in seconds.
        """
        self._step_timeout = step_timeout
        self._trace.begin("reset", self._attributes)
        self.watched.resetting()

    def running(self, code: str) -> None:
        """Report that a step has begun."""
        self._trace.begin("step", self._attributes)
        self.watched.running(code)

    def answered(self, observation: Observation, seconds: float) -> None:
        """Report the response to a reset or step, for its span.

        Args:
            observation: The response.
            seconds: Seconds since the request.
        """
        if self._trace.is_recording:
            attributes = {"coding_gym.duration": seconds, "process.exit.code": observation.exit_code}
            self._trace.end(observation.metadata.outcome.value, attributes)

    def failed(self, error: BaseException) -> None:
        """Report that a reset or step has raised an exception instead of returning."""
        self._trace.fail(error)
        self.watched.abandoned()

    def _attributes(self) -> dict[str, Any]:
        attributes = {
            "coding_gym.env.id": self._env_id,
            "coding_gym.backend": self._backend or "default",
            "coding_gym.timeout": float(self._step_timeout),
        }
        return attributes if self._index is None else {**attributes, "coding_gym.env.index": self._index}
