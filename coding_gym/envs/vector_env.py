"""``CodingVectorEnv``: concurrent sessions in several sandboxes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Unpack, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from coding_gym._validation import check_count
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.episode import Info, Obs, StepResult, own_screenshot
from coding_gym.envs.options import CodingEnvKwargs, split_options
from coding_gym.envs.snapshot import Snapshot
from coding_gym.errors import CodingGymError, ConfigurationError, InvalidActionError
from coding_gym.media.frames import black_frames, is_shared_black
from coding_gym.sandbox import ManagedSandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config

__all__ = ["CodingVectorEnv"]

_MAX_THREADS = 32

VectorStep = tuple[Obs, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]


class CodingVectorEnv(SyncVectorEnv):
    """The vector form of ``CodingEnv-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    The sandboxes start, in parallel, at the first ``reset``. When one of them dies, the episodes in it end with
    ``truncated=True`` and ``info["outcome"] == "infrastructure"``; the others continue while it is replaced.

    Args:
        num_envs: Number of environments.
        max_episode_steps: Number of steps after which an episode is truncated; None for no limit.
        autoreset_mode: When an episode that has ended is reset: see ``gymnasium.vector.AutoresetMode``.
        sessions_per_sandbox: Number of environments that share a sandbox, one session each; with a pool, it is the pool's
            ``sessions``.
        pool: Pool to lease the sandboxes from; the environment starts its own if None.
        config: The sandboxes, as a ``SandboxConfig`` or a mapping of its fields.
        options: Fields of ``EnvOptions`` and, instead of ``config`` and ``pool``, of ``SandboxConfig``.

    Raises:
        ConfigurationError: If an option is invalid.
    """

    _sessions_per_env = 1
    """Number of concurrent sessions of an environment."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        sessions_per_sandbox: int = 8,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        check_count("num_envs", num_envs, 1)
        check_count("sessions_per_sandbox", sessions_per_sandbox, 1)
        if max_episode_steps is not None:
            check_count("max_episode_steps", max_episode_steps, 1)
        own, sandbox_options = split_options(options)
        config = resolve_config(pool, config, sandbox_options, backend=own.get("backend"))
        if pool is not None and num_envs > (slots := pool.size * pool.config.sessions):
            message = (
                f"num_envs={num_envs} exceeds the {slots} slots of the pool: "
                f"it has size={pool.size} sandboxes of sessions={pool.config.sessions} each"
            )
            raise ConfigurationError(message)
        if pool is None:
            sessions = max(config.sessions, min(num_envs, sessions_per_sandbox))
            config = replace(config, sessions=sessions * self._sessions_per_env)
        # With a pool, each environment leases one slot; otherwise a sandbox is shared by several.
        self._envs_per_slot = sessions_per_sandbox if pool is None else 1
        self._slots = [managed_sandbox(pool, config) for _ in range(-(-num_envs // self._envs_per_slot))]
        self._threads = ThreadPoolExecutor(min(len(self._slots), _MAX_THREADS), thread_name_prefix="coding_gym")
        self._max_episode_steps = max_episode_steps
        self._elapsed = [0] * num_envs
        super().__init__(
            [self._maker(self._slots[index // self._envs_per_slot], {**own, "config": config}) for index in range(num_envs)],
            autoreset_mode=autoreset_mode,
        )
        self._coding_envs = cast(list[CodingEnv], self.envs)
        self._latest: list[Obs] = [{} for _ in range(num_envs)]

    def reset(self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        """Reset all environments, or those that ``options["reset_mask"]`` marks.

        Args:
            seed: One seed per environment, or the seed of the first, from which the others count up.
            options: As for ``CodingEnv.reset``, plus ``reset_mask``: a bool array of shape (num_envs,).

        Raises:
            ConfigurationError: If a sandbox cannot fulfill an option, or an option is invalid.
            ProviderError: If no sandbox is available.
        """
        self._check_open()
        seeds = self._seeds(seed)
        options = dict(options or {})
        mask = self._mask(options.pop("reset_mask", None), "options['reset_mask']")
        self._terminations[mask] = self._truncations[mask] = self._autoreset_envs[mask] = False
        chosen = np.flatnonzero(mask).tolist()
        self._start_sandboxes()
        results = self._reset_envs(chosen, [seeds[index] for index in chosen], options)
        infos: Info = {}
        for index, (obs, info) in results.items():
            self._latest[index] = obs
            infos = self._add_info(infos, info, index)
        return self._batch(), infos

    def step(self, actions: Any) -> VectorStep:
        """Run one action in each environment.

        Args:
            actions: A sequence of ``num_envs`` strings.

        Raises:
            InvalidActionError: If one of them is not in the action space; nothing is run.
        """
        self._check_open()
        if isinstance(actions, str):
            message = f"Expected {self.num_envs} actions, one for each environment, got a single string"
            raise InvalidActionError(message)
        chosen = list(iterate(self.action_space, actions))
        if len(chosen) != self.num_envs:
            message = f"Expected {self.num_envs} actions, one for each environment, got {len(chosen)}"
            raise InvalidActionError(message)
        resetting = self._autoreset_envs if self.autoreset_mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, bool)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            assert not self._autoreset_envs.any(), f"{self._autoreset_envs=}"
        stepping = [index for index in range(self.num_envs) if not resetting[index]]
        for index in stepping:
            self._coding_envs[index].check_action(chosen[index])

        for index in stepping:
            self._coding_envs[index].begin_step(chosen[index])
        fresh = self._reset_envs(np.flatnonzero(resetting).tolist())
        stepped = self._finish_steps(stepping)
        final: list[int] = []
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            final = [index for index, (_, _, terminated, truncated, _) in stepped.items() if terminated or truncated]
            fresh = self._reset_envs(final)

        infos: Info = {}
        for index in range(self.num_envs):
            if index in stepped:
                obs, reward, terminated, truncated, info = stepped[index]
                if index in final:
                    infos = self._add_info(infos, {"final_obs": own_screenshot(obs), "final_info": info}, index)
                    obs, info = fresh[index]
            else:
                (obs, info), reward, terminated, truncated = fresh[index], 0.0, False, False
            self._latest[index] = obs
            self._rewards[index], self._terminations[index], self._truncations[index] = reward, terminated, truncated
            infos = self._add_info(infos, info, index)
        self._autoreset_envs = np.logical_or(self._terminations, self._truncations)
        return self._batch(), self._rewards.copy(), self._terminations.copy(), self._truncations.copy(), infos

    def clone_states(self, mask: NDArray[np.bool_] | None = None) -> list[Snapshot | None]:
        """Return a snapshot of each environment, or of those that ``mask`` marks, None for the others.

        Args:
            mask: A bool array of shape (num_envs,) with at least one True; None for all environments.

        Raises:
            SnapshotError: If an environment cannot be copied; the snapshots of the others are released.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
        """
        self._check_open()
        snapshots: list[Snapshot | None] = [None] * self.num_envs
        try:
            for index in np.flatnonzero(self._mask(mask, "mask")).tolist():
                snapshots[index] = self._coding_envs[index].clone_state()
        except BaseException:
            for snapshot in snapshots:
                if snapshot is not None:
                    snapshot.release()
            raise
        return snapshots

    def restore_states(
        self, snapshots: Sequence[Snapshot | None], *, seeds: list[int | None] | None = None, replay: bool = False
    ) -> tuple[Obs, Info]:
        """Let environments go on from snapshots; those with None go on as they are.

        Args:
            snapshots: A snapshot or None for each environment.
            seeds: A seed or None for each environment; see ``CodingEnv.restore_state``.
            replay: See ``CodingEnv.restore_state``.

        Raises:
            ConfigurationError: If the number of snapshots or seeds is not that of the environments.
            SnapshotError: If one of them cannot be restored. Environments before it have been restored.
        """
        self._check_open()
        if len(snapshots) != self.num_envs:
            message = f"Expected {self.num_envs} snapshots or None, one for each environment, got {len(snapshots)}"
            raise ConfigurationError(message)
        infos: Info = {}
        for index, (snapshot, seed) in enumerate(zip(snapshots, self._seeds(seeds), strict=True)):
            if snapshot is not None:
                obs, info = self._coding_envs[index].restore_state(snapshot, seed=seed, replay=replay)
                self._latest[index] = obs
                self._elapsed[index] = snapshot.step_count
                self._terminations[index] = self._truncations[index] = self._autoreset_envs[index] = False
                infos = self._add_info(infos, info, index)
        return self._batch(), infos

    def close_extras(self, **kwargs: Any) -> None:
        """End all sessions and remove all sandboxes."""
        for env in getattr(self, "envs", ()):
            env.close()
        if hasattr(self, "_threads"):
            list(self._threads.map(lambda slot: slot.close(), self._slots))
            self._threads.shutdown()

    def _make_env(self, **settings: Any) -> CodingEnv:
        return CodingEnv(**settings)

    def _maker(self, slot: ManagedSandbox, settings: dict[str, Any]) -> Callable[[], CodingEnv]:
        def make() -> CodingEnv:
            env = self._make_env(**settings)
            env.use_slot(slot)
            return env

        return make

    def _check_open(self) -> None:
        if self.closed:
            message = "The environment is closed. Make a new one."
            raise gym.error.ClosedEnvironmentError(message)

    def _start_sandboxes(self) -> None:
        missing = [slot for slot in self._slots if slot.sandbox is None]
        list(self._threads.map(lambda slot: slot.start(), missing))

    def _reset_envs(
        self, indices: list[int], seeds: list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> dict[int, tuple[Obs, Info]]:
        """Reset some environments concurrently."""
        for index, seed in zip(indices, seeds or [None] * len(indices), strict=True):
            self._elapsed[index] = 0
            self._coding_envs[index].begin_reset(seed=seed, options=options)
        return {index: self._coding_envs[index].finish_reset() for index in indices}

    def _finish_steps(self, indices: list[int]) -> dict[int, StepResult]:
        """Finish the steps of some environments: all of them, even if a server refuses one, as their responses are pending."""
        results: dict[int, StepResult] = {}
        refused: InvalidActionError | None = None
        for index in indices:
            try:
                results[index] = self._finish_step(index)
            except InvalidActionError as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return results

    def _finish_step(self, index: int) -> StepResult:
        obs, reward, terminated, truncated, info = self._coding_envs[index].finish_step()
        if info["outcome"] == "infrastructure":
            # Start the new sandbox early: it may be ready when its environments are reset.
            self._threads.submit(_try_to_start, self._slots[index // self._envs_per_slot])
        self._elapsed[index] += 1
        if self._max_episode_steps is not None and self._elapsed[index] >= self._max_episode_steps:
            truncated = True
        return obs, reward, terminated, truncated, info

    def _batch(self) -> Obs:
        """Return the batched observations of all environments, which share no memory with them."""
        batch: Obs = {
            "stdout": tuple(obs["stdout"] for obs in self._latest),
            "stderr": tuple(obs["stderr"] for obs in self._latest),
            "exit_code": np.array([obs["exit_code"] for obs in self._latest], np.int64),
        }
        if "screenshot" in self._latest[0]:
            frames = [obs["screenshot"] for obs in self._latest]
            batch["screenshot"] = black_frames(self.num_envs, *frames[0].shape[:2])
            for index, frame in enumerate(frames):
                if not is_shared_black(frame):
                    batch["screenshot"][index] = frame
        return batch

    def _seeds(self, seed: int | list[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, (int, np.integer)):
            return [int(seed) + index for index in range(self.num_envs)]
        if len(seed) != self.num_envs:
            message = f"Expected {self.num_envs} seeds, one for each environment, got {len(seed)}"
            raise ConfigurationError(message)
        return list(seed)

    def _mask(self, mask: Any, name: str) -> NDArray[np.bool_]:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            message = f"Expected {name} to be a numpy array of bool, got {mask!r}"
            raise TypeError(message)
        if mask.shape != (self.num_envs,) or not mask.any():
            message = f"Expected {name} of shape ({self.num_envs},) with at least one True, got {mask!r}"
            raise ConfigurationError(message)
        return mask


def _try_to_start(slot: ManagedSandbox) -> None:
    # A failure recurs at the next reset, which raises it.
    with contextlib.suppress(CodingGymError):
        slot.start()
