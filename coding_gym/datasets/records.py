"""What is recorded of an episode, its form in bytes, and its hash."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from coding_gym.errors import DatasetError
from coding_gym.frames import is_shared_black

__all__ = ["Episode", "Step", "decode_episode", "encode_episode", "episode_hash", "plain", "recordable_info"]

_ARRAY = 1
"""The code by which arrays are told from other extensions of msgpack."""

_ARRAY_HEAD = struct.Struct("<BB")
_COMPRESSION_LEVEL = 1


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What an action led to; the first one of an episode is its reset, which has no action.

    Attributes:
        observation: As the environment returned it: arrays are arrays, numpy's scalars Python's.
        action: What the policy chose; None for the reset.
        reward: 0 for the reset.
        terminated: Whether the task is over.
        truncated: Whether the episode was cut off, at ``max_steps`` too.
        info: Without what is no data, such as ``frames``.
        decision: What else the policy said about its action: of a chat model the ``messages`` that it was sent, its whole
            ``content`` and its ``usage``. None if it said nothing.
    """

    observation: Any
    action: Any = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = {}
    decision: dict[str, Any] | None = None


class Episode(msgspec.Struct, frozen=True, kw_only=True):
    """An episode, complete. There is nothing in it that differs from run to run, such as the time of day.

    Attributes:
        index: Its number in the dataset.
        seed: What ``reset`` was given; it follows from the dataset's seed and ``index``.
        options: Likewise.
        steps: The reset, and then one for each action.
    """

    index: int
    seed: int
    options: dict[str, Any] = {}
    steps: tuple[Step, ...]

    @property
    def task_id(self) -> str | None:
        """The task that the environment was told to set, None if it was told none."""
        return self.options.get("task_id")

    @property
    def actions(self) -> list[Any]:
        """The actions, in order."""
        return [step.action for step in self.steps[1:]]

    @property
    def total_reward(self) -> float:
        """The sum of the rewards."""
        return sum(step.reward for step in self.steps)

    @property
    def solved(self) -> bool | None:
        """Whether ``info["solved"]`` was true at some step; None if no step has it."""
        said = [bool(step.info["solved"]) for step in self.steps if "solved" in step.info]
        return any(said) if said else None


def encode_episode(episode: Episode) -> tuple[bytes, bytes]:
    """Return an episode as bytes, which are compressed msgpack, pictures and other arrays exactly, and its hash.

    Lone surrogates, which no file has, become U+FFFD.

    Raises:
        DatasetError: There is something in it that is no data.
    """
    import zstandard

    try:
        try:
            encoded = _encoder.encode(episode)
        except UnicodeEncodeError:
            episode = _without_surrogates(episode)
            encoded = _encoder.encode(episode)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"Episode {episode.index} cannot be recorded: {error}. Actions and observations are to be data"
        raise DatasetError(message) from error
    return zstandard.ZstdCompressor(_COMPRESSION_LEVEL).compress(encoded), episode_hash(episode)


def decode_episode(data: bytes, *, arrays: bool = True) -> Episode:
    """Return the episode that ``encode_episode`` made bytes of.

    Args:
        data: The bytes.
        arrays: Whether to decode pictures and other arrays, too, rather than to put None in their places.

    Raises:
        DatasetError: It is none.
    """
    import zstandard

    decoder = _decoder if arrays else _decoder_without_arrays
    try:
        return decoder.decode(zstandard.ZstdDecompressor().decompress(data))
    except (msgspec.MsgspecError, zstandard.ZstdError, ValueError) as error:
        message = f"Expected a recorded episode, got something else: {error}"
        raise DatasetError(message) from error


def episode_hash(episode: Episode) -> bytes:
    """Return the SHA-256 of what is in an episode.

    It is that of msgpack with sorted keys, arrays standing for themselves by type, shape and their own SHA-256: it depends
    neither on the compression nor on how the environment orders its keys.
    """
    return hashlib.sha256(_hash_encoder.encode(episode)).digest()


