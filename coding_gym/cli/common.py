"""Options and helpers that commands share."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_gym.errors import CodingGymError, ConfigurationError

if TYPE_CHECKING:
    from coding_gym.sandbox.config import SandboxConfig

__all__ = [
    "BackendOption",
    "HostOption",
    "NoTokenOption",
    "PackagesOption",
    "PoolOption",
    "PortOption",
    "Provider",
    "ProviderOption",
    "RequiredTokenOption",
    "SandboxOptions",
    "SessionsOption",
    "TokenOption",
    "UrlOption",
    "check_picture_path",
    "check_token",
    "errors_in_red",
    "parse_options",
    "parse_size_option",
    "parse_values",
    "parse_variables",
    "sandbox_config_of",
    "stoppable",
    "url_of",
]


_TOKEN = re.compile(r"[\x21-\x7e]+")
_VARIABLE = "CODING_GYM_TOKEN"


class Provider(StrEnum):
    """Sandbox provider."""

    AUTO = "auto"
    DOCKER = "docker"
    APPTAINER = "apptainer"
    LOCAL = "local"


ProviderOption = Annotated[Provider, typer.Option(help="Sandbox provider.")]
PoolOption = Annotated[
    str | None,
    typer.Option(
        "--pool",
        metavar="NAME",
        help="Use a pool that a plug-in adds; ray: that of the Ray cluster of RAY_ADDRESS or this machine, or a new one.",
    ),
]
BackendOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="What executes the code: python, restricted, bash, cpp, jupyter:KERNEL ...")
]
PackagesOption = Annotated[
    list[str] | None, typer.Option("--packages", metavar="NAME", help="Package to install, such as 'numpy>=2'; repeatable.")
]
SandboxOptions = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Further field of SandboxConfig, such as mem=4g; repeatable."),
]
UrlOption = Annotated[
    str | None, typer.Option("--url", metavar="URL", help="Use a running server, such as http://127.0.0.1:8000, instead.")
]
HostOption = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")]
PortOption = Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 for a free one.")]
NoTokenOption = Annotated[bool, typer.Option("--no-token", help="Listen beyond this machine although there is no token.")]
SessionsOption = Annotated[int, typer.Option(min=1, help="Maximum number of concurrent sessions.")]


def _read_token(path: str) -> str:
    try:
        text = sys.stdin.readline() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        message = f"The token cannot be read: {error}"
        raise typer.BadParameter(message) from None
    if not (token := text.strip()):
        message = f"Expected a token in {path}, found nothing"
        raise typer.BadParameter(message)
    return token


def _token_option(whose: str) -> Any:
    # The token is never an argument: other users of the machine can read command lines, but not environments.
    return typer.Option(
        "--token-file",
        metavar="PATH",
        parser=_read_token,
        callback=lambda token: token or os.environ.get(_VARIABLE) or None,
        help=f"File with the token {whose}, - for stdin; {_VARIABLE} by default.",
    )


TokenOption = Annotated[str | None, _token_option("of the server at --url")]
RequiredTokenOption = Annotated[str | None, _token_option("that clients must send")]


def parse_values(texts: list[str] | None) -> dict[str, Any]:
    """Parse ``NAME=VALUE`` options: values are decoded as JSON, or are text if they are not valid JSON.

    Raises:
        typer.BadParameter: If one is malformed.
    """
    values: dict[str, Any] = {}
    for name, value in _pairs(texts):
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def parse_options(texts: list[str] | None) -> dict[str, Any]:
    """Parse the values of ``--option``. The token of servers at ``base_url`` or ``base_urls`` is that in the environment.

    Raises:
        typer.BadParameter: If one is malformed, or is a token, which others could read.
    """
    values = parse_values(texts)
    if "token" in values:
        message = f"--option token=: other users can read command lines, set {_VARIABLE} (or pass --token-file) instead"
        raise typer.BadParameter(message)
    if values.keys() & {"base_url", "base_urls"} and (token := os.environ.get(_VARIABLE)):
        values["token"] = token
    return values


def parse_variables(texts: list[str] | None) -> dict[str, str]:
    """Parse ``NAME=VALUE`` environment variables.

    Raises:
        typer.BadParameter: If one is malformed.
    """
    return dict(_pairs(texts))


def _pairs(texts: list[str] | None) -> Iterator[tuple[str, str]]:
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            message = f"expected NAME=VALUE, got {text!r}"
            raise typer.BadParameter(message)
        yield name, value


def parse_size_option(text: str) -> tuple[int, int]:
    """Parse a size such as ``640x480``.

    Raises:
        typer.BadParameter: If it is malformed.
    """
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal()):
        message = f"expected --screen to be a size such as 640x480, got {text!r}"
        raise typer.BadParameter(message)
    return int(width), int(height)


def check_picture_path(path: Path) -> None:
    """Check that a picture can be written to a path.

    Raises:
        typer.BadParameter: If its suffix is not that of a picture format, or its directory does not exist.
    """
    from PIL import Image

    if Image.registered_extensions().get(path.suffix.lower()) not in Image.SAVE:
        message = f"expected a file of pictures such as {path.stem}.png, got {path}"
        raise typer.BadParameter(message)
    if not path.parent.is_dir():
        message = f"there is no directory {path.parent}"
        raise typer.BadParameter(message)


def sandbox_config_of(
    *,
    provider: Provider,
    backend: str | None,
    packages: list[str] | None,
    options: list[str] | None,
    url: str | None = None,
    token: str | None = None,
    **defaults: Any,
) -> SandboxConfig:
    """Return the configuration of the sandbox that the options of a command describe.

    Args:
        provider: ``--provider``; disregarded with a URL.
        backend: ``--backend``.
        packages: ``--packages``.
        options: ``--option``.
        url: ``--url``, None to start a sandbox.
        token: Token of the server, see ``SandboxConfig``.
        defaults: Fields of ``SandboxConfig`` that ``--option`` may override.

    Raises:
        typer.BadParameter: If an option is malformed, or excludes ``--url``.
        ConfigurationError: If a field is unknown or invalid.
    """
    from coding_gym.sandbox.config import SandboxConfig
    from coding_gym_server.packages.requirements import split_list

    fields = parse_options(options)
    if url is not None:
        if provider is not Provider.AUTO or packages or fields:
            message = "--url excludes --provider, --packages and --option: the server there has been started already"
            raise typer.BadParameter(message)
        return SandboxConfig(provider="remote", base_url=url, token=token, backend=backend)
    given = {
        "provider": provider.value,
        "backend": backend,
        "packages": tuple(name for text in packages or () for name in split_list(text)),
    }
    return SandboxConfig.of({**defaults, **given, **fields, "token": token})


def url_of(host: str, port: int) -> str:
    """Return the URL for clients on this machine."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextlib.contextmanager
