"""envd's route ``/files``: downloads and uploads."""

from __future__ import annotations

import contextlib
import posixpath
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from coding_gym_e2b.failures import ApiError, Code, RpcError
from coding_gym_e2b.files import PART_BYTES
from coding_gym_e2b.sandbox import E2BSandbox
from coding_gym_e2b.spool import Spool, SpoolShare
from coding_gym_e2b.users import account_of

__all__ = ["download", "form_spool", "upload"]

_STATUS = {
    Code.NOT_FOUND: 404,
    Code.INVALID_ARGUMENT: 400,
    Code.PERMISSION_DENIED: 403,
    Code.NO_SPACE: 507,
    Code.UNAUTHENTICATED: 401,
    Code.UNAVAILABLE: 503,
}
_METADATA = "x-metadata-"
_MAX_FILES = 1000
_MAX_FIELDS = 16
_FORM_BYTES = 1 << 30
_FORMS_BYTES = 4 << 30
_MEMORY_BYTES = 1 << 16
"""Size up to which a file of a form is kept in memory."""

_GZIP = 16 + zlib.MAX_WBITS


async def download(request: Request, sandbox: E2BSandbox) -> Response:
    """Return the content of the file that the query names."""
    path = request.query_params.get("path", "")
    with _as_http():
        user = account_of(request.query_params.get("username", ""), sandbox)
        parts = sandbox.files.read(path, user=user)
        first = await anext(parts)

    async def content() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return StreamingResponse(content(), media_type="application/octet-stream")


def form_spool() -> Spool:
    """Return the limits of forms, which are kept on the disk until they are complete."""
    return Spool("Forms", largest=_FORM_BYTES, total=_FORMS_BYTES, advice=": send larger files one by one, as they are")


async def upload(request: Request, sandbox: E2BSandbox, forms: Spool) -> Response:
    """Write the files in the body: one as it is, or any number as ``multipart/form-data``.

    Args:
        request: The request.
        sandbox: Where to write them.
        forms: The limits of forms.
    """
    query = request.query_params
    headers = request.headers.items()
    metadata = {name[len(_METADATA) :]: value for name, value in headers if name.startswith(_METADATA)}
    with _as_http():
        user = account_of(query.get("username", ""), sandbox)
        if request.headers.get("content-type", "").startswith("multipart/form-data"):
            return JSONResponse(await _upload_form(request, sandbox, forms, metadata, user))
        if "path" not in query:
            raise ApiError(400, "Expected path= in the query")
        return JSONResponse([await sandbox.files.write(query["path"], _body(request), metadata, user=user)])


async def _upload_form(
    request: Request, sandbox: E2BSandbox, forms: Spool, metadata: dict[str, str], user: str
) -> list[dict[str, Any]]:
    path = request.query_params.get("path")
    async with contextlib.AsyncExitStack() as stack:
        share = stack.enter_context(contextlib.closing(SpoolShare(forms)))
        parser = MultiPartParser(request.headers, share.counted(request.stream()), max_files=_MAX_FILES, max_fields=_MAX_FIELDS)
        parser.spool_max_size = _MEMORY_BYTES
        try:
            form = await parser.parse()
        except (MultiPartException, AssertionError) as error:
            message = f"The form cannot be read: {error}"
            raise ApiError(400, message) from error
        stack.push_async_callback(form.close)
        files = [value for name, value in form.multi_items() if name == "file"]
        if path is not None and len(files) != 1:
            raise ApiError(400, "Expected a single file for path=")
        return [await sandbox.files.write(path or _name(file), _parts(file), metadata, user=user) for file in files]


def _name(file: UploadFile | str) -> str:
    if isinstance(file, str) or not file.filename:
        raise ApiError(400, "Expected each file to have a name, which is its path")
    return posixpath.normpath(file.filename)


async def _parts(file: UploadFile | str) -> AsyncIterator[bytes]:
    if isinstance(file, str):
        yield file.encode()
        return
    while part := await file.read(PART_BYTES):
        yield part


async def _body(request: Request) -> AsyncIterator[bytes]:
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding == "identity":
        async for chunk in request.stream():
            yield chunk
        return
    if encoding != "gzip":
        message = f"Expected the content encoding gzip, or none, got {encoding[:50]!r}"
        raise ApiError(400, message)
    decoder = zlib.decompressobj(_GZIP)
    try:
        async for chunk in request.stream():
            data = chunk
            while data:
                yield decoder.decompress(data, PART_BYTES)
                data = decoder.unconsumed_tail
        yield decoder.flush()
    except zlib.error as error:
        message = f"The body is not gzip: {error}"
        raise ApiError(400, message) from error
    if not decoder.eof:
        raise ApiError(400, "The body is not gzip: it is incomplete")


@contextlib.contextmanager
def _as_http() -> Iterator[None]:
    """Turn errors of procedures into those of the route."""
    try:
        yield
    except RpcError as error:
        raise ApiError(_STATUS.get(error.code, 500), str(error)) from error
