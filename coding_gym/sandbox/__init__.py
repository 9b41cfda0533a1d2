"""Sandboxes: configuration, providers and pools.

``start_sandbox`` is the entry point; the module of a provider is imported on first use.
"""

from __future__ import annotations

from coding_gym.sandbox.base import Sandbox
from coding_gym.sandbox.managed import ManagedSandbox
from coding_gym.sandbox.start import start_sandbox

__all__ = ["ManagedSandbox", "Sandbox", "start_sandbox"]
