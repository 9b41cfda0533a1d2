"""Runtime and deployment for SWE-ReX."""

from __future__ import annotations

try:
    import swerex as _  # noqa: F401
except ImportError as error:
    message = "coding_gym_trainers.swerex requires SWE-ReX: pip install 'coding-gym[swerex]'"
    raise ImportError(message) from error

from coding_gym_trainers.swerex.deployment import SandboxDeployment
from coding_gym_trainers.swerex.runtime import SandboxRuntime

__all__ = ["SandboxDeployment", "SandboxRuntime"]
