"""Interfaces of endpoints and access policies, for lower-level modules."""

from __future__ import annotations

from typing import Any, Protocol

from coding_gym_server.remote_objects.values import Tree

__all__ = ["Endpoint", "Policy"]


class Policy(Protocol):
    """Access policy of a side for the proxies that it holds."""

    def look_up(self, handle: Any, name: str) -> Any:
        """Return an attribute of a proxy."""

    def make(self, kind: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Return an instance of a remote class."""

    def call_handle(self, handle: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Return the result of calling a proxy."""

    def operate_on_handle(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> Any:
        """Return the result of a special method of a proxy."""


class Endpoint(Protocol):
    """An endpoint, as used by proxies and policies."""

    @property
    def rules(self) -> Policy:
        """The access policy of this side."""

    def call(self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a remote object."""

    def operate(self, name: str, target: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a special method of a remote object."""

    def get(self, target: Any, name: str) -> Any:
        """Return an attribute of a remote object."""

    def set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute of a remote object."""

    def delete(self, target: Any, name: str) -> None:
        """Delete an attribute of a remote object."""

    def plain(self, target: Any) -> Any:
        """Return a copy of the data in a remote object."""

    def encode(self, value: Any) -> Tree:
        """Return the encoded form of a value."""

    def is_received(self, error: BaseException) -> bool:
        """Return whether the peer has raised an exception."""
