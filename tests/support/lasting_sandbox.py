"""Sandboxes that several tests share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig

__all__ = ["lasting_sandbox"]


@contextlib.contextmanager
def lasting_sandbox(**options: Any) -> Iterator[Sandbox]:
    """Context manager of a sandbox that does not end by itself while tests of others run.

    Args:
        options: Fields of ``SandboxConfig``.
    """
    config = SandboxConfig(**{"preload": (), "idle_timeout": 3600, **options})
    with contextlib.closing(start_sandbox(config)) as sandbox:
        yield sandbox
