"""An E2B sandbox: a session, with what E2B's control plane knows of it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from coding_gym.sandbox.config import SandboxConfig, parse_size
from coding_gym_e2b.async_session import AsyncSession
from coding_gym_e2b.event_log import EventLog, timestamp
from coding_gym_e2b.files import SessionFiles
from coding_gym_e2b.hosts import Host
from coding_gym_e2b.processes import ProcessService
from coding_gym_e2b.upstream import SessionServer

__all__ = ["E2BSandbox", "Lifecycle", "size_of"]

ENVD_VERSION = "0.6.7"
"""The version of envd whose features are offered."""

_MEBIBYTE = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """What a client wants of a sandbox.

    Attributes:
        template_id: The template, or the snapshot, that it is made of.
        metadata: Metadata, by which sandboxes are listed.
        environment: Variables of every process.
        pauses: Whether it is paused when its time is up, instead of killed.
        resumes: Whether a request to it resumes it.
        is_listed: Whether clients see it.
    """

    template_id: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    pauses: bool = False
    resumes: bool = False
    is_listed: bool = True


class E2BSandbox:
    """An E2B sandbox.

    Args:
        lifecycle: What its client wants.
        host: The sandbox that has its session.
        session: The session; the E2B sandbox takes ownership of it.
        is_fork: Whether the session is a fork of another one.

    Attributes:
        id: Its id.
        token: Token of requests to it.
        is_closed: Whether it has ended.
        is_paused: Whether it is paused.
        started_at: When it was made.
        end_at: When its time is up.
        turn: Held while code runs in the interpreter, or the session is copied.
        pausing: Held while it is being paused or resumed.
        processes: Its processes.
        files: Its files.
        server: The server of its session.
        log: Its log.
    """

    def __init__(self, lifecycle: Lifecycle, host: Host, session: AsyncSession, *, is_fork: bool) -> None:
        self.id = f"i{secrets.token_hex(10)}"
        self.token = secrets.token_hex(32)
        self.lifecycle = lifecycle
        self.host = host
        self.session = session
        self.is_fork = is_fork
        self.is_closed = False
        self.is_paused = False
        self.started_at = self.end_at = datetime.now(UTC)
        self.timer: asyncio.TimerHandle | None = None
        self.turn = asyncio.Lock()
        self.pausing = asyncio.Lock()
        self.server = SessionServer(session.address, session.id)
        self.files = SessionFiles(self.server, is_root=self.is_root)
        self.log = EventLog()
        self.processes = ProcessService(self.server, lifecycle.environment, self.log)
        self.log.write("sandbox started", template=lifecycle.template_id)

    @property
    def is_root(self) -> bool:
        """Whether its programs can be root, or any other user of it."""
        return self.host.config.root

    @property
    def is_lost(self) -> bool:
        """Whether its session has ended, because its host died."""
        return self.session.is_lost

    def close(self) -> None:
        """End the session."""
        self.is_closed = True
        if self.timer is not None:
            self.timer.cancel()
        self.files.close()
        self.session.close()

    def has_token(self, token: str) -> bool:
        """Return whether a token is its own, in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def is_signed(self, signature: str, path: str, operation: str, user: str, expiration: str) -> bool:
        """Return whether a signature, version 1, is that of a URL of one of its files; in constant time.

        Args:
            signature: The signature.
            path: The file.
            operation: ``read`` or ``write``.
            user: The user, empty for the default one.
            expiration: When the signature expires, in seconds since the epoch; empty if never.
        """
        text = f"{path}:{operation}:{user}:{self.token}" + (f":{expiration}" if expiration else "")
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
        expected = b"v1_" + base64.b64encode(digest).rstrip(b"=")
        return hmac.compare_digest(signature.encode(errors="surrogatepass"), expected)

    def set_end(self, seconds: float) -> None:
        """Set when its time is up, from now."""
        self.end_at = datetime.now(UTC) + timedelta(seconds=seconds)

    @property
    def credentials(self) -> dict[str, Any]:
        """What a client needs to connect to it."""
        return {
            "templateID": self.lifecycle.template_id,
            "sandboxID": self.id,
            "clientID": "coding-gym",
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self.token,
            "domain": None,
        }

    @property
    def info(self) -> dict[str, Any]:
        """What lists of sandboxes say of it."""
        return {
            "templateID": self.lifecycle.template_id,
            "alias": self.lifecycle.template_id,
            "sandboxID": self.id,
            "clientID": "coding-gym",
            "startedAt": timestamp(self.started_at),
            "endAt": timestamp(self.end_at),
            **size_of(self.host.config),
            "state": "paused" if self.is_paused else "running",
            "metadata": dict(self.lifecycle.metadata),
        }


def size_of(config: SandboxConfig) -> dict[str, Any]:
    """Return the resources of a sandbox, as lists of sandboxes and of templates have them."""
    return {
        "envdVersion": ENVD_VERSION,
        "cpuCount": max(1, round(config.cpu)),
        "memoryMB": parse_size(config.mem) // _MEBIBYTE,
        "diskSizeMB": parse_size(config.disk) // _MEBIBYTE,
    }
