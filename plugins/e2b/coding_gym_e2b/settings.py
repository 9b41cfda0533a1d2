"""Settings of the gateway."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from coding_gym.sandbox.config import SandboxConfig

__all__ = ["BASE_TEMPLATES", "GatewaySettings"]

BASE_TEMPLATES = ("base", "code-interpreter-v1", "e2bdev/base", "e2bdev/base:latest", "e2bdev/code-interpreter:latest")
"""Templates and images of E2B that stand for the default image."""

_E2B_KEY = re.compile(r"e2b_[0-9a-f]+")


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """Settings of the gateway.

    Attributes:
        config: Configuration of the sandboxes that E2B's sandboxes are sessions of, each of which has ``config.sessions``.
        hosts: Maximum number of such sandboxes at a time, including those for a single E2B sandbox.
        images: Images by template, empty for ``config.image``, which E2B's base templates stand for, too.
        token: Token of the clients, None to admit all.
        root: Whether programs of E2B's sandboxes can be root, for which each has its own sandbox.
    """

    config: SandboxConfig
    hosts: int = 4
    images: Mapping[str, str] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    root: bool = False

    @property
    def root_config(self) -> SandboxConfig:
        """Configuration of a sandbox for a single E2B sandbox whose programs can be root.

        Raises:
            ConfigurationError: If they cannot.
        """
        return dataclasses.replace(self.config, sessions=1, root=True)

    @property
    def api_key(self) -> str:
        """The token in the form of E2B's API keys, which their SDKs require."""
        if self.token is None:
            return f"e2b_{'0' * 40}"
        if _E2B_KEY.fullmatch(self.token):
            return self.token
        return f"e2b_{hashlib.sha256(self.token.encode()).hexdigest()[:40]}"
