"""``CodingVectorEnv``: concurrent sessions in several sandboxes."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Unpack, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from coding_gym._validation import CLOSED_ENVIRONMENT, check_count, check_mapping, check_names, check_one_of
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.episode import ExclusiveUse, Info, Obs, StepResult
from coding_gym.envs.options import CodingEnvKwargs, EnvOptions, split_options
from coding_gym.envs.snapshot import Snapshot
from coding_gym.errors import ConfigurationError, InvalidActionError, ReceiveTimeoutError
from coding_gym.media.frames import black_frames, is_black
from coding_gym.sandbox import ManagedSandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox, resolve_config
from coding_gym.telemetry import Group
from coding_gym.tracing import in_current_context
from coding_gym.waiting import waiting_for

__all__ = ["CodingVectorEnv", "VectorStep"]

_log = logging.getLogger("coding_gym")

_PATIENCE_SECONDS = 5.0
"""Seconds after which the log says that sandboxes are starting."""

_MAX_THREADS = 32

_LEAST_SESSIONS, _MOST_SESSIONS = 8, 16
"""Environments per sandbox by default: more share too little memory, fewer make more sandboxes that start slowly."""

_CANCEL_SECONDS = 5.0
"""Maximum number of seconds that ``close`` waits for calls in progress."""

_ABORT_SECONDS = 0.05
"""Pause between attempts to abort a call: a reset may open another session afterwards."""

VectorStep = tuple[Obs, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]


class CodingVectorEnv(SyncVectorEnv):
    """The vector form of ``CodingEnv-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    ``send`` and ``async_reset`` request steps and resets, and return at once; ``recv`` returns the answers that have arrived:
    first come, first served, so that no environment waits for the slowest. An environment is pending from the request until its
    answer has been received. Each keeps the order of its own steps, its seeds and its autoreset mode: it answers as it would in
    ``step``. One thread may wait in ``recv`` while another one calls ``send``.

    The sandboxes start, in parallel, at the first ``reset``. When one of them dies, the episodes in it end with
    ``truncated=True`` and ``info["outcome"] == "infrastructure"``; the others continue while it is replaced.

    Args:
        num_envs: Number of environments.
        max_episode_steps: Number of steps after which an episode is truncated; None for no limit.
        autoreset_mode: When an episode that has ended is reset: see ``gymnasium.vector.AutoresetMode``.
        sessions_per_sandbox: Number of environments that share a sandbox, one session each; with a pool, it is the pool's
            ``sessions``. If None, 8 to 16: the fewest with which the sandboxes use all processors of this machine.
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
        sessions_per_sandbox: int | None = None,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        check_count("num_envs", num_envs, 1)
        if sessions_per_sandbox is not None:
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
        if sessions_per_sandbox is None:
            sessions_per_sandbox = _sessions_for(num_envs, config.cpu)
        if pool is None:
            sessions = max(config.sessions, min(num_envs, sessions_per_sandbox))
            config = replace(config, sessions=sessions * self._sessions_per_env)
        self._pool = pool
        # With a pool, each environment leases one slot; otherwise a sandbox is shared by several.
        self._envs_per_slot = sessions_per_sandbox if pool is None else 1
        self._slots = [managed_sandbox(pool, config) for _ in range(-(-num_envs // self._envs_per_slot))]
        self._threads = ThreadPoolExecutor(min(num_envs, _MAX_THREADS), thread_name_prefix="coding_gym")
        self._exclusive_use, self._receiving = ExclusiveUse(), ExclusiveUse()
        self._answers = _Answers()
        self._env_threads = _EnvThreads(self._answers)
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
        if not self._may_change_images(options):
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
                stepped[index] = _after_same_step(stepped[index], obs, info)
        stepped.update((index, (obs, 0.0, False, False, info)) for index, (obs, info) in fresh.items())
        return self._record(dict(sorted(stepped.items())))

    @property
    def pending(self) -> NDArray[np.int64]:
        """Ids of the environments whose answers have not been received yet, in ascending order: int64, shape (n,)."""
        return np.array(self._answers.pending, np.int64)

    def send(self, actions: Any, env_ids: Sequence[int] | NDArray[np.integer[Any]] | None = None) -> None:
        """Request a step of some environments, without waiting for it; ``recv`` returns the results.

        With ``AutoresetMode.NEXT_STEP``, an environment whose episode has ended is reset instead, as in ``step``.

        Args:
            actions: A batch of one action for each of them, in the form of ``step``.
            env_ids: Their ids, 0 to ``num_envs - 1``, in the order of the actions; None for all environments.

        Raises:
            InvalidActionError: If there are more or fewer actions than ids, or one is not in the action space; nothing is run.
            ConfigurationError: If an id does not exist, or occurs twice.
            ConcurrentUseError: If another thread is in a call of this environment other than ``recv``.
            gymnasium.error.AlreadyPendingCallError: If one of the environments is pending.
            gymnasium.error.ResetNeeded: If one of them has not been reset yet, or its episode has ended and the autoreset mode
                is ``DISABLED``.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self._check_open()
        with self._exclusive_use:
            indices = self._indices(env_ids)
            chosen = dict(zip(indices, self._split(actions, len(indices)), strict=True))
            self._answers.check_idle(indices, "send")
            resetting = self._to_reset(indices)
            for index, action in chosen.items():
                if index not in resetting:
                    self._check_step(index, action)
            for index, action in chosen.items():
                with self._expected(index):
                    if index in resetting:
                        self._launch_reset(index, None, None)
                    else:
                        self._launch_step(index, action)

    def recv(self, min_ready: int = 1, timeout: float | None = None) -> VectorStep:
        """Wait for answers, and return all that have arrived: n of them, in ascending order of the environments.

        The answer to a reset has the reward 0 and is neither terminated nor truncated.

        Args:
            min_ready: Minimum number of answers, 1 to the number of pending environments.
            timeout: Timeout in seconds; None for no limit, 0 to return at once.

        Returns:
            Observations, rewards (float64), terminations and truncations (bool), each with the leading dimension n; and infos
            in Gymnasium's vector form with n entries, of which ``env_id`` (int64, shape (n,)) has the environments.

        Raises:
            ReceiveTimeoutError: If fewer answers arrive in time. They are kept for the next call.
            ConfigurationError: If ``min_ready`` exceeds the number of pending environments, or an argument is invalid.
            ConcurrentUseError: If another thread is in ``recv``.
            gymnasium.error.NoAsyncCallError: If no environment is pending.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed, also while ``recv`` waits.
            CodingGymError: The error of one environment that could not be stepped or reset, with a note that names it. It is no
                longer pending, and the answers of the others are kept for the next call.
        """
        self._check_open()
        check_count("min_ready", min_ready, 1)
        seconds: Any = timeout
        if seconds is not None and not (isinstance(seconds, (int, float)) and seconds >= 0):
            message = f"Expected timeout= to be a number of seconds of at least 0, or None, got {timeout!r}"
            raise ConfigurationError(message)
        with self._receiving:
            results = self._answers.wait(min_ready, timeout)
            observations, rewards, terminations, truncations, infos = self._record(results)
            self._answers.remove(list(results))
        infos = _first_rows(infos, len(results))
        infos["env_id"], infos["_env_id"] = np.array(list(results), np.int64), np.ones(len(results), np.bool_)
        return observations, rewards, terminations, truncations, infos

    def async_reset(self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None) -> None:
        """Request a reset of all environments, without waiting for it; ``recv`` returns the first observations.

        Args:
            seed: As for ``reset``.
            options: As for ``reset``. With ``reset_mask``, environments that it does not mark may be pending.

        Raises:
            ConfigurationError: If an option is invalid.
            ConcurrentUseError: If another thread is in a call of this environment other than ``recv``.
            gymnasium.error.AlreadyPendingCallError: If one of the environments is pending.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
        """
        self._check_open()
        with self._exclusive_use:
            indices, seeds, options = self._reset_arguments(seed, options)
            self._answers.check_idle(indices, "async_reset")
            for index in indices:
                with self._expected(index):
                    self._launch_reset(index, seeds[index], options)

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
        """Let environments continue from snapshots; those with None continue as they are.

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
        """Let all environments continue from one snapshot, as a group of rollouts from one prefix does.

        Args:
            snapshot: A snapshot of any of them, or of another environment in the same sandbox.
            seeds: As for ``reset``. By default, the random number generators of all of them continue from the same state.

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

    def _check_open(self) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError(CLOSED_ENVIRONMENT)

    @contextlib.contextmanager
    def _only_call(self, name: str) -> Iterator[None]:
        """Raise if the environment is closed, in another call, or has pending environments."""
        self._check_open()
        with self._exclusive_use:
            self._answers.check_none_pending(name)
            yield

    @contextlib.contextmanager
    def _expected(self, index: int) -> Iterator[None]:
        """Expect an answer, unless its request is interrupted, as by Ctrl-C: ``recv`` would wait for it forever."""
        try:
            self._answers.expect(index)
            yield
        except BaseException:
            self._answers.withdraw(index)
            raise

    def _reset_arguments(
        self, seed: int | list[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[list[int], list[int | None], dict[str, Any]]:
        """Check the arguments of a reset; return the environments to reset, the seeds of all, and the options of each."""
        seeds = self._seeds(seed)
        check_mapping("options", options)
        options = dict(options or {})
        chosen: list[int] = np.flatnonzero(self._mask(options.pop("reset_mask", None), "options['reset_mask']")).tolist()
        self._check_reset(chosen, options)
        return chosen, seeds, options

    def _split(self, actions: Any, count: int) -> list[Any]:
        """Return the single actions of a batch.

        Raises:
            InvalidActionError: If there are not ``count`` of them.
        """
        if isinstance(actions, str):
            message = f"Expected {count} actions, one for each environment, got a single string"
            raise InvalidActionError(message)
        chosen = list(iterate(self.action_space, actions))
        if len(chosen) != count:
            message = f"Expected {count} actions, one for each environment, got {len(chosen)}"
            raise InvalidActionError(message)
        return chosen

    def _record(self, results: Mapping[int, StepResult]) -> VectorStep:
        """Record results as the latest of their environments, and return their batch; the infos have ``num_envs`` rows."""
        infos: Info = {}
        for row, (index, (obs, reward, terminated, truncated, info)) in enumerate(results.items()):
            self._latest[index] = obs
            self._rewards[index], self._terminations[index], self._truncations[index] = reward, terminated, truncated
            self._autoreset_envs[index] = terminated or truncated
            infos = self._add_info(infos, info, row)
        rows = list(results)
        batch = self._batch([self._latest[index] for index in rows])
        return batch, self._rewards[rows], self._terminations[rows], self._truncations[rows], infos

    def _indices(self, env_ids: Sequence[int] | NDArray[np.integer[Any]] | None) -> list[int]:
        if env_ids is None:
            return list(range(self.num_envs))
        ids = env_ids.tolist() if isinstance(env_ids, np.ndarray) else env_ids
        found = list(ids) if isinstance(ids, Sequence) else []
        indices = [int(index) for index in found if isinstance(index, (int, np.integer)) and not isinstance(index, bool)]
        is_known = all(0 <= index < self.num_envs for index in indices)
        if not indices or not is_known or len(set(indices)) != len(found):
            message = f"Expected env_ids= to be different ids of 0 to {self.num_envs - 1}, at least one, got {env_ids!r:.200}"
            raise ConfigurationError(message)
        return indices

    def _to_reset(self, indices: list[int]) -> set[int]:
        """Return which environments the next step resets.

        Raises:
            gymnasium.error.ResetNeeded: If episodes have ended, and the autoreset mode is ``DISABLED``.
        """
        ended = {index for index in indices if self._autoreset_envs[index]}
        if ended and self.autoreset_mode is AutoresetMode.DISABLED:
            message = (
                f"The episodes of the environments {', '.join(map(str, sorted(ended)))} have ended: "
                "reset them first, with async_reset(options={'reset_mask': mask})"
            )
            raise gym.error.ResetNeeded(message)
        return ended if self.autoreset_mode is AutoresetMode.NEXT_STEP else set()

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

    def _make_env(self, **settings: Any) -> CodingEnv:
        return CodingEnv(**settings)

    def _maker(self, index: int, settings: dict[str, Any]) -> Callable[[], CodingEnv]:
        def make() -> CodingEnv:
            env = self._make_env(**settings)
            env.use_slot(self._slot_of(index))
            env.place(self._group, index)
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
            return _after_same_step(result, obs, info)
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
        if not missing:
            return
        what = f"starting sandboxes for {self.num_envs} environments: {len(missing)}"
        with waiting_for(what, _log, total=len(missing), patience=_PATIENCE_SECONDS) as advance:

            def start(slot: ManagedSandbox) -> None:
                slot.start()
                advance()

            list(self._threads.map(start, missing))

    def _start_early(self, index: int) -> None:
        self._threads.submit(_try_to_start, self._slot_of(index))

    def _reset_envs(
        self, indices: list[int], seeds: list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> dict[int, tuple[Obs, Info]]:
        """Reset some environments concurrently."""

        def begin(index: int, seed: int | None) -> None:
            self._elapsed[index] = 0
            self._coding_envs[index].begin_reset(seed=seed, options=options)

        seeds = seeds or [None] * len(indices)
        if self._may_change_images(options):
            # Sandboxes are started meanwhile.
            list(self._threads.map(begin, indices, seeds))
        else:
            with self._batch_requests():
                for index, seed in zip(indices, seeds, strict=True):
                    begin(index, seed)
        return {index: self._coding_envs[index].finish_reset() for index in indices}

    def _may_change_images(self, options: Mapping[str, Any] | None) -> bool:
        """Return whether a reset with these options may need sandboxes of other images."""
        return (options or {}).get("image") is not None or not all(env.uses_shared_slot for env in self._coding_envs)

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
        if result[-1]["outcome"] == "infrastructure" and self._coding_envs[index].uses_shared_slot:
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
                if not is_black(frame):
                    batch["screenshot"][row] = frame
        return batch


class _Answers:
    """The answers of environments, until they are received. Thread-safe.

    An environment is pending from ``expect`` to ``remove``. An answer is the result of a step or reset, or the error that has
    been raised instead.
    """

    def __init__(self) -> None:
        self._pending: set[int] = set()
        self._arrived: dict[int, StepResult | BaseException] = {}
        self._changed = threading.Condition()
        self._wanted = 1
        self._is_closed = False

    @property
    def pending(self) -> list[int]:
        """Indices of the pending environments, in ascending order."""
        with self._changed:
            return sorted(self._pending)

    def check_none_pending(self, call: str) -> None:
        """Raise if environments are pending.

        Args:
            call: Name of the method that may only be called without.

        Raises:
            gymnasium.error.AlreadyPendingCallError: If there are any.
        """
        if pending := self.pending:
            message = (
                f"Expected no pending environment in {call}(), got {_listed(pending)}: "
                f"receive their answers first, with recv(min_ready={len(pending)})"
            )
            raise gym.error.AlreadyPendingCallError(message, call)

    def check_idle(self, indices: list[int], call: str) -> None:
        """Raise if one of some environments is pending.

        Args:
            indices: The environments.
            call: Name of the method.

        Raises:
            gymnasium.error.AlreadyPendingCallError: If one is.
        """
        pending = set(self.pending)
        if busy := [index for index in indices if index in pending]:
            message = (
                f"Expected environments that have answered in {call}(), got {_listed(busy)}, which are pending: "
                "receive their answers first, with recv()"
            )
            raise gym.error.AlreadyPendingCallError(message, call)

    def expect(self, index: int) -> None:
        """Make an environment pending."""
        with self._changed:
            self._pending.add(index)

    def withdraw(self, index: int) -> None:
        """Expect no answer of an environment; if one arrives nevertheless, it is pending again."""
        with self._changed:
            self._pending.discard(index)

    def put(self, index: int, answer: StepResult | BaseException) -> None:
        """Add the answer of an environment."""
        with self._changed:
            self._pending.add(index)
            self._arrived[index] = answer
            # Waking up the receiver for each of many answers would cost more than the answers.
            if len(self._arrived) >= self._wanted or isinstance(answer, BaseException):
                self._changed.notify_all()

    def wait(self, min_ready: int, timeout: float | None) -> dict[int, StepResult]:
        """Wait for answers; return all that have arrived, by environment, in ascending order. ``remove`` removes them.

        Args:
            min_ready: Minimum number of answers.
            timeout: Timeout in seconds; None for no limit.

        Raises:
            gymnasium.error.NoAsyncCallError: If no environment is pending.
            ConfigurationError: If fewer than ``min_ready`` are.
            ReceiveTimeoutError: If too few answers arrive in time; they are kept.
            gymnasium.error.ClosedEnvironmentError: If the environment is closed.
            BaseException: The error of an environment, which is no longer pending; the other answers are kept.
        """
        with self._changed:
            self._check_enough(min_ready)
            self._wanted = min_ready
            limit = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
            is_complete = self._changed.wait_for(self._is_complete, limit)
            if self._is_closed:
                raise gym.error.ClosedEnvironmentError(CLOSED_ENVIRONMENT)
            results: dict[int, StepResult] = {}
            for index, answer in sorted(self._arrived.items()):
                if isinstance(answer, BaseException):
                    self._remove(index)
                    answer.add_note(f"This is the answer of environment {index}, which is no longer pending.")
                    raise answer
                results[index] = answer
            if not is_complete:
                raise ReceiveTimeoutError(min_ready=min_ready, arrived=len(results), timeout=timeout or 0.0)
            return results

    def remove(self, indices: list[int]) -> None:
        """Remove the answers of some environments, which are then no longer pending."""
        with self._changed:
            for index in indices:
                self._remove(index)

    def close(self) -> None:
        """Let ``wait`` raise from now on, also in a thread that waits in it."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _check_enough(self, min_ready: int) -> None:
        if not self._pending:
            message = "Expected a pending environment in recv(), got none: call send() or async_reset() first"
            raise gym.error.NoAsyncCallError(message, "recv")
        if min_ready > len(self._pending):
            message = (
                f"Expected min_ready= to be at most {len(self._pending)}, the number of pending environments, got {min_ready}: "
                "send more actions first, or pass a smaller number"
            )
            raise ConfigurationError(message)

    def _is_complete(self) -> bool:
        failed = any(isinstance(answer, BaseException) for answer in self._arrived.values())
        return self._is_closed or failed or len(self._arrived) >= self._wanted

    def _remove(self, index: int) -> None:
        del self._arrived[index]
        self._pending.discard(index)


def _sessions_for(num_envs: int, cpu: float) -> int:
    """Return the default number of environments per sandbox: as few as make the sandboxes use all processors of this machine.

    Args:
        num_envs: Number of environments.
        cpu: Number of processors that a sandbox may use.
    """
    sandboxes = max(1, int(len(os.sched_getaffinity(0)) / cpu))
    return min(max(_LEAST_SESSIONS, -(-num_envs // sandboxes)), _MOST_SESSIONS)


def _listed(indices: list[int]) -> str:
    return ", ".join(map(str, indices))


class _EnvThreads:
    """Runs the steps and resets of environments, those of each one after another in its own thread.

    The threads start with their first calls. They are daemon threads: those of ``ThreadPoolExecutor`` would delay the exit of
    the process until their calls return.

    Args:
        answers: Gets the results and errors.
    """

    def __init__(self, answers: _Answers) -> None:
        self._answers = answers
        self._threads: dict[int, threading.Thread] = {}
        self._calls: dict[int, SimpleQueue[Callable[[], None] | None]] = {}

    def submit(self, index: int, call: Callable[[], StepResult], then: Callable[[int, StepResult], None]) -> None:
        """Run a call for an environment.

        Args:
            index: The environment.
            call: The call; its result, or the error that it raises, is the answer.
            then: Is called with the index and the result after the answer has been put. Must not raise.
        """
        call = in_current_context(call)

        def run() -> None:
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - recv raises it
                self._answers.put(index, error)
                return
            self._answers.put(index, result)
            then(index, result)

        if index not in self._threads:
            calls = self._calls[index] = SimpleQueue()
            thread = threading.Thread(target=_run_all, args=(calls,), name=f"coding_gym_env_{index}", daemon=True)
            self._threads[index] = thread
            thread.start()
        self._calls[index].put(run)

    def close(self, abort: Callable[[int], None]) -> None:
        """End the threads; wait some seconds for calls in progress.

        Args:
            abort: Lets the call of an environment fail.
        """
        for calls in self._calls.values():
            calls.put(None)
        deadline = time.monotonic() + _CANCEL_SECONDS
        left = list(self._threads.values())
        while left and time.monotonic() < deadline:
            for index in self._answers.pending:
                abort(index)
            for thread in left:
                thread.join(_ABORT_SECONDS / len(left))
            left = [thread for thread in left if thread.is_alive()]


def _run_all(calls: SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := calls.get()) is not None:
        call()
        # A waiting thread keeps the environment of its last call from being collected otherwise.
        del call


def _after_same_step(result: StepResult, obs: Obs, info: Info) -> StepResult:
    """Return the result of a step that has ended an episode, with ``AutoresetMode.SAME_STEP``.

    Args:
        result: The result of the last step of the episode.
        obs: The first observation of the next episode.
        info: Its info.
    """
    final_obs, reward, terminated, truncated, final_info = result
    return obs, reward, terminated, truncated, {"final_obs": final_obs, "final_info": final_info, **info}


def _first_rows(infos: Info, count: int) -> Info:
    return {key: _first_rows(value, count) if isinstance(value, dict) else value[:count] for key, value in infos.items()}


def _try_to_start(slot: ManagedSandbox) -> None:
    # A failure recurs at the next reset, which raises it. The thread continues.
    with contextlib.suppress(Exception):
        slot.start()
