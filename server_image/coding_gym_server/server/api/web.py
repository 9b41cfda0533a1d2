"""The web page, with which people use the server in a browser, and what it needs to know about the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from coding_gym_server import __version__
from coding_gym_server.display.availability import can_have_screens, can_manage_windows
from coding_gym_server.protocol import DEFAULT_SCREEN, MAX_FRAME_BYTES, MAX_SCREEN_SIDE, MIN_SCREEN_SIDE, PROTOCOL_VERSION
from coding_gym_server.protocol.backends import JUPYTER_PREFIX, canonical_backend, known_backends, language_of_programs
from coding_gym_server.server.api.openenv_tasks import ENVIRONMENT_NAME
from coding_gym_server.server.sessions.defaults import SessionDefaults
from coding_gym_server.server.sessions.registry import SessionRegistry
from coding_gym_server.server.threads import in_thread
from coding_gym_server.web import assets
from coding_gym_server.worker.backends.registry import is_installed

__all__ = ["web_routes"]

_WORKBENCH = Path(assets.__file__).with_name("workbench")
_ALIASES = frozenset({"restrictedpython"})


def web_routes(sessions: SessionRegistry, defaults: SessionDefaults, *, interactive: str) -> list[BaseRoute]:
    """Return the routes of the page ``/web``, of its static files, and of ``/web/info``.

    Args:
        sessions: The open sessions of the server.
        defaults: Defaults for reset options.
        interactive: The backend that the page begins with.
    """
    backends: list[dict[str, str]] = []

    async def info(_: Request) -> Response:
        if not backends:
            backends.extend(await in_thread(_installed_backends))
        report = {
            "name": ENVIRONMENT_NAME,
            "version": __version__,
            "protocol_version": PROTOCOL_VERSION,
            "backends": backends,
            "interactive_backend": interactive,
            "screens": can_have_screens(),
            "window_manager": can_manage_windows(),
            "limits": {
                "max_sessions": sessions.limit,
                "active_sessions": sessions.count,
                "max_message_bytes": MAX_FRAME_BYTES,
                "screen_side": [MIN_SCREEN_SIDE, MAX_SCREEN_SIDE],
            },
            "defaults": {
                "backend": defaults.backend,
                "step_timeout": defaults.step_timeout,
                "cpu_timeout": defaults.cpu_timeout,
                "max_output_chars": defaults.max_output_chars,
                "screen": DEFAULT_SCREEN,
            },
        }
        return Response(msgspec.json.encode(report), media_type="application/json", headers={"cache-control": "no-store"})

    return [
        Route("/web/info", info),
        assets.page_route("/web", _WORKBENCH / "index.html"),
        assets.asset_route("/web/static/common", assets.COMMON),
        assets.asset_route("/web/static/workbench", _WORKBENCH),
    ]


def _installed_backends() -> list[dict[str, str]]:
    """Return the name, the language and a title of each installed backend."""
    names = [
        name for name in known_backends() if name not in _ALIASES and canonical_backend(name) == name and is_installed(name)
    ]
    found = [_described(name, name if name == "bash" or language_of_programs(name) else "python", name) for name in names]
    # Imported here because most servers have no page to serve.
    from coding_gym_server.worker.backends.jupyter.kernelspecs import installed_kernels

    kernels: dict[str, Any] = installed_kernels()
    return found + [
        _described(f"{JUPYTER_PREFIX}{name}", spec.language or "", spec.display_name or name)
        for name, spec in sorted(kernels.items())
    ]


def _described(name: str, language: str, title: str) -> dict[str, str]:
    return {"name": name, "language": language.lower(), "title": title}
