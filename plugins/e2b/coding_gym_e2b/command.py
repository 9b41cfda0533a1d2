"""Command ``coding-gym serve --e2b``."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Annotated

import typer

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
    parse_variables,
    sandbox_config_of,
    stoppable,
    url_of,
)
from coding_gym.plugins import listen

__all__ = ["serve_e2b"]


def serve_e2b(
    provider: ProviderOption = Provider.AUTO,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    token: RequiredTokenOption = None,
    no_token: NoTokenOption = False,
    sessions: SessionsOption = 16,
    backend: BackendOption = None,
    packages: PackagesOption = None,
    option: SandboxOptions = None,
    template: Annotated[
        list[str] | None,
        typer.Option("--template", metavar="NAME=IMAGE", help="Image of a template, empty for the default one; repeatable."),
    ] = None,
    hosts: Annotated[int, typer.Option(min=1, help="Maximum number of containers, or local sandboxes.")] = 4,
    root: Annotated[bool, typer.Option("--root", help="Let programs be root, each sandbox in its own container.")] = False,
) -> None:
    """Serve sandboxes for E2B's SDKs: serve --e2b.

    Runs until Ctrl-C or SIGTERM, and removes the sandboxes then.
    """
    from coding_gym_e2b.serving import serve_gateway
    from coding_gym_e2b.settings import GatewaySettings
    from coding_gym_server.worker.backends.registry import is_installed

    with errors_in_red(), stoppable():
        check_token(token, host=host, may_be_open=no_token)
        config = sandbox_config_of(
            provider=provider, backend=backend, packages=packages, options=option, sessions=sessions, token=None
        )
        if config.backend is None and (config.provider == "docker" or is_installed("notebook")):
            config = dataclasses.replace(config, backend="notebook")
        settings = GatewaySettings(config=config, hosts=hosts, images=parse_variables(template), token=token or None, root=root)
        with listen(host, port) as listener:
            url = url_of(host, listener.getsockname()[1])

            def on_start(description: str) -> None:
                each = "one sandbox" if root else f"{config.sessions} sandboxes"
                typer.echo(
                    f"Serving E2B's API at {url} from {description}, {each} in each of at most {hosts}. Ctrl-C stops it."
                )
                typer.echo(_examples(url, settings.api_key))

            asyncio.run(serve_gateway(settings, listener, on_start=on_start))


def _examples(url: str, key: str) -> str:
    """Return commands and code that use the server, for copying."""
    return f"""
In a shell:
export E2B_API_URL={url} E2B_SANDBOX_URL={url} E2B_API_KEY={key}

In Python:
from e2b import Sandbox; print(Sandbox.create().commands.run("echo hello").stdout)
"""
