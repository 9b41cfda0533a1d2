"""Command ``coding-gym serve``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
from typing import TYPE_CHECKING
from urllib.parse import quote

import typer

from coding_gym._listening import listen
from coding_gym.cli.common import (
    BackendOption,
    HostOption,
    NoTokenOption,
    PackagesOption,
    PortOption,
    Provider,
    ProviderOption,
    RequiredTokenOption,
    SandboxOptions,
    SessionsOption,
    check_token,
    errors_in_red,
    sandbox_config_of,
    stoppable,
    url_of,
)

if TYPE_CHECKING:
    from coding_gym.sandbox.relay import SandboxRelay

__all__ = ["serve"]

_EXAMPLE = "6 * 7"


def serve(
    provider: ProviderOption = Provider.AUTO,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: RequiredTokenOption = None,
    no_token: NoTokenOption = False,
    sessions: SessionsOption = 16,
    backend: BackendOption = None,
    packages: PackagesOption = None,
    option: SandboxOptions = None,
) -> None:
    """Serve a sandbox at an address, for browsers, environments (provider="remote"), CodeInterpreter and OpenEnv's clients.

    Runs until Ctrl-C or SIGTERM, and removes the sandbox then. A sandbox that dies is replaced.
    """
    from coding_gym.sandbox.managed import ManagedSandbox
    from coding_gym.sandbox.relay import SandboxRelay

    with errors_in_red(), stoppable():
        check_token(token, host=host, may_be_open=no_token)
        config = sandbox_config_of(
            provider=provider,
            backend=backend,
            packages=packages,
            options=option,
            # One more, for the relay.
            sessions=sessions + 1,
            token=token or "",
        )
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


def _examples(url: str, token: str | None) -> str:
    """Return an address, commands and code that use the server, for copying."""
    # The quotes of JSON are those of Python, too.
    text = json.dumps
    # From standard input: other users of the machine can read command lines.
    header, given = ("-H @- ", f" <<< {shlex.quote(f'Authorization: Bearer {token}')}") if token else ("", "")
    body = shlex.quote(json.dumps({"code": _EXAMPLE}))
    argument = f", token={text(token)}" if token else ""
    # Browsers keep what follows the # to themselves.
    fragment = f"#token={quote(token, safe='')}" if token else ""
    return f"""
In a browser:
{url}/web{fragment}

In a shell:
curl -sN {url}/execute {header}-d {body}{given}

In Python:
from coding_gym import CodeInterpreter; print(CodeInterpreter({text(url)}{argument}).execute({text(_EXAMPLE)}).text)

As an environment:
import gymnasium; env = gymnasium.make("coding_gym:CodingEnv-v0", provider="remote", base_url={text(url)}{argument})
"""
