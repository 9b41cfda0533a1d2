"""Pictures in the format that the server sends."""

from __future__ import annotations

import numpy as np
import zstandard
from numpy.typing import NDArray

from coding_gym_server.protocol import Frame, Metadata, Observation, ObservationData, Outcome, Pixels

__all__ = ["frame", "observed", "pixels", "plain", "striped"]


def pixels(picture: NDArray[np.uint8]) -> Pixels:
    return Pixels(picture.shape[1], picture.shape[0], zstandard.ZstdCompressor(1).compress(picture.tobytes()))


def frame(time: float, picture: NDArray[np.uint8]) -> Frame:
    return Frame(time, pixels(picture))


def plain(width: int, height: int, value: int) -> NDArray[np.uint8]:
    return np.full((height, width, 3), value, np.uint8)


def striped(width: int, height: int) -> NDArray[np.uint8]:
    """Return a picture in which positions and color channels can be distinguished."""
    down, across, channel = np.indices((height, width, 3))
    return ((down * 7 + across * 3 + channel * 50) % 256).astype(np.uint8)


def observed(*, stdout: str = "", exit_code: int = 0, outcome: Outcome = Outcome.OK, **fields: object) -> ObservationData:
    metadata = Metadata(outcome=outcome, state_lost=False, idle=fields.pop("idle", None))
    observation = Observation(stdout=stdout, stderr="", exit_code=exit_code, metadata=metadata, **fields)
    return ObservationData(observation=observation, reward=0.0, done=False, metadata=metadata)
