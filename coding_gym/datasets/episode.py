"""Recorded episodes, their binary encoding, and their hashes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coding_gym._html import Html, caption, clip, document, element, mark, preformatted, table
from coding_gym._text import without_surrogates
from coding_gym.datasets.details import ARRAY_CODE, COMPRESSION_LEVEL, PackedArray
from coding_gym.errors import DatasetError
from coding_gym.media.frames import is_black
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["Episode", "Step", "decode_episode", "encode_episode", "episode_hash", "plain", "recordable_info"]

_CELL_CHARS = 400
_UNSERIALIZABLE = (TypeError, ValueError, OverflowError, RecursionError)
_LEFT_OUT = object()

_log = logging.getLogger("coding_gym")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded step: an action and its result. The first step of an episode is its reset, without an action.

    Attributes:
        observation: Observation returned by the environment, with NumPy scalars converted to Python scalars.
        action: Action chosen by the policy; None for the reset.
        reward: Reward; 0 for the reset.
        terminated: Whether the episode reached a terminal state.
        truncated: Whether the episode was truncated, including by ``max_steps``.
        info: Serializable part of the info: without ``frames``, for example.
        decision: Details that the policy returned with the action. For a chat model: the ``messages`` sent to it, the full
            ``content`` of its response, and its ``usage``. None if there are none.
    """

    observation: Any
    action: Any = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = {}
    decision: dict[str, Any] | None = None


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """Complete recorded episode, without data that vary between identical runs, such as timestamps.

    Attributes:
        index: Index of the episode in the dataset.
        seed: Seed passed to ``reset``, derived from the dataset's seed and ``index``.
        options: Options passed to ``reset``, with the ``task_id`` that the environment has drawn otherwise.
        steps: The reset, followed by one step per action.
    """

    index: int
    seed: int
    options: dict[str, Any] = {}
    steps: tuple[Step, ...]

    @property
    def task_id(self) -> str | None:
        """Id of the task in the reset options; None if there is none."""
        return self.options.get("task_id")

    @property
    def actions(self) -> list[Any]:
        """Actions, in order."""
        return [step.action for step in self.steps[1:]]

    @property
    def total_reward(self) -> float:
        """Sum of the rewards."""
        return sum(step.reward for step in self.steps)

    def _repr_html_(self) -> str:
        solved = self.solved
        note = f"seed {self.seed}, {len(self.actions)} actions, reward {self.total_reward:g}"
        rows = (
            (index, _text(step.action), _output(step.observation), f"{step.reward:g}") for index, step in enumerate(self.steps)
        )
        return document(
            caption(element("b", f"Episode {self.index}"), f": {note} ", mark(solved)),
            table(("step", "action", "observation", "reward"), rows, total=len(self.steps)),
        )

    @property
    def solved(self) -> bool | None:
        """Whether ``info["solved"]`` is true at any step; None if no step has it."""
        reports = [bool(step.info["solved"]) for step in self.steps if "solved" in step.info]
        return any(reports) if reports else None


def encode_episode(episode: Episode) -> tuple[bytes, bytes]:
    """Return an episode as Zstandard-compressed MessagePack, with images and other arrays lossless, and its hash.

    Lone surrogates, which UTF-8 cannot encode, are replaced with U+FFFD.

    Raises:
        DatasetError: If the episode contains a value that is not serializable.
    """
    import zstandard

    try:
        try:
            encoded = _encoder.encode(episode)
        except UnicodeEncodeError:
            episode = _without_surrogates(episode)
            encoded = _encoder.encode(episode)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"Episode {episode.index} cannot be recorded: {error}. Actions and observations must be serializable"
        raise DatasetError(message) from error
    return zstandard.ZstdCompressor(COMPRESSION_LEVEL).compress(encoded), episode_hash(episode)


def decode_episode(data: bytes, *, arrays: bool = True) -> Episode:
    """Decode an episode encoded by ``encode_episode``.

    Args:
        data: Encoded episode.
        arrays: Whether to decode images and other arrays; if False, None replaces them.

    Raises:
        DatasetError: If the data are not an encoded episode.
    """
    import zstandard

    decoder = _decoder if arrays else _decoder_without_arrays
    try:
        return decoder.decode(zstandard.ZstdDecompressor().decompress(data))
    except (*DECODING_ERRORS, zstandard.ZstdError, ValueError) as error:
        message = f"Expected a recorded episode, got something else: {error}"
        raise DatasetError(message) from error


def episode_hash(episode: Episode) -> bytes:
    """Return the SHA-256 of the contents of an episode.

    It is computed over MessagePack with sorted keys, in which dtype, shape and SHA-256 represent an array: it depends neither
    on the compression nor on the order of keys. A mapping with keys other than text is represented by its sorted items.
    """
    try:
        encoded = _hash_encoder.encode(episode)
    except TypeError:
        # msgspec sorts keys that are text only.
        contents = msgspec.msgpack.decode(_unsorted_hash_encoder.encode(episode))
        encoded = _hash_encoder.encode(_with_sorted_items(contents))
    return hashlib.sha256(encoded).digest()


