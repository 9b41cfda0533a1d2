"""Request decoding, response encoding and the error responses to malformed requests."""

from __future__ import annotations

import reprlib
from typing import Any, TypeVar

import msgspec

from coding_gym_server.display.encoding import png
from coding_gym_server.ipc.text import truncate_middle
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
from coding_gym_server.protocol.backends import UnknownBackendError
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.server.sessions.doors import DoorsError
from coding_gym_server.server.supervisor.display_handle import InvalidScreenRequestError, ScreenUnavailableError

__all__ = ["BadRequestError", "decode_json", "decode_request", "encode_json", "encode_response", "field_of", "value_error"]

_json_request = msgspec.json.Decoder(Request)
_msgpack_request = msgspec.msgpack.Decoder(Request)
_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()

_MAX_QUOTED_CHARS = 1000
"""Maximum number of characters of a request that an error message quotes; a request can have megabytes."""

_REQUEST_TYPES = ("reset", "step", "interrupt", "state", "close", "mcp", "screen", "grade", "clone", "restore", "release")

_T = TypeVar("_T")

_FIELDS: dict[type[Exception], str] = {
    UnknownBackendError: "backend",
    DoorsError: "doors",
    ScreenUnavailableError: "screen",
    InvalidScreenRequestError: "inputs",
}


class BadRequestError(ValueError):
    """A request that is malformed or invalid.

    Attributes:
        data: The error to respond with.
    """

    def __init__(self, code: ErrorCode, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.data = ErrorData(message=message, code=code, errors=errors)


def encode_response(response: Response, *, binary: bool) -> str | bytes:
    """Encode a message as msgpack or as JSON text."""
    return _msgpack.encode(response) if binary else encode_json(response).decode()


def encode_json(content: Any) -> bytes:
    """Encode an object as JSON, with images as base64-encoded PNG."""
    if isinstance(content, ObservationMessage | ScreenMessage):
        return _json.encode(type(content)(_with_png(content.data)))
    return _json.encode(_with_png(content))


def _with_png(content: Any) -> Any:
    """Return the content of a response with raw pixels replaced by base64-encoded PNG, which fits into JSON."""
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
    """Decode a request from a text frame as JSON, or from a binary frame as msgpack.

    Raises:
        BadRequestError: If the frame does not contain a valid request.
    """
    try:
        request: Request = _json_request.decode(frame) if isinstance(frame, str) else _msgpack_request.decode(frame)
    except DECODING_ERRORS as error:
        raise _explain(frame, error) from error
    return request


def decode_json(body: bytes, kind: type[_T]) -> _T:
    """Decode the body of an HTTP request; an empty body is treated as ``{}``.

    Raises:
        BadRequestError: If the body is not valid JSON, or does not match the type.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise BadRequestError(ErrorCode.VALIDATION_ERROR, "Invalid request", _details(error)) from error
    except DECODING_ERRORS as error:
        detail = {"type": "json_invalid", "loc": [], "msg": f"the body is not valid JSON: {error}", "input": {}}
        raise BadRequestError(ErrorCode.INVALID_JSON, f"Invalid JSON: {error}", [detail]) from error


def _explain(frame: str | bytes, error: Exception) -> BadRequestError:
    """Return the error for an invalid frame: malformed encoding, unknown message type or invalid fields."""
    encoding = "JSON" if isinstance(frame, str) else "msgpack"
    try:
        document = msgspec.json.decode(frame) if isinstance(frame, str) else msgspec.msgpack.decode(frame)
    except (*DECODING_ERRORS, ValueError) as malformed:
        return BadRequestError(ErrorCode.INVALID_JSON, f"Invalid {encoding}: {malformed}")
    if not isinstance(document, dict):
        return BadRequestError(
            ErrorCode.SESSION_ERROR, f"Expected a {encoding} object with a 'type', got {type(document).__name__}"
        )
    kind = document.get("type")
    if kind not in _REQUEST_TYPES:
        # Of anything but text, an excerpt: it can be nested so deeply that it can be decoded, but not written out.
        quoted = truncate_middle(repr(kind) if isinstance(kind, str) else reprlib.repr(kind), _MAX_QUOTED_CHARS)
        return BadRequestError(
            ErrorCode.UNKNOWN_TYPE, f"Unknown message type: {quoted}; expected one of {', '.join(_REQUEST_TYPES)}"
        )
    reason = truncate_middle(str(error), _MAX_QUOTED_CHARS)
    return BadRequestError(ErrorCode.VALIDATION_ERROR, f"Invalid message: {reason}", _details(error))


def _details(error: Exception) -> list[dict[str, Any]]:
    """Return a validation error in pydantic's format, which OpenEnv's clients expect."""
    message, _, path = str(error).partition(" - at `$")
    message = truncate_middle(message, _MAX_QUOTED_CHARS)
    location = [part for part in path.rstrip("`").replace("[", ".").replace("]", "").split(".") if part]
    return [value_error(location, message)]


def field_of(error: Exception) -> str:
    """Return the name of the request field that an error refers to."""
    return _FIELDS.get(type(error), "files")


def value_error(location: list[str], message: str) -> dict[str, Any]:
    """Return a ``value_error`` in pydantic's format."""
    return {"type": "value_error", "loc": location, "msg": message, "input": None}
