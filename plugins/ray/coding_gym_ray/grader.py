"""``RayGrader``: grading on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from coding_gym.plugins import check_count
from coding_gym.sandbox.config import SandboxConfig, SandboxKwargs
from coding_gym.tasks import Grader, GradingLimits
from coding_gym_ray.pool import RayPool, own_pool

__all__ = ["RayGrader"]

_MAX_WORKERS = 256


class RayGrader(Grader):
    """``Grader`` on the nodes of a Ray cluster; see ``RayPool``. Submissions of a node that is lost are graded again elsewhere.

    Args:
        pool: Source of the sandboxes; if None, the grader makes one.
        address: Address of the cluster; see ``RayPool``.
        places: Maximum number of concurrent submissions on a node; see ``RayPool``.
        config: Configuration of the sandboxes, a ``SandboxConfig`` or a mapping of its fields.
        workers: Number of submissions graded in parallel; one for each place, at most 256, if None.
        retries: Maximum number of retries of a submission after an infrastructure error.
        limits: See ``Grader``.
        cache: See ``Grader``.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``.

    Raises:
        ConfigurationError: If an option is invalid, or no node has sandboxes.
    """

    def __init__(
        self,
        *,
        pool: RayPool | None = None,
        address: str | None = None,
        places: int | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        workers: int | None = None,
        retries: int = 2,
        limits: GradingLimits | None = None,
        cache: int = 0,
        **sandbox_options: Unpack[SandboxKwargs],
    ) -> None:
        if workers is not None:
            check_count("workers", workers, 1)
        own = own_pool(pool, address=address, places=places, config=config, sandbox_options=sandbox_options)
        try:
            chosen = pool or own
            assert chosen is not None
            workers = workers or min(chosen.capacity, _MAX_WORKERS)
            super().__init__(pool=chosen, workers=workers, retries=retries, limits=limits, cache=cache)
        except BaseException:
            if own is not None:
                own.close()
            raise
        self._owns_pool = own is not None
