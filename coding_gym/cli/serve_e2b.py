"""Option ``--e2b`` of ``coding-gym serve``."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from coding_gym._listening import listen
from coding_gym.cli.common import url_of

if TYPE_CHECKING:
    from coding_gym.sandbox.config import SandboxConfig

__all__ = ["serve_e2b"]


def serve_e2b(
    config: SandboxConfig,
    *,
    templates: Mapping[str, str],
    hosts: int,
    token: str | None,
    host: str,
    port: int,
    root: bool = False,
) -> None:
    """Serve sandboxes for E2B's SDKs until Ctrl-C, SIGTERM or SIGHUP.

    Args:
        config: Configuration of the sandboxes.
        templates: Images by template.
        hosts: Maximum number of sandboxes.
        token: Token of the clients, None to admit all.
        host: Address to listen on.
        port: Port to listen on.
        root: Whether programs of sandboxes can be root, for which each has a container of its own.
    """
    from coding_gym.e2b.serving import serve_gateway
    from coding_gym.e2b.settings import GatewaySettings
    from coding_gym_server.worker.backends.registry import is_installed

    if config.backend is None and (config.provider == "docker" or is_installed("notebook")):
        config = dataclasses.replace(config, backend="notebook")
    settings = GatewaySettings(config=config, hosts=hosts, images=templates, token=token or None, root=root)
    with listen(host, port) as listener:
        url = url_of(host, listener.getsockname()[1])

        def on_start(description: str) -> None:
            each = "one sandbox" if root else f"{config.sessions} sandboxes"
            typer.echo(f"Serving E2B's API at {url} from {description}, {each} in each of at most {hosts}. Ctrl-C stops it.")
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
