"""Requests out of frames and bodies, and what to answer when that fails."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from coding_gym_server.backends import UnknownBackendError
from coding_gym_server.display.pictures import png
from coding_gym_server.display.screen import NoScreenError, ScreenRefusedError
from coding_gym_server.protocol import (
    ErrorCode,
    ErrorData,
    Frame,
    ObservationData,
    ObservationMessage,
    Pixels,
    Request,
    Response,
    Screen,
    ScreenMessage,
)
from coding_gym_server.workers.capture import cut_middle

__all__ = ["BadRequestError", "decode_json", "decode_request", "encode_json", "encode_response", "field_of", "value_error"]

_json_request = msgspec.json.Decoder(Request)
_msgpack_request = msgspec.msgpack.Decoder(Request)
_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()

_MAX_QUOTED_CHARS = 1000
"""The most of a request, which may have megabytes, that an error message repeats."""

_REQUEST_TYPES = ("reset", "step", "interrupt", "state", "close", "mcp", "screen", "grade")

_T = TypeVar("_T")

_FIELDS: dict[type[Exception], str] = {UnknownBackendError: "backend", NoScreenError: "screen", ScreenRefusedError: "inputs"}


class BadRequestError(ValueError):
    """A request that cannot be carried out.

    Attributes:
        data: What to answer.
    """

    def __init__(self, code: ErrorCode, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.data = ErrorData(message=message, code=code, errors=errors)


def encode_response(response: Response, *, binary: bool) -> str | bytes:
    """Encode a message as msgpack or as JSON text."""
    return _msgpack.encode(response) if binary else encode_json(response).decode()


def encode_json(content: Any) -> bytes:
    """Encode as JSON; pictures are PNG in base64, then."""
    if isinstance(content, ObservationMessage | ScreenMessage):
        return _json.encode(type(content)(_with_png(content.data)))
    return _json.encode(_with_png(content))


def _with_png(content: Any) -> Any:
    """Return the content of an answer in the form that text can carry."""
    if isinstance(content, ObservationData):
        observation = content.observation
        if observation.screenshot is not None or observation.frames:
            frames = [Frame(frame.time, _png(frame.pixels)) for frame in observation.frames]
            screenshot = None if observation.screenshot is None else _png(observation.screenshot)
            observation = msgspec.structs.replace(observation, screenshot=screenshot, frames=frames)
            return msgspec.structs.replace(content, observation=observation)
    if isinstance(content, Screen):
        return msgspec.structs.replace(content, screenshot=_png(content.screenshot))
    return content


def _png(picture: str | Pixels) -> str:
    return png(picture) if isinstance(picture, Pixels) else picture


def decode_request(frame: str | bytes) -> Request:
    """Decode a text frame as JSON, a binary frame as msgpack.

    Raises:
        BadRequestError: The frame holds no request.
    """
    try:
        request: Request = _json_request.decode(frame) if isinstance(frame, str) else _msgpack_request.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _explain(frame, error) from error
    return request


def decode_json(body: bytes, kind: type[_T]) -> _T:
    """Decode the body of an HTTP request; an empty one counts as ``{}``.

    Raises:
        BadRequestError: The body does not fit.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(ErrorCode.VALIDATION_ERROR, "Invalid request", _faults(error)) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        fault = {"type": "json_invalid", "loc": [], "msg": f"the body is not valid JSON: {error}", "input": {}}
        raise BadRequestError(ErrorCode.INVALID_JSON, f"Invalid JSON: {error}", [fault]) from error


def _explain(frame: str | bytes, error: Exception) -> BadRequestError:
    """Find out what is wrong with a frame: no document at all, none of our messages, or one with a fault."""
    encoding = "JSON" if isinstance(frame, str) else "msgpack"
    try:
        document = msgspec.json.decode(frame) if isinstance(frame, str) else msgspec.msgpack.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError) as malformed:
        return BadRequestError(ErrorCode.INVALID_JSON, f"Invalid {encoding}: {malformed}")
    if not isinstance(document, dict):
        return BadRequestError(
            ErrorCode.SESSION_ERROR, f"Expected a {encoding} object with a 'type', got {type(document).__name__}"
        )
    kind = document.get("type")
    if kind not in _REQUEST_TYPES:
        quoted = cut_middle(repr(kind), _MAX_QUOTED_CHARS)
        return BadRequestError(
            ErrorCode.UNKNOWN_TYPE, f"Unknown message type: {quoted}; expected one of {', '.join(_REQUEST_TYPES)}"
        )
    reason = cut_middle(str(error), _MAX_QUOTED_CHARS)
    return BadRequestError(ErrorCode.VALIDATION_ERROR, f"Invalid message: {reason}", _faults(error))


def _faults(error: Exception) -> list[dict[str, Any]]:
    """Describe a validation error in pydantic's shape, as OpenEnv's clients expect it."""
    message, _, path = str(error).partition(" - at `$")
    message = cut_middle(message, _MAX_QUOTED_CHARS)
    location = [part for part in path.rstrip("`").replace("[", ".").replace("]", "").split(".") if part]
    return [value_error(location, message)]


def field_of(error: Exception) -> str:
    """Return the option of a reset that an error is about."""
    return _FIELDS.get(type(error), "files")


def value_error(location: list[str], message: str) -> dict[str, Any]:
    """Describe a fault in pydantic's shape."""
    return {"type": "value_error", "loc": location, "msg": message, "input": None}
