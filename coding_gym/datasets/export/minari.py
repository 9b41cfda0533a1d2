"""Export to Minari, a dataset format for offline reinforcement learning."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from coding_gym._optional import import_extra
from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.env_factory import EnvSource, Wrapper, recorded_factory
from coding_gym.datasets.episode import Episode, Step
from coding_gym.errors import ConfigurationError, DatasetError

__all__ = ["export_minari"]

_MAX_TEXT_CHARS = 1_000_000
_SCALARS = (bool, int, float, str)
_PLAIN_SPACES = (
    gym.spaces.Text,
    gym.spaces.Box,
    gym.spaces.Discrete,
    gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
)


def export_minari(
    dataset: Dataset,
    dataset_id: str,
    *,
    env: EnvSource | None = None,
    wrappers: Sequence[Wrapper] = (),
    **about: Any,
) -> Any:
    """Write a Minari dataset in the Arrow format, with lossless images, below ``MINARI_DATASETS_PATH``.

    Episodes without actions are skipped. All infos have the same keys: a missing number is 0, a missing text empty, and values
    that are neither are JSON. Actions whose space Minari does not support, such as those of ``CodingEnvGUI``, are JSON, too.

    Args:
        dataset: Dataset to export.
        dataset_id: Id of the Minari dataset, such as ``coding/loops/random-v0``.
        env: Callable that makes the environment, whose spaces are required, if the dataset was collected from a callable.
        wrappers: Wrappers that the dataset was collected with, the innermost first.
        about: Keyword arguments of ``minari.create_dataset_from_buffers``, such as ``author`` or ``description``.

    Returns:
        The ``minari.MinariDataset``.

    Raises:
        ConfigurationError: If Minari is not installed, or the id is invalid.
        DatasetError: If no episode has an action, or the environment is not registered and ``env`` is not passed.
    """
    minari = import_extra("minari", extra="minari")
    data_collector = import_extra("minari.data_collector", extra="minari")
    import_extra("pyarrow.dataset", extra="minari")
    names = {name: kind for episode in dataset.without_arrays() for step in episode.steps for name, kind in _kinds(step.info)}
    if not any(len(episode.steps) > 1 for episode in dataset.without_arrays()):
        message = f"There is no episode with an action in {dataset.path}"
        raise DatasetError(message)
    made = recorded_factory(dataset, env, wrappers).make()
    observation_space, action_space = _known(made.observation_space), _known(made.action_space)
    spec = made.spec
    made.close()
    buffers = (
        data_collector.EpisodeBuffer(**_columns(episode, observation_space, action_space, names))
        for episode in dataset
        if len(episode.steps) > 1
    )
    try:
        with warnings.catch_warnings():
            # Minari warns about missing recommended metadata.
            warnings.simplefilter("ignore", UserWarning)
            return minari.create_dataset_from_buffers(
                dataset_id,
                buffers,
                env=_serializable(spec),
                observation_space=observation_space,
                action_space=action_space,
                data_format="arrow",
                jpeg_encoding=False,
                **{"algorithm_name": str(dataset.manifest.arguments.policy.get("name")), **about},
            )
    except ValueError as error:
        message = f"Minari does not write {dataset_id!r}: {error}"
        raise ConfigurationError(message) from error


def _columns(
    episode: Episode, observation_space: gym.Space[Any], action_space: gym.Space[Any], names: Mapping[str, type]
) -> dict[str, Any]:
    acted = episode.steps[1:]
    return {
        "id": None,
        "seed": episode.seed,
        "options": json.loads(json.dumps(episode.options, default=str)) or None,
        "observations": _column([step.observation for step in episode.steps], observation_space),
        "actions": _column([step.action for step in acted], action_space),
        "rewards": [step.reward for step in acted],
        "terminations": [step.terminated for step in acted],
        "truncations": [step.truncated for step in acted],
        "infos": {name: [_info_value(step, name, kind) for step in episode.steps] for name, kind in names.items()},
    }


def _column(values: list[Any], space: gym.Space[Any]) -> Any:
    if isinstance(space, gym.spaces.Dict):
        return {name: _column([value[name] for value in values], inner) for name, inner in space.spaces.items()}
    if isinstance(space, gym.spaces.Text):
        return [value if isinstance(value, str) else _to_json(value) for value in values]
    return [np.asarray(value, space.dtype) for value in values]


def _known(space: gym.Space[Any]) -> gym.Space[Any]:
    """Return a space that Minari can write: unsupported spaces are replaced by text."""
    if isinstance(space, _PLAIN_SPACES):
        return space
    if isinstance(space, gym.spaces.Dict) and all(_known(inner) is inner for inner in space.spaces.values()):
        return space
    return gym.spaces.Text(_MAX_TEXT_CHARS, min_length=0)


def _kinds(info: Mapping[str, Any]) -> Iterator[tuple[str, type]]:
    for name, value in info.items():
        yield name, next((kind for kind in _SCALARS if isinstance(value, kind)), object)


def _info_value(step: Step, name: str, kind: type) -> Any:
    if name not in step.info:
        return "" if kind is object else kind()
    value = step.info[name]
    return _to_json(value) if kind is object else kind(value)


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda other: getattr(other, "tolist", other.__str__)())


def _serializable(spec: Any) -> Any:
    """Return the spec of an environment, or None if it cannot be serialized."""
    try:
        spec.to_json()
    except (AttributeError, TypeError, ValueError):
        return None
    return spec
