"""``FirstComeVectorEnv``: ``send`` and ``recv``, so that no environment waits for the slowest."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import iterate
from numpy.typing import NDArray

from coding_gym._validation import CLOSED_ENVIRONMENT, check_count, check_mapping
from coding_gym.envs.answers import Answers
from coding_gym.envs.episode import Info, Obs, StepResult, own_screenshot
from coding_gym.envs.exclusive_use import ExclusiveUse
from coding_gym.errors import ConfigurationError, InvalidActionError

__all__ = ["FirstComeVectorEnv", "VectorStep", "after_same_step"]

VectorStep = tuple[Obs, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]


class FirstComeVectorEnv(VectorEnv[Obs, Any, Any]):
    """Vector environment whose environments can be stepped first come, first served.

    ``send`` and ``async_reset`` request steps and resets and return at once; ``recv`` returns the answers that have arrived. An
    environment is pending from the request until its answer has been received. Each environment keeps the order of its own
    steps, its seeds and its autoreset mode: it answers as it would in ``step``.

    One thread may wait in ``recv`` while another one calls ``send``.
    """

    # Subclasses set these, and carry out the requests.
    autoreset_mode: AutoresetMode
    _answers: Answers
    _exclusive_use: ExclusiveUse
    _receiving: ExclusiveUse
    _latest: list[Obs]
    _rewards: NDArray[np.float64]
    _terminations: NDArray[np.bool_]
    _truncations: NDArray[np.bool_]
    _autoreset_envs: NDArray[np.bool_]

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

    @abstractmethod
    def _check_reset(self, indices: list[int], options: dict[str, Any]) -> None:
        """Raise if environments cannot be reset with options; without ``reset_mask``."""

    @abstractmethod
    def _check_step(self, index: int, action: Any) -> None:
        """Raise if an environment cannot run an action."""

    @abstractmethod
    def _launch_step(self, index: int, action: Any) -> None:
        """Begin a step, whose result or error is later put to the answers.

        With ``AutoresetMode.SAME_STEP``, it is the result of ``after_same_step`` if the episode has ended.
        """

    @abstractmethod
    def _launch_reset(self, index: int, seed: int | None, options: dict[str, Any] | None) -> None:
        """Begin a reset, whose result or error is later put to the answers; the reward is 0."""

    @abstractmethod
    def _batch(self, observations: list[Obs]) -> Obs:
        """Return a batch of observations, which shares no memory with them."""

    def _check_open(self) -> None:
        if self.closed:
            raise gym.error.ClosedEnvironmentError(CLOSED_ENVIRONMENT)

    @contextmanager
    def _only_call(self, name: str) -> Iterator[None]:
        """Raise if the environment is closed, in another call, or has pending environments."""
        self._check_open()
        with self._exclusive_use:
            self._answers.check_none_pending(name)
            yield

    @contextmanager
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


def after_same_step(result: StepResult, obs: Obs, info: Info) -> StepResult:
    """Return the result of a step that has ended an episode, with ``AutoresetMode.SAME_STEP``.

    Args:
        result: The result of the last step of the episode.
        obs: The first observation of the next episode.
        info: Its info.
    """
    final_obs, reward, terminated, truncated, final_info = result
    return obs, reward, terminated, truncated, {"final_obs": own_screenshot(final_obs), "final_info": final_info, **info}


def _first_rows(infos: Info, count: int) -> Info:
    return {key: _first_rows(value, count) if isinstance(value, dict) else value[:count] for key, value in infos.items()}
