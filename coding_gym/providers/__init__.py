"""What starts, watches and removes sandboxes.

``start_sandbox`` is the way in; one module per provider does the work, imported when it is needed.
"""

from __future__ import annotations

from coding_gym.providers.base import Sandbox
from coding_gym.providers.choice import start_sandbox
from coding_gym.providers.slot import SandboxSlot

__all__ = ["Sandbox", "SandboxSlot", "start_sandbox"]