def plain(value: Any) -> Any:
    """Return a value as it is read back: tuples are lists, events of hands and dataclasses mappings, numpy's scalars Python's.

    Raises:
        TypeError: It is no data.
    """
    try:
        encoded = _encoder.encode(value)
    except UnicodeEncodeError:
        encoded = _encoder.encode(_scalars_only(value))
    return _plain_decoder.decode(encoded)


def recordable_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an ``info`` that is data."""
    try:
        return dict(plain(info))
    except (TypeError, ValueError, OverflowError):
        kept = {}
        for name, value in info.items():
            with contextlib.suppress(TypeError, ValueError, OverflowError):
                kept[str(plain(name))] = plain(value)
        return kept


def _without_surrogates(episode: Episode) -> Episode:
    steps = (Step(**{name: _scalars_only(getattr(step, name)) for name in step.__struct_fields__}) for step in episode.steps)
    return msgspec.structs.replace(episode, steps=tuple(steps))


def _scalars_only(value: Any) -> Any:
    """Return a value whose text has no lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {_scalars_only(key): _scalars_only(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_scalars_only(entry) for entry in value]
    return value


def _encode_other(value: Any) -> Any:
    """Return what stands for a value that msgpack does not know."""
    if isinstance(value, np.ndarray):
        return msgspec.msgpack.Ext(_ARRAY, _pack_array(value))
    return _scalar(value)


def _encode_other_for_hash(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), _array_hash(value)]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str):
        # numpy's own kind of text.
        return str(value)
    message = f"{type(value).__name__} is no data"
    raise TypeError(message)


def _pack_array(array: NDArray[Any]) -> bytes:
    if array.dtype.hasobject:
        message = "an array of objects is no data"
        raise TypeError(message)
    if _is_black(array):
        return _packed_black(array.shape)
    return _pack(array)


def _pack(array: NDArray[Any]) -> bytes:
    import zstandard

    kind = array.dtype.str.encode()
    head = _ARRAY_HEAD.pack(len(kind), array.ndim) + kind + struct.pack(f"<{array.ndim}I", *array.shape)
    return head + zstandard.ZstdCompressor(_COMPRESSION_LEVEL).compress(_bytes(array))


def _unpack_array(code: int, data: memoryview) -> Any:
    import zstandard

    if code != _ARRAY:
        message = f"Expected the extension {_ARRAY}, got {code}"
        raise ValueError(message)
    length, dimensions = _ARRAY_HEAD.unpack_from(data)
    at = _ARRAY_HEAD.size + length
    dtype = np.dtype(bytes(data[_ARRAY_HEAD.size : at]).decode())
    shape = struct.unpack_from(f"<{dimensions}I", data, at)
    raw = zstandard.ZstdDecompressor().decompress(data[at + 4 * dimensions :])
    # A copy, for what belongs to immutable bytes cannot be written to.
    return np.frombuffer(raw, dtype).reshape(shape).copy()


def _array_hash(array: NDArray[Any]) -> bytes:
    if _is_black(array):
        return _black_hash(array.shape)
    return hashlib.sha256(_bytes(array)).digest()


def _bytes(array: NDArray[Any]) -> memoryview:
    # Flat first, for what is empty cannot be cast.
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _is_black(array: NDArray[Any]) -> bool:
    """Say whether it is a picture with nothing on it, which most are."""
    is_picture = array.dtype == np.uint8 and array.ndim == 3
    return is_picture and (is_shared_black(array) or not array.any())


@functools.lru_cache(64)
def _packed_black(shape: tuple[int, ...]) -> bytes:
    return _pack(np.zeros(shape, np.uint8))


@functools.lru_cache(64)
def _black_hash(shape: tuple[int, ...]) -> bytes:
    return hashlib.sha256(_bytes(np.zeros(shape, np.uint8))).digest()


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other)
_hash_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_other_for_hash, order="deterministic")
_decoder = msgspec.msgpack.Decoder(Episode, ext_hook=_unpack_array)
_decoder_without_arrays = msgspec.msgpack.Decoder(Episode, ext_hook=lambda code, data: None)
_plain_decoder = msgspec.msgpack.Decoder(ext_hook=_unpack_array)
