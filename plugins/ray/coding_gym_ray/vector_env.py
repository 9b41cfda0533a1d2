"""``RayVectorEnv``: concurrent sessions on the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Unpack

from gymnasium.vector import AutoresetMode

from coding_gym.envs.episode import Info, Obs, StepResult
from coding_gym.envs.options import CodingEnvKwargs, split_options
from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.errors import CodingGymError, PoolTimeoutError
from coding_gym.sandbox import ManagedSandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_ray.pool import RayPool, own_pool

__all__ = ["RayVectorEnv"]

_CONNECT_SECONDS = 5.0


class RayVectorEnv(CodingVectorEnv):
    """``CodingVectorEnv`` on the nodes of a Ray cluster; see ``RayPool``.

    It differs only after a loss: an environment whose node, host or sandbox is lost ends its episode with ``truncated=True``,
    the outcome ``infrastructure`` and ``info["lost"]``, and each further step of it, too, until there is a place elsewhere. The
    others never wait for it. ``reset`` waits for places, at most as long as ``acquire`` of the pool.

    Args:
        num_envs: Number of environments.
        max_episode_steps: Number of steps after which an episode is truncated; None for no limit.
        autoreset_mode: When an episode that has ended is reset: see ``gymnasium.vector.AutoresetMode``.
        pool: Pool to lease the places from; if None, the environment makes one.
        address: Address of the cluster; see ``RayPool``.
        places: Maximum number of concurrent sessions of a node; see ``RayPool``.
        config: The sandboxes, as a ``SandboxConfig`` or a mapping of its fields.
        options: Fields of ``EnvOptions`` and, instead of ``config`` and ``pool``, of ``SandboxConfig``.

    Raises:
        ConfigurationError: If an option is invalid, or there are fewer places than environments.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        pool: RayPool | None = None,
        address: str | None = None,
        places: int | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        own, sandbox_options = split_options(options, type(self), CodingVectorEnv)
        backend = {"backend": own["backend"]} if own.get("backend") and config is None else {}
        pool_options = {**backend, **sandbox_options} if pool is None else {}
        made = own_pool(pool, address=address, places=places, config=config, sandbox_options=pool_options)
        if made is not None:
            config, sandbox_options = None, {}
        self._placements: dict[int, Future[bool]] = {}
        try:
            super().__init__(
                num_envs,
                max_episode_steps=max_episode_steps,
                autoreset_mode=autoreset_mode,
                pool=pool or made,
                config=config,
                **own,
                **sandbox_options,
            )
        except BaseException:
            if made is not None:
                made.close()
            raise
        self._own_pool = made

    @property
    def pool(self) -> RayPool:
        """The pool that the places are leased from."""
        assert isinstance(self._pool, RayPool)
        return self._pool

    def _to_reset_first(self) -> list[int]:
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            # Those that could not be reset in the step in which they were lost.
            return [index for index, env in enumerate(self._coding_envs) if env.has_failed]
        return super()._to_reset_first()

    def _has_sandbox(self, index: int) -> bool:
        if not self._coding_envs[index].has_failed:
            return True
        placement = self._placements.get(index)
        if placement is not None and placement.done() and placement.result():
            return True
        self._start_early(index)
        return False

    def _start_early(self, index: int) -> None:
        placement = self._placements.get(index)
        if placement is None or (placement.done() and not placement.result()):
            self._placements[index] = self._threads.submit(_place, self._slot_of(index))

    def _reset_envs(
        self, indices: list[int], seeds: list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> dict[int, tuple[Obs, Info]]:
        for index in indices:
            self._placements.pop(index, None)
        return super()._reset_envs(indices, seeds, options)

    def _replace_lost_sandbox(self, index: int, result: StepResult) -> None:
        # The next reset waits for a place, in the thread of its environment.
        pass

    def _reset_one(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> StepResult:
        try:
            return super()._reset_one(index, seed, options)
        except PoolTimeoutError:
            return self._coding_envs[index].lost_step()


def _place(slot: ManagedSandbox) -> bool:
    """Lease a place if one is free, and connect to it; return whether it answers."""
    try:
        sandbox = slot.obtain_free()
    except CodingGymError:
        return False
    if sandbox is None:
        return False
    try:
        sandbox.connect(timeout=_CONNECT_SECONDS).close()
    except CodingGymError:
        slot.give_up(sandbox)
        return False
    return True
