"""Environment for Harbor: ``import_path: coding_gym_trainers.harbor:SandboxEnvironment``."""

from __future__ import annotations

try:
    import harbor as _  # noqa: F401
except ImportError as error:
    message = "coding_gym_trainers.harbor requires Harbor, and Python 3.12 or later: pip install 'coding-gym[harbor]'"
    raise ImportError(message) from error

from coding_gym_trainers.harbor.environment import SandboxEnvironment

__all__ = ["SandboxEnvironment"]
