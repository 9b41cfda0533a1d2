"""Conversion of arguments, exceptions and printed text for transfer between endpoints."""

from __future__ import annotations

import builtins
import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from coding_gym_server.remote_objects.decoder import Decoder
from coding_gym_server.remote_objects.exchange import Streams
from coding_gym_server.remote_objects.values import Encoder, MalformedError

__all__ = [
    "decode_arguments",
    "encode_arguments",
    "is_builtin_type",
    "primitive_copy",
    "redirected",
    "sendable_text",
]

_MUTABLE_BUILTINS = (list, set, bytearray)
_raw_encoder = msgspec.msgpack.Encoder()


_raw_decoder = msgspec.msgpack.Decoder()


@contextlib.contextmanager
def redirected(streams: Streams, decoder: Decoder, stdout: io.StringIO, stderr: io.StringIO) -> Iterator[None]:
    """Replace the standard streams and builtin functions during a call; the output only if it is captured."""
    with contextlib.ExitStack() as stack:
        if streams.captured:
            stack.enter_context(contextlib.redirect_stdout(stdout))
            stack.enter_context(contextlib.redirect_stderr(stderr))
        if streams.stdin is not None:
            stack.callback(setattr, sys, "stdin", sys.stdin)
            sys.stdin = io.StringIO(streams.stdin)
        for name, tree in streams.builtins.items():
            stack.callback(setattr, builtins, name, getattr(builtins, name))
            setattr(builtins, name, decoder.decode(tree))
        yield


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


def primitive_copy(value: Any) -> Any:
    """Return a copy of the data in a container, as a builtin type; None if it is not a mutable builtin container."""
    if isinstance(value, dict):
        return dict(dict.items(value))
    base: Any = next((base for base in _MUTABLE_BUILTINS if isinstance(value, base)), None)
    return None if base is None else base(base.__iter__(value))


def is_builtin_type(kind: type) -> bool:
    """Return whether a class is a static type, implemented in C."""
    return not kind.__flags__ & 1 << 9
