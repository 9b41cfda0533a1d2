"""``info`` of a step."""

from __future__ import annotations

from typing import Any

from coding_gym.envs.options import EnvOptions
from coding_gym.media.results import Result
from coding_gym.media.video import Video
from coding_gym_server.protocol import Observation

__all__ = ["Info", "info_of"]

Info = dict[str, Any]


def info_of(settings: EnvOptions, observation: Observation) -> Info:
    """Return the ``info`` of a step, with the parts that the options request."""
    metadata = observation.metadata
    info: Info = {"outcome": metadata.outcome.value, "state_lost": metadata.state_lost}
    if metadata.idle is not None:
        info["idle"] = metadata.idle
    if settings.results:
        info["results"] = tuple(map(Result.of, metadata.results))
    if settings.frames is not None:
        info["frames"] = Video(observation.frames)
    if settings.widgets:
        info["widgets"] = tuple(observation.widgets)
    return info
