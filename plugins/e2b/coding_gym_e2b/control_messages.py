"""Requests of E2B's control plane."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from starlette.requests import Request

from coding_gym_e2b.failures import ApiError
from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = [
    "BuildSource",
    "BuildStep",
    "ForkRequest",
    "NewSandbox",
    "NewTemplate",
    "PauseRequest",
    "SnapshotRequest",
    "TimeoutRequest",
    "read_json",
]

_MAX_BODY_BYTES = 16 << 20
_T = TypeVar("_T")
Timeout = Annotated[float, msgspec.Meta(ge=0, le=366 * 86_400)]


class AutoResume(msgspec.Struct):
    """Whether requests resume a sandbox."""

    enabled: bool = False


class NewSandbox(msgspec.Struct, rename="camel"):
    """A sandbox to make."""

    template_id: str = msgspec.field(name="templateID", default="base")
    timeout: Timeout | None = None
    metadata: dict[str, str] = {}
    env_vars: dict[str, str] = {}
    auto_pause: bool = False
    auto_pause_memory: bool = True
    auto_resume: AutoResume | None = None
    network: dict[str, Any] | None = None
    volume_mounts: list[Any] | None = None


class TimeoutRequest(msgspec.Struct):
    """The time that a sandbox has from now."""

    timeout: Timeout | None = None


class ForkRequest(msgspec.Struct):
    """Forks to make of a sandbox."""

    timeout: Timeout | None = None
    count: Annotated[int, msgspec.Meta(ge=1, le=20)] = 1


class PauseRequest(msgspec.Struct):
    """How to pause a sandbox."""

    memory: bool | None = None


class SnapshotRequest(msgspec.Struct):
    """A snapshot to take of a sandbox."""

    name: str | None = None
    memory: bool | None = None


class NewTemplate(msgspec.Struct, rename="camel"):
    """A template to build."""

    name: str = ""
    alias: str = ""
    tags: list[str] = []


class BuildStep(msgspec.Struct, rename="camel"):
    """An instruction of a template."""

    type: str
    args: list[str] = []
    files_hash: str | None = None


class BuildSource(msgspec.Struct, rename="camel"):
    """What a template is built of."""

    from_image: str | None = None
    from_template: str | None = None
    steps: list[BuildStep] = []
    start_cmd: str | None = None
    ready_cmd: str | None = None


async def read_json(request: Request, kind: type[_T]) -> _T:
    """Return the message in the body of a request.

    Raises:
        ApiError: If it is malformed.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            raise ApiError(413, "The body of the request is too large")
    try:
        return msgspec.json.decode(bytes(body) or b"{}", type=kind)
    except DECODING_ERRORS as error:
        message = f"Invalid request: {error}"
        raise ApiError(400, message) from None
