"""Command ``coding-gym serve``."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import json
import re
import shlex
import signal
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from coding_gym._listening import listen
from coding_gym.cli.common import (
    BackendOption,
    PackagesOption,
    Provider,
    ProviderOption,
    SandboxOptions,
    errors_in_red,
    parse_variables,
    sandbox_config_of,
    url_of,
)
from coding_gym.cli.serve_e2b import serve_e2b
from coding_gym.errors import ConfigurationError

if TYPE_CHECKING:
    from coding_gym.sandbox.relay import SandboxRelay

__all__ = ["serve"]

_TOKEN = re.compile(r"[\x21-\x7e]+")
_EXAMPLE = "6 * 7"


def serve(
    provider: ProviderOption = Provider.AUTO,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 for a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="CODING_GYM_TOKEN", help="Bearer token that clients must send; none by default.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Listen beyond this machine although there is no token.")
    ] = False,
    sessions: Annotated[int, typer.Option(min=1, help="Maximum number of concurrent sessions.")] = 16,
    backend: BackendOption = None,
    packages: PackagesOption = None,
    option: SandboxOptions = None,
    e2b: Annotated[bool, typer.Option("--e2b", help="Serve sandboxes for E2B's SDKs instead.")] = False,
    template: Annotated[
        list[str] | None,
        typer.Option(
            "--template",
            metavar="NAME=IMAGE",
            help="Image of an E2B template, empty for the default one, with --e2b; repeatable.",
        ),
    ] = None,
    hosts: Annotated[int, typer.Option(min=1, help="Maximum number of containers, or local sandboxes, with --e2b.")] = 4,
    root: Annotated[
        bool, typer.Option("--root", help="Let programs be root, each sandbox in a container of its own, with --e2b.")
    ] = False,
) -> None:
    """Serve a sandbox at an address, for browsers, environments (provider="remote"), CodeInterpreter and OpenEnv's clients.

    Runs until Ctrl-C or SIGTERM, and removes the sandbox then. A sandbox that dies is replaced.
    """
    from coding_gym.sandbox.managed import ManagedSandbox
    from coding_gym.sandbox.relay import SandboxRelay

    with errors_in_red(), _stoppable():
        _check_token(token, host=host, may_be_open=no_token)
        config = sandbox_config_of(
            provider=provider,
            backend=backend,
            packages=packages,
            options=option,
            # One more, for the relay.
            sessions=sessions if e2b else sessions + 1,
            token=None if e2b else token or "",
        )
        if e2b:
            serve_e2b(config, templates=parse_variables(template), hosts=hosts, token=token, host=host, port=port, root=root)
            return
        with SandboxRelay(ManagedSandbox(config), listen(host, port)) as relay:
            sandbox = relay.start()
            url = url_of(host, relay.port)
            typer.echo(f"Serving {url} from {sandbox.description}, for {sessions} sessions at a time. Ctrl-C stops it.")
            typer.echo(_examples(url, token))
            asyncio.run(_run_until_signal(relay))


async def _run_until_signal(relay: SandboxRelay) -> None:
    running = asyncio.create_task(relay.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """End the block quietly at Ctrl-C, SIGTERM and SIGHUP."""
    previous = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _check_token(token: str | None, *, host: str, may_be_open: bool) -> None:
    if token and not _TOKEN.fullmatch(token):
        message = "Expected the token to consist of printable ASCII characters without spaces"
        raise ConfigurationError(message)
    if not token and not may_be_open and not _is_loopback(host):
        message = (
            f"Listening on {host} without a token would let everyone who reaches this machine run code: set --token or "
            "CODING_GYM_TOKEN, or pass --no-token"
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


def _examples(url: str, token: str | None) -> str:
    """Return an address, commands and code that use the server, for copying."""
    # The quotes of JSON are those of Python, too.
    text = json.dumps
    header = f"-H {shlex.quote(f'Authorization: Bearer {token}')} " if token else ""
    body = shlex.quote(json.dumps({"code": _EXAMPLE}))
    argument = f", token={text(token)}" if token else ""
    # Browsers keep what follows the # to themselves.
    fragment = f"#token={quote(token, safe='')}" if token else ""
    return f"""
In a browser:
{url}/web{fragment}

In a shell:
curl -sN {url}/execute {header}-d {body}

In Python:
from coding_gym import CodeInterpreter; print(CodeInterpreter({text(url)}{argument}).execute({text(_EXAMPLE)}).text)

As an environment:
import gymnasium; env = gymnasium.make("coding_gym:CodingEnv-v0", provider="remote", base_url={text(url)}{argument})
"""
