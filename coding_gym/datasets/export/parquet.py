"""Export to Parquet, which Hugging Face ``datasets`` and polars read directly."""

from __future__ import annotations

import base64
import functools
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from coding_gym._optional import import_extra
from coding_gym._validation import check_one_of
from coding_gym.datasets.card import write_card
from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.episode import Episode, Step
from coding_gym.errors import DatasetError

__all__ = ["Level", "export_parquet"]

Level = Literal["step", "episode"]

_FILE = "data/train-00000-of-00001.parquet"
_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 10_000
_PNG_LEVEL = 3

_OWN_COLUMNS = frozenset(
    ("episode", "task_id", "seed", "step", "action", "reward", "terminated", "truncated", "outcome", "info", "decision")
)
_IMAGE, _JSON = "image", "json"
_TYPES = {"string": "string", "int64": "int64", "float64": "float64", "bool": "bool", _JSON: "string"}


def export_parquet(dataset: Dataset, path: Path | str, *, level: Level = "step", card: bool = False) -> Path:
    """Write a Parquet file to a directory, in the layout of datasets on the Hugging Face Hub.

    With ``level="step"``, a row is a step: ``episode``, ``step`` (0 is the reset), ``task_id``, ``seed``, ``action`` (None for
    the reset), the fields of the observation by their names, ``reward``, ``terminated``, ``truncated``, ``outcome``, ``info``
    and ``decision`` (JSON). With ``level="episode"``, a row is an episode: ``episode``, ``task_id``, ``seed``,
    ``total_reward``, ``solved``, ``sha256``, and ``steps``, a list of structs with the other fields of a step.

    Images are PNG, in the encoding of the ``Image`` feature of ``datasets``. Text and numbers have columns of their type; other
    values, such as the actions of ``CodingEnvGUI``, are JSON.

    Args:
        dataset: Dataset to export.
        path: Output directory; existing files are replaced when the new ones are complete.
        level: Granularity of the rows: ``"step"`` or ``"episode"``.
        card: Whether to write a dataset card for the Hub, too: a ``README.md``, because of which pandas and pyarrow no longer
            read the directory itself, but its directory ``data``.

    Returns:
        Path of the Parquet file.

    Raises:
        ConfigurationError: If the level is invalid, or pyarrow is not installed.
        DatasetError: If the dataset is empty, or the observations of its episodes have different fields.
    """
    check_one_of("level", level, ("step", "episode"))
    parquet = import_extra("pyarrow.parquet", extra="datasets")
    if not len(dataset):
        message = f"There are no episodes in {dataset.path}"
        raise DatasetError(message)
    directory = Path(path)
    target = directory / _FILE
    target.parent.mkdir(parents=True, exist_ok=True)
    new = target.with_name(f".{target.name}.new")
    table = _Table(dataset, level)
    try:
        with parquet.ParquetWriter(new, table.schema, compression="zstd") as writer:
            for rows in _groups(table.rows()):
                writer.write_table(table.make(rows))
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    if card:
        write_card(dataset, directory, data_files="data/*.parquet")
    return target


