"""Saving of search trees: nodes as data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from gymnasium.envs.registration import EnvSpec

from coding_gym.media.frames import is_black
from coding_gym.plugins import clip, png, without_surrogates
from coding_gym_search.node import Node
from coding_gym_search.saved_tree import Header, SavedNode

__all__ = ["MAX_OUTPUT_CHARS", "MIN_OUTPUT_CHARS", "write_tree"]

MAX_OUTPUT_CHARS = 20_000
"""Length in characters to which the outputs of a node are clamped by default."""

MIN_OUTPUT_CHARS = 100
"""Least length in characters to which they can be clamped."""

_PICTURE_DIMENSIONS = 3


def write_tree(
    path: Path, nodes: Iterable[Node], *, spec: EnvSpec | None, max_output_chars: int, include_pictures: bool
) -> None:
    """Write nodes to a file in the format of ``saved_tree``. The file is replaced when it is complete.

    Args:
        path: Path of the file.
        nodes: All nodes of a tree, in order of creation.
        spec: Specification of the environment; None if it is not registered.
        max_output_chars: Length in characters to which outputs are clamped.
        include_pictures: Whether to write screenshots.
    """
    nodes = list(nodes)
    encoder = msgspec.json.Encoder()
    header = Header(
        nodes=len(nodes),
        max_output_chars=max_output_chars,
        environment=None if spec is None else spec.id,
        backend=None if spec is None else spec.kwargs.get("backend"),
    )
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(encoder.encode(header) + b"\n")
            for node in nodes:
                saved = _saved(node, max_output_chars, include_pictures=include_pictures)
                file.write(encoder.encode(saved) + b"\n")
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def _saved(node: Node, limit: int, *, include_pictures: bool) -> SavedNode:
    outcome, solved = node.info.get("outcome"), node.info.get("solved")
    return SavedNode(
        id=node.index,
        parent=None if node.parent is None else node.parent.index,
        depth=node.depth,
        action=_action(node.action),
        reward=_finite(node.reward),
        total_reward=_finite(node.total_reward),
        terminated=node.terminated,
        truncated=node.truncated,
        outcome=None if outcome is None else _text(outcome),
        solved=None if solved is None else bool(solved),
        value=_finite(node.value),
        visits=node.visits,
        score=None if node.score is None else _finite(node.score),
        prior=_finite(node.prior),
        untried=None if node.untried is None else len(node.untried),
        picture=_picture(node.observation) if include_pictures else None,
        **_outputs(node.observation, limit),
    )


def _outputs(observation: Any, limit: int) -> dict[str, Any]:
    """Return the fields of a node for the text of an observation, clamped."""
    if observation is None:
        return {}
    if not isinstance(observation, Mapping):
        return {"observation": clip(_text(observation), limit)}
    if "stdout" not in observation:
        others = {name: entry for name, entry in observation.items() if name != "screenshot"}
        return {"observation": clip(_text(others), limit)}
    fields: dict[str, Any] = {}
    for name in ("stdout", "stderr"):
        if name in observation:
            text = _text(observation[name])
            fields[name] = clip(text, limit)
            fields[f"{name}_chars"] = len(text) if len(text) > limit else None
    if "exit_code" in observation:
        fields["exit_code"] = int(observation["exit_code"])
    return fields


def _picture(observation: Any) -> bytes | None:
    screen = observation.get("screenshot") if isinstance(observation, Mapping) else None
    if not isinstance(screen, np.ndarray) or screen.dtype != np.uint8 or screen.ndim != _PICTURE_DIMENSIONS:
        return None
    if is_black(screen) or not screen.any():
        return None
    return png(screen)


def _action(action: Any) -> Any:
    """Return an action as data that JSON has, or its text if it consists of something else."""
    try:
        data = msgspec.to_builtins(action, str_keys=True, enc_hook=_data)
        msgspec.json.encode(data := without_surrogates(data))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _text(action)
    return data


def _data(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, str):
        return str(value)
    message = f"{type(value).__name__} is not data"
    raise TypeError(message)


def _text(value: Any) -> str:
    return str(without_surrogates(str(value)))


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None
