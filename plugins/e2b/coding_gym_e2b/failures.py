"""Errors as E2B's SDKs expect them: of the control plane, of envd's HTTP routes, and of its Connect procedures."""

from __future__ import annotations

from enum import StrEnum

from starlette.responses import JSONResponse

__all__ = ["ApiError", "Code", "RpcError", "SandboxGoneError", "api_response", "rpc_response"]


class Code(StrEnum):
    """Error code of the Connect protocol, and one of envd's HTTP routes."""

    CANCELED = "canceled"
    INVALID_ARGUMENT = "invalid_argument"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    FAILED_PRECONDITION = "failed_precondition"
    UNIMPLEMENTED = "unimplemented"
    INTERNAL = "internal"
    UNAVAILABLE = "unavailable"
    UNAUTHENTICATED = "unauthenticated"
    NO_SPACE = "no_space"


_STATUS = {
    Code.CANCELED: 499,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.UNAUTHENTICATED: 401,
    Code.NO_SPACE: 507,
}


class ApiError(Exception):
    """The request cannot be fulfilled.

    Args:
        status: HTTP status code.
        message: What is wrong, for the user.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SandboxGoneError(ApiError):
    """There is no running sandbox for a request to envd. The SDKs recognize the words of the message.

    Args:
        sandbox_id: Id of the sandbox, if it is known.
    """

    def __init__(self, sandbox_id: str = "") -> None:
        super().__init__(502, "The sandbox was not found")
        self.sandbox_id = sandbox_id


class RpcError(Exception):
    """A procedure of envd failed.

    Args:
        code: Error code of the Connect protocol.
        message: What is wrong, for the user.
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def body(self) -> dict[str, str]:
        """The error as the protocol has it."""
        code = Code.RESOURCE_EXHAUSTED if self.code is Code.NO_SPACE else self.code
        return {"code": code, "message": str(self)}


def api_response(error: ApiError) -> JSONResponse:
    """Return the response for an error of the control plane or of an HTTP route of envd."""
    body: dict[str, object] = {"code": error.status, "message": str(error)}
    if isinstance(error, SandboxGoneError):
        body["sandboxId"] = error.sandbox_id
    return JSONResponse(body, error.status)


def rpc_response(error: RpcError) -> JSONResponse:
    """Return the response for an error of a unary procedure."""
    return JSONResponse(error.body, _STATUS.get(error.code, 500))
