"""Conversion of arguments, exceptions and printed text for transfer between endpoints."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import msgspec

from coding_gym_server.remote_objects.decoder import Decoder
from coding_gym_server.remote_objects.exchange import ClassFacts
from coding_gym_server.remote_objects.values import Encoder, MalformedError, Tree

if TYPE_CHECKING:
    pass


__all__ = [
    "CapturedOutput",
    "class_facts",
    "decode_arguments",
    "encode_arguments",
    "exception_arguments",
    "is_builtin_type",
    "primitive_copy",
    "sendable_text",
]

_MUTABLE_BUILTINS = (list, set, bytearray)
_raw_encoder = msgspec.msgpack.Encoder()


_raw_decoder = msgspec.msgpack.Decoder()


class CapturedOutput:
    """Output of a call, if it is captured."""

    stdout: io.StringIO | None = None
    stderr: io.StringIO | None = None

    def texts(self) -> tuple[str, str]:
        if self.stdout is None or self.stderr is None:
            return "", ""
        return sendable_text(self.stdout.getvalue()), sendable_text(self.stderr.getvalue())


def class_facts(tree: Tree) -> ClassFacts:
    """Convert a class description received from the peer.

    Raises:
        MalformedError: If the description is malformed.
    """
    try:
        return msgspec.convert(tree, ClassFacts)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from None


def encode_arguments(encoder: Encoder, arguments: Any, keywords: dict[str, Any]) -> msgspec.Raw:
    """Encode positional and keyword arguments."""
    items = encoder.items(arguments)
    names = {name: encoder.encode(value) for name, value in keywords.items()}
    return msgspec.Raw(_raw_encoder.encode([items, names]))


def decode_arguments(decoder: Decoder, raw: msgspec.Raw) -> tuple[list[Any], dict[str, Any]]:
    """Decode positional and keyword arguments."""
    match _raw_decoder.decode(raw):
        case [list() as items, dict() as names]:
            return list(decoder.items(items)), {str(name): decoder.decode(value) for name, value in names.items()}
    message = "malformed arguments"
    raise MalformedError(message)


def sendable_text(text: str) -> str:
    """Replace the lone surrogates of a text."""
    return text.encode("utf-8", "replace").decode()


def exception_arguments(error: BaseException) -> list[Any]:
    """Return the constructor arguments of an exception of a builtin class."""
    if isinstance(error, OSError) and error.filename is not None and len(error.args) == 2:
        return [*error.args, error.filename]
    return list(error.args)


def primitive_copy(value: Any) -> Any:
    """Return a copy of the data in a container, as a builtin type; None if it is not a mutable builtin container."""
    if isinstance(value, dict):
        return dict(dict.items(value))
    base: Any = next((base for base in _MUTABLE_BUILTINS if isinstance(value, base)), None)
    return None if base is None else base(base.__iter__(value))


def is_builtin_type(kind: type) -> bool:
    """Return whether a class is a static type, implemented in C."""
    return not kind.__flags__ & 1 << 9
