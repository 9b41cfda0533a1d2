"""Commands whose session is lost, which says nothing about the model, and those that a limit of the sandbox ended."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from http import HTTPStatus

from coding_gym.client.processes import ProcessResult
from coding_gym.errors import ProtocolError, TransportError

__all__ = ["kept", "losses"]

_LOST = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE, HTTPStatus.SERVICE_UNAVAILABLE)
"""Statuses of requests for a session that has ended, for an episode that was lost, and of infrastructure errors."""


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """Raise ``TransportError`` in place of a ``ProtocolError`` that says that the session is lost."""
    try:
        yield
    except ProtocolError as error:
        if error.status in _LOST:
            raise TransportError(str(error)) from error
        raise


def kept(result: ProcessResult) -> ProcessResult:
    """Return the result of a command whose session continues; if it exceeded a limit of the sandbox, stderr ends with that.

    Raises:
        TransportError: If the command ended with its session.
    """
    if result.lost is None:
        return result
    if result.limit_exceeded:
        return replace(result, stderr=result.stderr + f"{result.lost}\n".encode(), lost=None)
    message = f"The command ended with its session: {result.lost}"
    raise TransportError(message)
