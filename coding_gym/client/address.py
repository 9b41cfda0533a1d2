"""Server address and credentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from coding_gym.errors import ConfigurationError

__all__ = ["Address"]

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """The address of a server.

    Attributes:
        url: ``http://host:port[/prefix]`` or ``https://...``; the host of a Unix socket is a placeholder.
        socket_path: The Unix socket to connect to instead of the URL's host and port.
        token: Bearer token, None for a server without one.
    """

    url: str
    socket_path: str | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            valid = parts.scheme in _DEFAULT_PORTS and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            message = f"Expected a server's URL such as http://127.0.0.1:8000, got {self.url!r}"
            raise ConfigurationError(message)

    @classmethod
    def of_unix_socket(cls, path: str, *, token: str | None = None) -> Address:
        """Return the address of a server that listens on a Unix socket."""
        return cls("http://sandbox", socket_path=path, token=token)

    @classmethod
    def of_url(cls, url: str, *, token: str | None = None) -> Address:
        """Return the address of a server; a bare ``host:port`` counts as ``http://host:port``."""
        return cls(url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}", token=token)

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return urlsplit(self.url).scheme == "https"

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The TCP host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        return parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme]

    @property
    def websocket_url(self) -> str:
        """The URL of the session route."""
        return f"{self.url.replace('http', 'ws', 1)}/ws"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    @property
    def advice(self) -> str:
        """The end of a message about a failed connection, empty for a Unix socket, whose server this package has started."""
        return "" if self.socket_path is not None else ". Start a server with 'coding-gym serve', or correct the URL"

    def __str__(self) -> str:
        return self.socket_path or self.url
