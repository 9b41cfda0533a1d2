"""``TextEpisodes``: episodes of ``CodingTask-v0`` that language models play in text, in sandboxes that a process shares."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from coding_gym._validation import check_count
from coding_gym.branching import fork
from coding_gym.envs.episode import Info
from coding_gym.envs.options import split_options
from coding_gym.envs.task_env import SESSIONS_PER_ENV, CodingTaskEnv, as_suite
from coding_gym.errors import CodingGymError, PoolTimeoutError
from coding_gym.sandbox.config import SandboxConfig, sandbox_config
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.tasks import TaskSuite
from coding_gym.wrappers.actions.fenced_code import extract_code, fenced_blocks
from coding_gym.wrappers.observations.chat import describe_output
from coding_gym_server.protocol import Outcome

__all__ = [
    "HOW_TO_ANSWER",
    "NOT_RUN",
    "EpisodePool",
    "TextEpisodes",
    "TextStep",
    "close_sandboxes",
    "describe_step",
    "episode_pool",
    "shared_pool",
    "shared_suite",
]

HOW_TO_ANSWER = (
    "Put the code into one fenced block: ```python ... ```. It runs in an interpreter that keeps its state from turn to turn. "
    "You see its output, and once it defines what the task asks for, how many hidden tests pass."
)
"""System message for models that answer in text."""

NOT_RUN = "[nothing was run: the code is too long, or not text]"
NO_FENCE = "[the reply has no fenced block, so all of it was run: put the code between ```python and ```]"

_SESSIONS_PER_SANDBOX = 16

_pools: dict[tuple[int, int, SandboxConfig, tuple[tuple[str, str], ...]], EpisodePool] = {}
_lock = threading.Lock()


class EpisodePool:
    """Sandboxes for a number of episodes at a time. An episode beyond it waits for one to end.

    Args:
        episodes: Maximum number of episodes.
        config: The sandboxes.
        size: Number of sandboxes.
    """

    def __init__(self, episodes: int, config: SandboxConfig, size: int) -> None:
        self.sandboxes = SandboxPool(size, config=config)
        self._episodes = episodes
        # Not only a pool of slots: episodes that have one of their two would wait for each other.
        self._places = threading.Semaphore(episodes)

    def enter(self) -> None:
        """Begin an episode.

        Raises:
            PoolTimeoutError: If all others go on for longer than a pool waits.
        """
        seconds = self.sandboxes.acquire_timeout
        if not self._places.acquire(timeout=seconds):
            message = (
                f"None of episodes={self._episodes} in this process ended within {seconds:g} s: pass as many as there are at a "
                "time, and close environments"
            )
            raise PoolTimeoutError(message)

    def leave(self) -> None:
        """End an episode."""
        self._places.release()


class TextStep(NamedTuple):
    """Result of a reply.

    Attributes:
        text: What the model reads next: the output of its code, and how many tests passed.
        reward: As for ``CodingTask-v0``.
        terminated: Whether all tests passed.
        truncated: Whether the turns are used up, or an infrastructure error ended the episode.
        info: As for ``CodingTask-v0``.
    """

    text: str
    reward: float
    terminated: bool
    truncated: bool
    info: Info

    @property
    def is_lost(self) -> bool:
        """Whether an infrastructure error ended the episode, which says nothing about the model."""
        return bool(self.info["outcome"] == Outcome.INFRASTRUCTURE)


class TextEpisodes:
    """Episodes whose actions are replies of a language model.

    After an infrastructure error, the episode is replayed in another sandbox, and the reply runs again.

    Args:
        env: The environment.
        retries: Maximum number of retries of a reply.
        pool: What counts the episodes, if something does.
    """

    def __init__(self, env: CodingTaskEnv, *, retries: int, pool: EpisodePool | None = None) -> None:
        self.env = env
        self.retries = retries
        self._pool = pool
        self._has_place = False

    @classmethod
    def make(
        cls, kind: type, *, suite: TaskSuite, max_turns: int, episodes: int, retries: int, options: Mapping[str, Any]
    ) -> TextEpisodes:
        """Return episodes in the sandboxes of this process.

        Args:
            kind: Class with the options, for the message about an unknown one.
            suite: The tasks.
            max_turns: As for ``CodingTaskEnv``.
            episodes: As for ``shared_pool``.
            retries: As for the class.
            options: Fields of ``EnvOptions`` and ``SandboxConfig``.

        Raises:
            ConfigurationError: If an option is invalid.
        """
        check_count("retries", retries, 0)
        env_options, sandbox_options = split_options(options, kind, kind)
        pool = shared_pool(episodes, sandbox_options)
        env = CodingTaskEnv(suite=suite, max_turns=max_turns, pool=pool.sandboxes, **{"screen": None, **env_options})
        return cls(env, retries=retries, pool=pool)

    def begin(self, *, task_id: str | None = None, seed: int | None = None) -> tuple[str, Info]:
        """Begin an episode; return the text of its task, and the info.

        Raises:
            ConfigurationError: If the task does not exist.
            ProviderError: If no sandbox is available, or too many other episodes are running.
        """
        if self._pool is not None and not self._has_place:
            self._pool.enter()
            self._has_place = True
        observation, info = self.env.reset(seed=seed, options=None if task_id is None else {"task_id": task_id})
        return str(observation["prompt"]), info

    def reply(self, text: str) -> TextStep:
        """Run the last Python block of a reply, or all of it if it has no fence."""
        code = extract_code(text)
        is_code = code in self.env.action_space
        record = self.env.clone_state(replay=True)
        step = self.env.step(code if is_code else "")
        for _ in range(self.retries):
            if step[-1]["outcome"] != Outcome.INFRASTRUCTURE:
                break
            try:
                self.env.restore_state(record, replay=True)
            except CodingGymError:
                continue
            step = self.env.step(code if is_code else "")
        observation, reward, terminated, truncated, info = step
        shown = describe_step(observation, info) if is_code else NOT_RUN
        if is_code and observation["exit_code"] and not fenced_blocks(text):
            shown += f"\n{NO_FENCE}"
        return TextStep(shown, float(reward), terminated, truncated, info)

    def copy(self) -> TextEpisodes:
        """Return an episode that goes on from the present state of this one. It takes no place of its own.

        Raises:
            SnapshotError: If the copy would not be faithful.
            gymnasium.error.ResetNeeded: If there is no episode.
        """
        (env,) = fork(self.env, 1, [None])
        assert isinstance(env, CodingTaskEnv)
        return TextEpisodes(env, retries=self.retries)

    def close(self) -> None:
        """End the episode, and return its place in a sandbox. Idempotent."""
        self.env.close()
        if self._pool is not None and self._has_place:
            self._has_place = False
            self._pool.leave()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def shared_suite(suite: TaskSuite | str | None) -> TaskSuite:
    """Return a suite of at least one task; one that is named is loaded once in a process.

    Raises:
        ConfigurationError: If there is none, or the suite does not exist or is empty.
    """
    return _loaded(suite) if isinstance(suite, str) else as_suite(suite)


_loaded = functools.cache(as_suite)


def describe_step(observation: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Format the output of a step of ``CodingTask-v0``, with the number of passed tests if it was graded."""
    tests = f"\n[{info['tests_passed']} of {info['tests_total']} tests passed]" if info["graded"] else ""
    return describe_output(observation) + tests


