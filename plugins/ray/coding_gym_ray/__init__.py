"""Sandboxes on the nodes of a Ray cluster (``pip install "coding-gym[ray]"``)."""

from __future__ import annotations

from coding_gym_ray.grader import RayGrader
from coding_gym_ray.host import SandboxHost
from coding_gym_ray.pool import RayPool
from coding_gym_ray.vector_env import RayVectorEnv

__all__ = ["RayGrader", "RayPool", "RayVectorEnv", "SandboxHost"]