class _Table:
    """Schema and rows of an exported table."""

    def __init__(self, dataset: Dataset, level: Level) -> None:
        self._pyarrow = import_extra("pyarrow", extra="datasets")
        self._dataset = dataset
        self._level = level
        self._hashes = dataset.hashes
        self._observed = _kinds_of(_first_observation(dataset))
        of_step = {
            "step": "int64",
            "action": "string",
            **self._observed,
            "reward": "float64",
            "terminated": "bool",
            "truncated": "bool",
            "outcome": "string",
            "info": _JSON,
            "decision": _JSON,
        }
        of_episode = {"episode": "int64", "task_id": "string", "seed": "int64"}
        totals = {"total_reward": "float64", "solved": "bool", "sha256": "string"}
        if level == "step":
            columns: dict[str, Any] = {**of_episode, **of_step}
        else:
            columns = {**of_episode, **totals, "steps": of_step}
        self.schema = self._schema(columns)

    def rows(self) -> Iterator[dict[str, Any]]:
        for episode in self._dataset:
            of_episode = {"episode": episode.index, "task_id": episode.task_id, "seed": episode.seed}
            steps = (self._step(number, step, episode) for number, step in enumerate(episode.steps))
            if self._level == "step":
                yield from ({**of_episode, **step} for step in steps)
            else:
                totals = {
                    "total_reward": episode.total_reward,
                    "solved": episode.solved,
                    "sha256": self._hashes[episode.index],
                }
                yield {**of_episode, **totals, "steps": list(steps)}

    def make(self, rows: list[dict[str, Any]]) -> Any:
        return self._pyarrow.Table.from_pylist(rows, schema=self.schema)

    def _step(self, number: int, step: Step, episode: Episode) -> dict[str, Any]:
        fields = _fields(step.observation)
        if fields.keys() != self._observed.keys():
            message = (
                f"Expected the observations of episode {episode.index} to have the fields of the first episode's, "
                f"{', '.join(self._observed)}, got {', '.join(fields)}"
            )
            raise DatasetError(message)
        outcome = step.info.get("outcome")
        return {
            "step": number,
            "action": step.action if isinstance(step.action, str | None) else _to_json(step.action),
            **{name: _convert(value, self._observed[name]) for name, value in fields.items()},
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "outcome": None if outcome is None else str(outcome),
            "info": _to_json(step.info),
            "decision": None if step.decision is None else _to_json(step.decision),
        }

    def _schema(self, columns: Mapping[str, Any]) -> Any:
        features = {name: _feature(kind) for name, kind in columns.items()}
        # The metadata from which ``datasets`` restores its features, as it writes them itself.
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        return self._pyarrow.schema([(name, self._type(kind)) for name, kind in columns.items()], metadata=metadata)

    def _type(self, kind: Any) -> Any:
        arrow = self._pyarrow
        if isinstance(kind, Mapping):
            return arrow.list_(arrow.struct([(name, self._type(inner)) for name, inner in kind.items()]))
        if kind == _IMAGE:
            return arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        return {"string": arrow.string, "int64": arrow.int64, "float64": arrow.float64, "bool": arrow.bool_}[_TYPES[kind]]()


def _groups(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Split the rows into row groups that fit into memory."""
    group: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += _size(row)
        if size >= _GROUP_BYTES or len(group) >= _GROUP_ROWS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _size(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, (str, bytes)) else 8


def _first_observation(dataset: Dataset) -> Any:
    return dataset[0].steps[0].observation


def _fields(observation: Any) -> dict[str, Any]:
    if not isinstance(observation, Mapping):
        return {"observation": observation}
    return {f"observation_{name}" if name in _OWN_COLUMNS else str(name): value for name, value in observation.items()}


def _kinds_of(observation: Any) -> dict[str, str]:
    return {name: _kind_of(value) for name, value in _fields(observation).items()}


def _kind_of(value: Any) -> str:
    if _is_picture(value):
        return _IMAGE
    # ``bool`` before ``int``, because it is a subclass.
    kinds = ((str, "string"), (bool, "bool"), (int, "int64"), (float, "float64"))
    return next((kind for python, kind in kinds if isinstance(value, python)), _JSON)


def _is_picture(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] == 3


def _feature(kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return [{name: _feature(inner) for name, inner in kind.items()}]
    return {"_type": "Image"} if kind == _IMAGE else {"dtype": _TYPES[kind], "_type": "Value"}


def _convert(value: Any, kind: str) -> Any:
    if kind == _IMAGE:
        return {"bytes": _png(value), "path": None}
    return _to_json(value) if kind == _JSON else value


def _png(picture: NDArray[np.uint8]) -> bytes:
    if picture.any():
        return _encode_png(picture)
    return _black_png(picture.shape)


@functools.lru_cache(16)
def _black_png(shape: tuple[int, ...]) -> bytes:
    return _encode_png(np.zeros(shape, np.uint8))


def _encode_png(picture: NDArray[np.uint8]) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", compress_level=_PNG_LEVEL)
    return file.getvalue()


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=_jsonable)


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return base64.b64encode(value).decode()
