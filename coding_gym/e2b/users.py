"""Users of requests to envd: all are the user of the session."""

from __future__ import annotations

import base64
import binascii

from starlette.requests import Request

from coding_gym.e2b.failures import Code, RpcError

__all__ = ["check_user", "user_of"]

_USERS = ("", "user", "root")


def user_of(request: Request) -> str:
    """Return the user that a request names in its basic authentication, empty if it names none."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text).decode().partition(":")[0]
    except (binascii.Error, UnicodeError):
        return ""


def check_user(name: str) -> None:
    """Check that there is a user: ``user``, or ``root``, which is another name of it, without privileges.

    Raises:
        RpcError: If there is no such user.
    """
    if name not in _USERS:
        message = f"invalid username: {name[:50]!r}: there are user, and root, which is the same"
        raise RpcError(Code.UNAUTHENTICATED, message)
