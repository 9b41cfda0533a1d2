"""HTTP routes for workspace files: list, download (whole or by range), upload and delete."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from coding_gym_server.server.api.routing import by_method, flag
from coding_gym_server.server.threads import FileLease, in_thread
from coding_gym_server.workspace.file_errors import EpisodeEndedError, FilesError, NotFoundError
from coding_gym_server.workspace.files import Files

__all__ = ["file_routes"]

_MAX_BYTES_WITHOUT_SIZE = 1 << 20

_PROGRAM_CONTENT = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
}
"""Headers of files, which programs have written: browsers show them without any rights, and not in pages of other sites."""


class _FileConvertor(PathConvertor):
    """URL convertor for file paths, whose names may contain any character."""

    regex = "(?s:.*)"


register_url_convertor("file", _FileConvertor())


def file_routes(prefix: str, find: Callable[[Request], AbstractAsyncContextManager[tuple[Files, FileLease]]]) -> list[Route]:
    """Return the routes for workspace files.

    Args:
        prefix: Path of the routes, such as ``/files``.
        find: Yields the files that a request refers to, and the lease on them.
    """

    async def list_directory(request: Request) -> Response:
        path = request.query_params.get("path", ".")
        async with find(request) as (workspace, lease):
            entries = await lease.run(workspace.list, path)
        return Response(msgspec.json.encode({"path": path, "entries": entries}), media_type="application/json")

    async def download(request: Request) -> Response:
        path = request.path_params["path"]
        async with find(request) as (workspace, lease):
            descriptor = await lease.run(workspace.open, path)
            media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
            if os.fstat(descriptor).st_size:
                return _Download(descriptor, media_type=media_type)
            content = await lease.run(_read_without_size, descriptor)
        return Response(content, media_type=media_type, headers=_PROGRAM_CONTENT)

    async def upload(request: Request) -> Response:
        is_executable = flag(request, "executable")
        async with find(request) as (workspace, lease):
            upload = await lease.run(workspace.upload, request.path_params["path"], is_executable=is_executable)
            try:
                async for chunk in request.stream():
                    await lease.run(upload.write, chunk)
                await lease.run(upload.finish)
            finally:
                # Even after the end of the episode: it removes nothing but what it has created.
                await in_thread(upload.close)
        return Response(status_code=201 if upload.is_new else 200)

    async def delete(request: Request) -> Response:
        async with find(request) as (workspace, lease):
            await lease.run(workspace.remove, request.path_params["path"])
        return Response(status_code=204)

    handlers = {"GET": download, "PUT": upload, "DELETE": delete}
    return [
        Route(prefix, _explained(list_directory), methods=["GET"]),
        by_method(f"{prefix}/{{path:file}}", **{method: _explained(handler) for method, handler in handlers.items()}),
    ]


class _Download(FileResponse):
    """File response from an open descriptor, so that no process can replace the file between the check and the response.

    Args:
        descriptor: The open file; the response takes ownership and closes it.
        media_type: The MIME type of the file.
    """

    def __init__(self, descriptor: int, *, media_type: str) -> None:
        self._descriptor = descriptor
        # The server may lack the permission to open it again.
        path: Any = _Duplicate(descriptor)
        super().__init__(path, media_type=media_type, stat_result=os.fstat(descriptor), headers=_PROGRAM_CONTENT)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)


def _read_without_size(descriptor: int) -> bytes:
    """Return the begin of a file that is empty, or one of the kernel's, such as ``/proc/cpuinfo``; close the descriptor."""
    with open(descriptor, "rb", buffering=0) as file:
        parts: list[bytes] = []
        try:
            while sum(len(part) for part in parts) < _MAX_BYTES_WITHOUT_SIZE and (part := file.read(_MAX_BYTES_WITHOUT_SIZE)):
                parts.append(part)
        except OSError as error:
            message = f"The file cannot be read: {error.strerror}"
            raise FilesError(message) from error
    return b"".join(parts)


class _Duplicate:
    """Number of a new descriptor of an open file, for ``open``, which closes it.

    Args:
        descriptor: The file's.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __index__(self) -> int:
        return os.dup(self._descriptor)


def _explained(handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """Wrap a handler so that errors become responses 400, 404 and 409."""

    async def handle(request: Request) -> Response:
        try:
            response: Response = await handler(request)
        except NotFoundError as error:
            return PlainTextResponse(str(error), 404)
        except EpisodeEndedError as error:
            return PlainTextResponse(str(error), 409)
        except FilesError as error:
            return PlainTextResponse(str(error), 400)
        return response

    return handle