def episode_pool(episodes: int, options: Mapping[str, Any], others: Iterable[str] = ()) -> SandboxPool:
    """Return a pool for a number of episodes at a time.

    Args:
        episodes: Maximum number of episodes.
        options: Fields of ``SandboxConfig``.
        others: Names of other valid options, for the message about an unknown one.

    Raises:
        ConfigurationError: If an option is invalid.
    """
    config, size = _pool_options(episodes, options, others)
    return SandboxPool(size, config=config)


def shared_pool(episodes: int, options: Mapping[str, Any]) -> EpisodePool:
    """Return the sandboxes of this process with these options. They are removed when the process exits.

    Args:
        episodes: Maximum number of episodes at a time.
        options: Fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: If an option is invalid.
    """
    config, size = _pool_options(episodes, options)
    # A pool is unusable in a fork of the process that created it.
    key = (os.getpid(), episodes, config, tuple(sorted(config.environment.items())))
    with _lock:
        if key not in _pools:
            _pools[key] = EpisodePool(episodes, config, size)
        return _pools[key]


def close_sandboxes() -> None:
    """Remove the sandboxes of all environments in this process, which are unusable afterwards. New ones start new sandboxes."""
    with _lock:
        pools = [pool.sandboxes for (pid, *_), pool in _pools.items() if pid == os.getpid()]
        _pools.clear()
    for pool in pools:
        pool.close()


atexit.register(close_sandboxes)


def _pool_options(episodes: int, options: Mapping[str, Any], others: Iterable[str] = ()) -> tuple[SandboxConfig, int]:
    slots = check_count("episodes", episodes, 1) * SESSIONS_PER_ENV
    config = sandbox_config(None, {"sessions": min(slots, _SESSIONS_PER_SANDBOX), **options}, others)
    return config, 1 if config.base_urls else -(-slots // config.sessions)
