"""``CodingVectorEnv``: concurrent sessions in several sandboxes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, cast

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from coding_gym._validation import check_count, check_names, check_one_of
from coding_gym.envs.answers import Answers
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.env_threads import EnvThreads
from coding_gym.envs.episode import Info, Obs, StepResult
from coding_gym.envs.exclusive_use import ExclusiveUse
from coding_gym.envs.first_come import FirstComeVectorEnv, VectorStep, after_same_step
from coding_gym.envs.options import CodingEnvKwargs, EnvOptions, split_options
from coding_gym.envs.snapshot import Snapshot
from coding_gym.errors import ConfigurationError, InvalidActionError
from coding_gym.media.frames import black_frames, is_shared_black
from coding_gym.sandbox import ManagedSandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config
from coding_gym.telemetry import Group

__all__ = ["CodingVectorEnv"]

_MAX_THREADS = 32


class CodingVectorEnv(FirstComeVectorEnv, SyncVectorEnv):
    """The vector form of ``CodingEnv-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    ``send`` and ``recv`` step its environments first come, first served: none waits for the slowest.

    The sandboxes start, in parallel, at the first ``reset``. When one of them dies, the episodes in it end with
    ``truncated=True`` and ``info["outcome"] == "infrastructure"``; the others continue while it is replaced.

    Args:
        num_envs: Number of environments.
        max_episode_steps: Number of steps after which an episode is truncated; None for no limit.
        autoreset_mode: When an episode that has ended is reset: see ``gymnasium.vector.AutoresetMode``.
        sessions_per_sandbox: Number of environments that share a sandbox, one session each; with a pool, it is the pool's
            ``sessions``.
        pool: Pool to lease the sandboxes from; if None, the environment starts its own, or makes a pool of ``base_urls``.
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
        if not isinstance(autoreset_mode, AutoresetMode):
            check_one_of("autoreset_mode", autoreset_mode, [mode.value for mode in AutoresetMode])
        if max_episode_steps is not None:
            check_count("max_episode_steps", max_episode_steps, 1)
        own, sandbox_options = split_options(options, type(self), CodingVectorEnv)
        EnvOptions(**own).check_without_window()
        config = resolve_config(pool, config, sandbox_options, backend=own.get("backend"))
        self._own_pool: SandboxPool | None = None
        if pool is None and config.base_urls:
            pool = self._own_pool = SandboxPool(config=config)
        if pool is not None and num_envs * self._sessions_per_env > (slots := pool.capacity):
            message = f"num_envs={num_envs} exceeds the {slots} {pool.capacity_source}"
            if self._sessions_per_env > 1:
                message += f": each environment takes {self._sessions_per_env}"
            if self._own_pool is not None:
                self._own_pool.close()
            raise ConfigurationError(message)
        if pool is None:
            sessions = max(config.sessions, min(num_envs, sessions_per_sandbox))
            config = replace(config, sessions=sessions * self._sessions_per_env)
        self._pool = pool
        # With a pool, each environment leases one slot; otherwise a sandbox is shared by several.
        self._envs_per_slot = sessions_per_sandbox if pool is None else 1
        self._slots = [managed_sandbox(pool, config) for _ in range(-(-num_envs // self._envs_per_slot))]
        self._threads = ThreadPoolExecutor(min(len(self._slots), _MAX_THREADS), thread_name_prefix="coding_gym")
        self._exclusive_use, self._receiving = ExclusiveUse(), ExclusiveUse()
        self._answers = Answers()
        self._env_threads = EnvThreads(self._answers)
        self._max_episode_steps = max_episode_steps
        self._elapsed = [0] * num_envs
        self._group = Group(num_envs)
        super().__init__(
            [self._maker(index, {**own, "config": config}) for index in range(num_envs)],
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
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.AlreadyPendingCallError: If environments are pending after ``send`` or ``async_reset``.
            gymnasium.error.ClosedEnvironmentError: If it is closed.
        """
        with self._only_call("reset"):
            return self._reset(seed, options)

    def _reset(self, seed: int | list[int | None] | None, options: dict[str, Any] | None) -> tuple[Obs, Info]:
        chosen, seeds, options = self._reset_arguments(seed, options)
        self._terminations[chosen] = self._truncations[chosen] = self._autoreset_envs[chosen] = False
        self._start_sandboxes()
        results = self._reset_envs(chosen, [seeds[index] for index in chosen], options)
        infos: Info = {}
        for index, (obs, info) in results.items():
            self._latest[index] = obs
            infos = self._add_info(infos, info, index)
        return self._batch(self._latest), infos

    def step(self, actions: Any) -> VectorStep:
        """Run one action in each environment.

        Args:
            actions: A sequence of ``num_envs`` strings.

        Raises:
            InvalidActionError: If one of them is not in the action space; nothing is run.
            ConcurrentUseError: If another thread is in a call of this environment.
            gymnasium.error.AlreadyPendingCallError: If environments are pending after ``send`` or ``async_reset``.
            gymnasium.error.ClosedEnvironmentError: If it is closed.
        """
        with self._only_call("step"):
            return self._step(actions)

    def _step(self, actions: Any) -> VectorStep:
        chosen = self._split(actions, self.num_envs)
        resetting = [index for index in self._to_reset_first() if self._has_sandbox(index)]
        if self.autoreset_mode is AutoresetMode.DISABLED:
            assert not self._autoreset_envs.any(), f"{self._autoreset_envs=}"
        stepping = [index for index in range(self.num_envs) if index not in resetting]
        for index in stepping:
            self._coding_envs[index].check_action(chosen[index])

        with self._batch_requests():
            for index in stepping:
                self._coding_envs[index].begin_step(chosen[index])
        fresh = self._reset_envs(resetting)
        stepped = self._finish_steps(stepping)
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            ended = [index for index, (_, _, terminated, truncated, _) in stepped.items() if terminated or truncated]
            for index, (obs, info) in self._reset_envs([index for index in ended if self._has_sandbox(index)]).items():
                stepped[index] = after_same_step(stepped[index], obs, info)
        stepped.update((index, (obs, 0.0, False, False, info)) for index, (obs, info) in fresh.items())
        return self._record(dict(sorted(stepped.items())))

    def clone_states(self, mask: NDArray[np.bool_] | None = None, *, replay: bool | None = None) -> list[Snapshot | None]:
        """Return a snapshot of each environment, or of those that ``mask`` marks, None for the others.

        Args:
            mask: A bool array of shape (num_envs,) with at least one True; None for all environments.
            replay: See ``CodingEnv.clone_state``.

        Raises:
            SnapshotError: If an environment cannot be copied; the snapshots of the others are released.
            gymnasium.error.ResetNeeded: If ``reset`` was not called before.
        """
        snapshots: list[Snapshot | None] = [None] * self.num_envs
        try:
            with self._only_call("clone_states"):
                chosen = np.flatnonzero(self._mask(mask, "mask")).tolist()
                for index in chosen:
                    snapshots[index] = self._coding_envs[index].clone_state(replay=replay)
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
        with self._only_call("restore_states"):
            for index, (snapshot, seed) in enumerate(zip(snapshots, self._seeds(seeds), strict=True)):
                if snapshot is not None:
                    obs, info = self._coding_envs[index].restore_state(snapshot, seed=seed, replay=replay)
                    self._latest[index] = obs
                    self._elapsed[index] = snapshot.step_count
                    self._terminations[index] = self._truncations[index] = self._autoreset_envs[index] = False
                    infos = self._add_info(infos, info, index)
            return self._batch(self._latest), infos

    def broadcast(self, snapshot: Snapshot, *, seeds: int | list[int | None] | None = None) -> tuple[Obs, Info]:
        """Let all environments go on from one snapshot, as a group of rollouts from one prefix does.

        Args:
            snapshot: A snapshot of any of them, or of another environment in the same sandbox.
            seeds: As for ``reset``. By default, the random number generators of all of them go on from the same state.

        Raises:
            SnapshotError: If it cannot be restored, for example in an environment of another sandbox.
        """
        return self.restore_states([snapshot] * self.num_envs, seeds=self._seeds(seeds))

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or get an attribute.

        Raises:
            gymnasium.error.AlreadyPendingCallError: If environments are pending after ``send`` or ``async_reset``.
        """
        self._answers.check_none_pending("call")
        return super().call(name, *args, **kwargs)

    def close_extras(self, **kwargs: Any) -> None:
        """End all sessions, also those of pending environments, and remove all sandboxes."""
        if hasattr(self, "_env_threads"):
            self._answers.close()
            self._env_threads.close(lambda index: self._coding_envs[index].abort())
        for env in getattr(self, "envs", ()):
            env.close()
        if hasattr(self, "_threads"):
            list(self._threads.map(lambda slot: slot.close(), self._slots))
            self._threads.shutdown()
        own_pool: SandboxPool | None = getattr(self, "_own_pool", None)
        if own_pool is not None:
            own_pool.close()

    def _make_env(self, **settings: Any) -> CodingEnv:
        return CodingEnv(**settings)

    def _maker(self, index: int, settings: dict[str, Any]) -> Callable[[], CodingEnv]:
        def make() -> CodingEnv:
            env = self._make_env(**settings)
            env.use_slot(self._slot_of(index))
            env.place(self._group, index)
            env.share_black_screenshots()
            return env

        return make

    def _check_reset(self, indices: list[int], options: dict[str, Any]) -> None:
        check_names(options, (*self._coding_envs[0].reset_options, "reset_mask"), "reset option")
        # The options are the same for all, and may contain large files.
        self._coding_envs[indices[0]].check_reset(options)

    def _check_step(self, index: int, action: Any) -> None:
        self._coding_envs[index].check_action(action)

    def _launch_step(self, index: int, action: Any) -> None:
        self._env_threads.submit(index, partial(self._step_one, index, action), self._replace_lost_sandbox)

    def _launch_reset(self, index: int, seed: int | None, options: dict[str, Any] | None) -> None:
        self._env_threads.submit(index, partial(self._reset_one, index, seed, options), self._replace_lost_sandbox)

    def _step_one(self, index: int, action: Any) -> StepResult:
        result = self._limited(index, self._coding_envs[index].step(action))
        if self.autoreset_mode is AutoresetMode.SAME_STEP and (result[2] or result[3]):
            obs, *_, info = self._reset_one(index)
            return after_same_step(result, obs, info)
        return result

    def _reset_one(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> StepResult:
        self._elapsed[index] = 0
        obs, info = self._coding_envs[index].reset(seed=seed, options=options)
        return obs, 0.0, False, False, info

    def _replace_lost_sandbox(self, index: int, result: StepResult) -> None:
        if result[-1]["outcome"] == "infrastructure":
            _try_to_start(self._slot_of(index))

    def _to_reset_first(self) -> list[int]:
        """Return the environments that the next step resets, instead of running an action."""
        is_due = self.autoreset_mode is AutoresetMode.NEXT_STEP
        return np.flatnonzero(self._autoreset_envs).tolist() if is_due else []

    def _has_sandbox(self, index: int) -> bool:
        """Return whether an environment can be reset; if not, because its sandbox is lost, it remains truncated."""
        return True

    def _slot_of(self, index: int) -> ManagedSandbox:
        return self._slots[index // self._envs_per_slot]

    def _start_sandboxes(self) -> None:
        """Start those that have not been started, or have died since, in parallel."""
        lost = {self._slot_of(index) for index, env in enumerate(self._coding_envs) if env.has_lost_session}
        missing = {slot for slot in self._slots if slot.sandbox is None or slot in lost}
        for index, env in enumerate(self._coding_envs):
            if self._slot_of(index) in missing:
                env.reporter.waiting()
        list(self._threads.map(lambda slot: slot.start(), missing))

    def _start_early(self, index: int) -> None:
        self._threads.submit(_try_to_start, self._slot_of(index))

    def _reset_envs(
        self, indices: list[int], seeds: list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> dict[int, tuple[Obs, Info]]:
        """Reset some environments concurrently."""
        with self._batch_requests():
            for index, seed in zip(indices, seeds or [None] * len(indices), strict=True):
                self._elapsed[index] = 0
                self._coding_envs[index].begin_reset(seed=seed, options=options)
        return {index: self._coding_envs[index].finish_reset() for index in indices}

    def _batch_requests(self) -> contextlib.ExitStack:
        """Send the requests of the block together, to each sandbox."""
        with contextlib.ExitStack() as stack:
            for sandbox in {slot.sandbox for slot in self._slots}:
                if sandbox is not None:
                    stack.enter_context(sandbox.batch())
            return stack.pop_all()

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
        result = self._coding_envs[index].finish_step()
        if result[-1]["outcome"] == "infrastructure":
            # Start the new sandbox early: it may be ready when its environments are reset.
            self._start_early(index)
        return self._limited(index, result)

    def _limited(self, index: int, result: StepResult) -> StepResult:
        """Count a step, and truncate the episode after the last one."""
        self._elapsed[index] += 1
        if self._max_episode_steps is None or self._elapsed[index] < self._max_episode_steps:
            return result
        obs, reward, terminated, _, info = result
        self._coding_envs[index].reporter.truncated()
        return obs, reward, terminated, True, info

    def _batch(self, observations: list[Obs]) -> Obs:
        batch: Obs = {
            "stdout": tuple(obs["stdout"] for obs in observations),
            "stderr": tuple(obs["stderr"] for obs in observations),
            "exit_code": np.array([obs["exit_code"] for obs in observations], np.int64),
        }
        if "screenshot" in observations[0]:
            frames = [obs["screenshot"] for obs in observations]
            batch["screenshot"] = black_frames(len(frames), *frames[0].shape[:2])
            for row, frame in enumerate(frames):
                if not is_shared_black(frame):
                    batch["screenshot"][row] = frame
        return batch


def _try_to_start(slot: ManagedSandbox) -> None:
    # A failure recurs at the next reset, which raises it. The thread goes on.
    with contextlib.suppress(Exception):
        slot.start()
