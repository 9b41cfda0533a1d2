"""Users of requests to envd."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Protocol

from starlette.requests import Request

from coding_gym_e2b.failures import Code, RpcError

__all__ = ["DEFAULT_USER", "HasUsers", "account_of", "check_user", "user_of"]

DEFAULT_USER = "user"
_USERS = ("", DEFAULT_USER, "root")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")


class HasUsers(Protocol):
    """What may have users."""

    @property
    def is_root(self) -> bool:
        """Whether its programs can be root, and therefore other users, too."""


def user_of(request: Request) -> str:
    """Return the user that a request names in its basic authentication, empty if it names none."""
    kind, _, text = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text).decode().partition(":")[0]
    except (binascii.Error, UnicodeError):
        return ""


def account_of(name: str, sandbox: HasUsers) -> str:
    """Return the user of a sandbox that a name means, which may not exist; empty if all programs have the same user.

    Args:
        name: The name, empty for the default user.
        sandbox: The sandbox.

    Raises:
        RpcError: If it is not the name of a user.
    """
    if not sandbox.is_root:
        check_user(name)
        return ""
    if name and not _NAME.fullmatch(name):
        message = f"invalid username: {name[:50]!r}"
        raise RpcError(Code.UNAUTHENTICATED, message)
    return name or DEFAULT_USER


def check_user(name: str) -> None:
    """Check that there is a user: ``user``, or ``root``, which is another name of it, without privileges.

    Raises:
        RpcError: If the user does not exist.
    """
    if name not in _USERS:
        message = f"invalid username: {name[:50]!r}: there are user, and root, which is the same"
        raise RpcError(Code.UNAUTHENTICATED, message)
