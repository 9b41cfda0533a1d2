"""Arguments of a process, and the request that they make."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from coding_gym._validation import check_names
from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol.processes import Keep, ProcessRequest, TerminalSize

__all__ = ["Command", "RunKwargs", "StartKwargs", "Text", "process_request"]

Text = str | bytes | os.PathLike[str] | os.PathLike[bytes]
"""Text, its UTF-8, or a path."""

Command = Text | Sequence[Text]
"""A command for the shell, which is bash if there is one; the path of a program; or a program and its arguments."""

_encoder = msgspec.json.Encoder()


class RunKwargs(TypedDict, total=False):
    """Options of a process.

    Attributes:
        stdin: Its standard input.
        cwd: Working directory, relative to that of the session, which is the default.
        env: Environment variables in addition to those of the session.
        timeout: Wall-clock limit in seconds, after which the process and its descendants are killed; no limit by default.
        user: User to run as; only the session's user is available.
        max_output_bytes: Maximum number of bytes of stdout, and of stderr, that are kept; others are discarded and counted.
        keep: Whether these are the ``first`` or the ``last`` ones. Iteration over a process goes on beyond the maximum in the
            second case only.
    """

    stdin: str | bytes | bytearray | memoryview | None
    cwd: Text | None
    env: Mapping[Text, Text] | Mapping[str, Text] | None
    timeout: float | None
    user: str | None
    max_output_bytes: int
    keep: Keep


class StartKwargs(RunKwargs, total=False):
    """Options of a process that is not waited for.

    Attributes:
        keep_stdin_open: Whether ``Process.write`` will provide more input after ``stdin``.
        terminal: Size of the terminal to run it in, where stdout includes stderr; pipes by default.
    """

    keep_stdin_open: bool
    terminal: TerminalSize | None


def process_request(command: Command, options: StartKwargs) -> ProcessRequest:
    """Return a validated request.

    Args:
        command: What to run.
        options: Its options.

    Raises:
        ConfigurationError: If an argument is invalid.
    """
    check_names(options, StartKwargs.__annotations__)
    document: dict[str, Any] = {"command": _command(command)}
    for name, value in options.items():
        if value is not None:
            document |= _field(name, value)
    try:
        request = msgspec.convert(document, ProcessRequest)
        # Lone surrogates are not Unicode.
        _encoder.encode(request)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        message = f"Invalid process: {error}"
        raise ConfigurationError(message) from error
    return request


def _command(command: object) -> str | list[str]:
    if isinstance(command, str | bytes):
        return _text(command, "command=")
    if isinstance(command, os.PathLike):
        return [_text(command, "command=")]
    if not isinstance(command, Sequence) or isinstance(command, bytearray | memoryview):
        message = f"Expected command= to be a command for the shell, a path, or a list of arguments, got {_shown(command)}"
        raise ConfigurationError(message)
    return [_text(argument, f"command[{index}]") for index, argument in enumerate(command)]


def _field(name: str, value: object) -> dict[str, object]:
    match name:
        case "stdin":
            return {"stdin": _input(value)}
        case "cwd":
            return {"cwd": _text(value, "cwd=")}
        case "env":
            return {"environment": _variables(value)}
        case "timeout":
            return {"timeout_s": value}
    return {name: value}


def _input(value: object) -> bytes:
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            message = f"Expected stdin= to be text that UTF-8 can encode: {error}"
            raise ConfigurationError(message) from error
    if not isinstance(value, bytes | bytearray | memoryview):
        message = f"Expected stdin= to be bytes or text, got {_shown(value)}. Pass the content of a file, not the file"
        raise ConfigurationError(message)
    return bytes(value)


def _variables(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        message = f"Expected env= to be a mapping of names to values, got {_shown(value)}"
        raise ConfigurationError(message)
    return {_text(name, "a name in env="): _text(content, f"env[{name!r}]") for name, content in value.items()}


def _text(value: object, name: str) -> str:
    """Return an argument as text.

    Args:
        value: The argument.
        name: What it is, for messages.

    Raises:
        ConfigurationError: If it is neither text, nor UTF-8, nor a path.
    """
    text = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(text, bytes):
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            message = f"Expected {name} to be UTF-8, got {reprlib.repr(text)}"
            raise ConfigurationError(message) from error
    if not isinstance(text, str):
        message = f"Expected {name} to be text, bytes or a path, got {_shown(value)}"
        raise ConfigurationError(message)
    return text


def _shown(value: object) -> str:
    return f"{type(value).__name__}: {reprlib.repr(value)}"
