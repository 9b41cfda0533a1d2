"""Recorded episodes, as the page shows them: an overview, and texts and pictures of steps on demand."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import zstandard

from coding_gym.datasets.details import PackedArray
from coding_gym.errors import DatasetError
from coding_gym_server.protocol import RichResult
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["RecordedEpisode", "RecordedStep"]

_OWN_TEXTS = ("action", "raw")
_PREVIEW_CHARS = 200
_THUMBNAIL = (160, 120)
_LARGEST_BLACK = 4096
"""Size in bytes beyond which a compressed picture is not black: it need not be decompressed to find out."""


class RecordedStep:
    """Step of an episode.

    Args:
        data: The recorded step.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    @functools.cached_property
    def texts(self) -> dict[str, str]:
        """Texts by name: the action, each text of the observation, and ``raw``, the whole step as JSON.

        A text of the observation that has the name of another one is preceded by ``observation.``
        """
        observation = self._data.get("observation")
        fields = observation.items() if isinstance(observation, dict) else [("observation", observation)]
        texts: dict[str, str] = {}
        for key, value in fields:
            name = str(key)
            while name in texts or name in _OWN_TEXTS:
                name = f"observation.{name}"
            if isinstance(value, str):
                texts[name] = value
        action = self._data.get("action")
        if action is not None:
            texts["action"] = action if isinstance(action, str) else _json(action)
        texts["raw"] = _json(self._data)
        return texts

    @functools.cached_property
    def pictures(self) -> dict[str, PackedArray]:
        """Pictures by their place in the step, such as ``observation.screenshot``."""
        try:
            return {place: found for place, found in _arrays(self._data, "") if _is_picture(found)}
        except RecursionError:
            return {}

    @functools.cached_property
    def results(self) -> list[RichResult]:
        """Values and displays of ``info["results"]``, as servers send them."""
        return [_result(result) for result in self._recorded_results]

    @property
    def _recorded_results(self) -> list[dict[str, Any]]:
        found = self.info.get("results")
        return [result for result in found if isinstance(result, dict)] if isinstance(found, list) else []

    @property
    def info(self) -> dict[str, Any]:
        """The recorded info."""
        info = self._data.get("info")
        return info if isinstance(info, dict) else {}

    def overview(self, number: int) -> dict[str, Any]:
        """Return what the list of steps and the timeline show.

        Args:
            number: Number of the step, 0 for the reset.
        """
        observation = self._data.get("observation")
        fields = observation if isinstance(observation, dict) else {}
        return {
            "number": number,
            "preview": self.texts.get("action", "")[:_PREVIEW_CHARS],
            "isCode": isinstance(self._data.get("action"), str),
            "reward": self._data.get("reward", 0.0),
            "terminated": self._data.get("terminated", False),
            "truncated": self._data.get("truncated", False),
            "outcome": str(self.info.get("outcome") or ""),
            "exitCode": fields.get("exit_code"),
            "graded": bool(self.info.get("graded")),
            "passed": self.info.get("tests_passed"),
            "tests": self.info.get("tests_total"),
            "results": len(self._recorded_results),
            "lengths": {name: len(text) for name, text in self.texts.items()},
            "pictures": [
                {"name": name, "width": picture.shape[1], "height": picture.shape[0], "isBlack": _is_black(picture)}
                for name, picture in self.pictures.items()
            ],
        }

    def png(self, name: str, *, is_thumbnail: bool = False) -> bytes:
        """Return a picture as PNG.

        Args:
            name: Its place, see ``pictures``.
            is_thumbnail: Whether to reduce it to at most 160 x 120 pixels.

        Raises:
            KeyError: If there is no such picture.
            ValueError: If it is damaged.
        """
        from PIL import Image

        packed = self.pictures[name]
        height, width, *channels = packed.shape
        mode = {(): "L", (1,): "L", (3,): "RGB", (4,): "RGBA"}[tuple(channels)]
        image = Image.frombytes(mode, (width, height), packed.items())
        if is_thumbnail:
            image.thumbnail(_THUMBNAIL)
        output = io.BytesIO()
        image.save(output, "PNG", compress_level=1)
        return output.getvalue()


class RecordedEpisode:
    """Episode of a dataset.

    Args:
        encoded: The encoded episode.

    Attributes:
        index: Index of the episode.
        seed: Its seed.
        options: Options of its reset.
        steps: The reset, and a step per action.

    Raises:
        DatasetError: If the data are not an episode.
    """

    def __init__(self, encoded: bytes) -> None:
        try:
            data = _decoder.decode(zstandard.ZstdDecompressor().decompress(encoded))
        except (*DECODING_ERRORS, zstandard.ZstdError, ValueError, MemoryError) as error:
            message = f"Expected a recorded episode, got something else: {error or type(error).__name__}"
            raise DatasetError(message) from error
        self.index = data.index
        self.seed = data.seed
        self.options = data.options
        self.steps = [RecordedStep(step) for step in data.steps]


class _Episode(msgspec.Struct):
    index: int
    seed: int
    steps: list[dict[str, Any]]
    options: dict[str, Any] = {}


_decoder = msgspec.msgpack.Decoder(_Episode, ext_hook=PackedArray.parse)


def _result(result: Mapping[str, Any]) -> RichResult:
    """Return a recorded result, see ``coding_gym.Result``."""
    data = result.get("data")
    texts: dict[str, str] = {}
    documents: dict[str, str] = {}
    for mime, content in data.items() if isinstance(data, dict) else ():
        if isinstance(content, bytes):
            texts[str(mime)] = base64.b64encode(content).decode()
        elif isinstance(content, str):
            texts[str(mime)] = content
        else:
            documents[str(mime)] = _json(content)
    return RichResult(texts=texts, documents=documents, is_value=result.get("is_value") is True)


def _arrays(value: Any, place: str) -> Iterator[tuple[str, PackedArray]]:
    if isinstance(value, PackedArray):
        yield place, value
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield from _arrays(entry, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from _arrays(entry, f"{place}.{number}")


def _is_picture(array: PackedArray) -> bool:
    shape = array.shape
    has_channels = len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))
    return array.dtype == "|u1" and has_channels and min(shape) > 0


def _is_black(picture: PackedArray) -> bool:
    if len(picture.data) > _LARGEST_BLACK:
        return False
    try:
        items = picture.items()
    except ValueError:
        return False
    return items.count(0) == len(items)


def _json(value: Any) -> str:
    try:
        return msgspec.json.format(msgspec.json.encode(_plain(value)), indent=2).decode()
    except RecursionError:
        return "<nested too deeply to be shown>"


def _plain(value: Any) -> Any:
    """Return a value for JSON: arrays become descriptions, and keys become texts."""
    if isinstance(value, PackedArray):
        return f"<array of {value.dtype}, shape {'x'.join(map(str, value.shape))}>"
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value