def errors_in_red() -> Iterator[None]:
    """Print an error of this package, of Gymnasium, the engine or the system to stderr, and exit with code 1."""
    import gymnasium as gym
    from docker.errors import DockerException

    try:
        yield
    except (CodingGymError, DockerException, gym.error.Error, OSError) as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from None


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """End the block quietly at Ctrl-C, SIGTERM and SIGHUP."""
    previous = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def check_token(token: str | None, *, host: str, may_be_open: bool) -> None:
    """Check that a token is one, and that there is one if others reach the address.

    Args:
        token: The token of clients; None or empty to admit all.
        host: Address to listen on.
        may_be_open: Whether all may be admitted at any address.

    Raises:
        ConfigurationError: If not.
    """
    if token and not _TOKEN.fullmatch(token):
        message = "Expected the token to consist of printable ASCII characters without spaces"
        raise ConfigurationError(message)
    if not token and not may_be_open and not _is_loopback(host):
        message = (
            f"Listening on {host} without a token would let everyone who reaches this machine run code: pass "
            f"--token-file, set {_VARIABLE}, or pass --no-token"
        )
        raise ConfigurationError(message)


def _is_loopback(host: str) -> bool:
    """Return whether a host is reached from this machine only; names count if all their addresses are."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        # To be reported when the address is bound.
        return True
    return all(ipaddress.ip_address(address).is_loopback for address in found)