def _with_sorted_items(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_sorted_items(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    contents = {key: _with_sorted_items(entry) for key, entry in value.items()}
    if all(isinstance(key, str) for key in contents):
        return contents
    return sorted(contents.items(), key=lambda item: _hash_encoder.encode(item[0]))


def plain(value: Any) -> Any:
    """Return a value as it is decoded from a recording.

    Tuples become lists, input events and other dataclasses become mappings, and NumPy scalars become Python scalars.

    Raises:
        TypeError: If the value is not serializable.
    """
    try:
        encoded = _encoder.encode(value)
    except UnicodeEncodeError:
        encoded = _encoder.encode(without_surrogates(value))
    return _plain_decoder.decode(encoded)


def recordable_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the serializable part of an ``info``.

    Paths and integers of more than 64 bits become text. What else cannot be recorded is left out, alone, and logged once.
    """
    try:
        return {str(name): value for name, value in plain(info).items()}
    except _UNSERIALIZABLE:
        return {str(name): value for name, value in _recordable_items(info, "info")}


def _recordable_items(values: Mapping[Any, Any], place: str) -> Iterator[tuple[Any, Any]]:
    for name, value in values.items():
        with contextlib.suppress(*_UNSERIALIZABLE):
            key = plain(name)
            found = _recordable(value, f"{place}[{key!r}]")
            if found is not _LEFT_OUT:
                yield key, found


def _recordable(value: Any, place: str) -> Any:
    """Return a value without the parts that cannot be recorded, ``_LEFT_OUT`` if nothing is left."""
    with contextlib.suppress(*_UNSERIALIZABLE):
        return plain(value)
    if isinstance(value, Mapping):
        return dict(_recordable_items(value, place))
    if isinstance(value, list | tuple | set | frozenset):
        entries = (_recordable(entry, f"{place}[{number}]") for number, entry in enumerate(value))
        return [None if entry is _LEFT_OUT else entry for entry in entries]
    if isinstance(value, int | os.PathLike):
        return str(value)
    _report_left_out(place, type(value).__name__)
    return _LEFT_OUT


@functools.lru_cache(1000)
def _report_left_out(place: str, kind: str) -> None:
    _log.warning("%s is not recorded: a value of type %s is not serializable", place, kind)


def _text(action: Any) -> Html:
    return preformatted("" if action is None else clip(str(action), _CELL_CHARS))


def _output(observation: Any) -> Html:
    """Return the part of an observation that fits into a table."""
    if not isinstance(observation, Mapping) or "stdout" not in observation:
        return preformatted(clip(repr(observation), _CELL_CHARS))
    stderr = preformatted(clip(str(observation.get("stderr", "")), _CELL_CHARS), is_error=True)
    return Html(preformatted(clip(str(observation["stdout"]), _CELL_CHARS)) + stderr)


def _without_surrogates(episode: Episode) -> Episode:
    steps = (
        Step(**{name: without_surrogates(getattr(step, name)) for name in step.__struct_fields__}) for step in episode.steps
    )
    return msgspec.structs.replace(episode, steps=tuple(steps))


def _encode_other(value: Any) -> Any:
    """Return a serializable substitute for a value of a type that msgspec does not support."""
    if isinstance(value, np.ndarray):
        return msgspec.msgpack.Ext(ARRAY_CODE, _pack_array(value))
    return _scalar(value)


def _encode_other_for_hash(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), _array_hash(value)]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str):
        # A subclass of ``str`` other than ``np.str_``, which ``np.generic`` covers.
        return str(value)
    message = f"{type(value).__name__} is not serializable"
    raise TypeError(message)


def _pack_array(array: NDArray[Any]) -> bytes:
    if array.dtype.hasobject:
        message = "an array of objects is not serializable"
        raise TypeError(message)
    if _is_black(array):
        return _packed_black(array.shape)
    return _pack(array)


def _pack(array: NDArray[Any]) -> bytes:
    return PackedArray.pack(array.dtype.str, array.shape, _bytes(array)).encode()


def _unpack_array(code: int, data: memoryview) -> Any:
    packed = PackedArray.parse(code, data)
    # A copy, because an array backed by bytes is read-only.
    return np.frombuffer(packed.items(), np.dtype(packed.dtype)).reshape(packed.shape).copy()


def _array_hash(array: NDArray[Any]) -> bytes:
    if _is_black(array):
        return _black_hash(array.shape)
    return hashlib.sha256(_bytes(array)).digest()


def _bytes(array: NDArray[Any]) -> memoryview:
    # Flattened first, because an empty array of higher dimension cannot be cast.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _is_black(array: NDArray[Any]) -> bool:
    """Return whether an array is a black image, as most screenshots are."""
    is_picture = array.dtype == np.uint8 and array.ndim == 3
    return is_picture and (is_black(array) or not array.any())


@functools.lru_cache(64)
def _packed_black(shape: tuple[int, ...]) -> bytes:
    return _pack(np.zeros(shape, np.uint8))


@functools.lru_cache(64)
def _black_hash(shape: tuple[int, ...]) -> bytes:
    return hashlib.sha256(_bytes(np.zeros(shape, np.uint8))).digest()


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)
_hash_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other_for_hash, order="deterministic")
_unsorted_hash_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other_for_hash)
_decoder = msgspec.msgpack.Decoder(Episode, ext_hook=_unpack_array)
_decoder_without_arrays = msgspec.msgpack.Decoder(Episode, ext_hook=lambda code, data: None)
_plain_decoder = msgspec.msgpack.Decoder(ext_hook=_unpack_array)
