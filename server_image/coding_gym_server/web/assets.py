"""Routes for the files of a page: HTML under a content security policy, modules, styles and pictures."""

from __future__ import annotations

import functools
import gzip
import hashlib
from pathlib import Path

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["COMMON", "SECURITY_HEADERS", "asset_route", "page_route"]

COMMON = Path(__file__).parent / "common"
"""Folder of the files that all pages share, which each page mounts as ``static/common``."""

SECURITY_HEADERS = {
    "content-security-policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self' blob: data:",
            "connect-src 'self'",
            # Documents that a page writes itself, into frames without any permission; they inherit this policy.
            "frame-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Headers of each file: a page loads nothing from other hosts, and runs no script but its own modules."""

_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
_SMALLEST_COMPRESSED = 512


class _File(msgspec.Struct, frozen=True):
    """Content of a served file.

    Args:
        media_type: Value of its header ``content-type``.
        content: Its bytes.
        etag: Its entity tag.
    """

    media_type: str
    content: bytes
    etag: str


def page_route(path: str, index: Path) -> Route:
    """Return the route of a page.

    Args:
        path: Path of the route, such as ``/web``.
        index: The page's HTML file, which is read once.
    """
    file = _read(index)

    async def page(request: Request) -> Response:
        return _response(request, file)

    return Route(path, page, methods=["GET"])


def asset_route(path: str, folder: Path) -> Route:
    """Return the route for the files of a folder and of its subfolders.

    All of them are read once, so that no request can name another file.

    Args:
        path: Path of the folder in addresses, such as ``/web/static/common``.
        folder: The folder. Files of types that pages do not load are left out.
    """
    files = {
        str(file.relative_to(folder)): _read(file)
        for file in sorted(folder.rglob("*"))
        if file.suffix in _MEDIA_TYPES and file.is_file()
    }

    async def asset(request: Request) -> Response:
        file = files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404)
        return _response(request, file)

    return Route(f"{path}/{{name:path}}", asset, methods=["GET"])


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(
        media_type=_MEDIA_TYPES[path.suffix],
        content=content,
        etag=f'W/"{hashlib.sha256(content).hexdigest()[:20]}"',
    )


def _response(request: Request, file: _File) -> Response:
    # Browsers ask each time, and get a short answer, so that a new version never meets modules of an old one.
    headers = {**SECURITY_HEADERS, "etag": file.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    compressed = _compressed(file.content) if "gzip" in request.headers.get("accept-encoding", "") else None
    if compressed is not None:
        headers["content-encoding"] = "gzip"
    return Response(file.content if compressed is None else compressed, media_type=file.media_type, headers=headers)


# At the first request: all files of a page take longer than a server takes to start.
@functools.cache
def _compressed(content: bytes) -> bytes | None:
    """Return content compressed by gzip; None if that saves nothing."""
    if len(content) < _SMALLEST_COMPRESSED:
        return None
    compressed = gzip.compress(content, mtime=0)
    return compressed if len(compressed) < len(content) else None
