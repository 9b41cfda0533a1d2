"""Sandboxes, graders and suites that the environments of a process share. They are closed when it exits."""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from coding_gym.envs.task_env import SESSIONS_PER_ENV, as_suite
from coding_gym.errors import PoolTimeoutError
from coding_gym.plugins import check_count
from coding_gym.sandbox.config import SandboxConfig, sandbox_config
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.tasks import Grader, TaskSuite

__all__ = ["EpisodePool", "close_sandboxes", "episode_pool", "shared_grader", "shared_pool", "shared_suite"]

_SESSIONS_PER_SANDBOX = 16

_pools: dict[tuple[Any, ...], EpisodePool] = {}
_graders: dict[tuple[Any, ...], Grader] = {}
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

    def enter(self, seconds: float | None) -> None:
        """Begin an episode.

        Args:
            seconds: Maximum number of seconds to wait for another to end; None for no limit.

        Raises:
            PoolTimeoutError: If none does in time.
        """
        if not self._places.acquire(timeout=seconds):
            message = (
                f"None of episodes={self._episodes} in this process ended within {seconds:g} s: pass as many as there are at a "
                "time, and close environments"
            )
            raise PoolTimeoutError(message)

    def leave(self) -> None:
        """End an episode."""
        self._places.release()


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
    """Return the sandboxes of this process with these options.

    Args:
        episodes: Maximum number of episodes at a time.
        options: Fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: If an option is invalid.
    """
    config, size = _pool_options(episodes, options)
    key = (*_key(config), episodes)
    with _lock:
        if key not in _pools:
            _pools[key] = EpisodePool(episodes, config, size)
        return _pools[key]


def shared_grader(workers: int | None, options: Mapping[str, Any]) -> Grader:
    """Return the grader of this process with these options.

    Args:
        workers: As for ``Grader``.
        options: Fields of ``SandboxConfig``.

    Raises:
        ConfigurationError: If an option is invalid.
    """
    key = (*_key(sandbox_config(None, options)), workers)
    with _lock:
        if key not in _graders:
            _graders[key] = Grader(workers=workers, **options)
        return _graders[key]


def shared_suite(suite: TaskSuite | str | None) -> TaskSuite:
    """Return a suite of at least one task; one that is named is loaded once in a process.

    Raises:
        ConfigurationError: If there is none, or the suite does not exist or is empty.
    """
    return _loaded(suite) if isinstance(suite, str) else as_suite(suite)


_loaded = functools.cache(as_suite)


def close_sandboxes() -> None:
    """Remove the sandboxes that environments and graders of this process share. New ones start new sandboxes."""
    own = os.getpid()
    with _lock:
        pools = [pool.sandboxes for key, pool in _pools.items() if key[0] == own]
        graders = [grader for key, grader in _graders.items() if key[0] == own]
        _pools.clear()
        _graders.clear()
    for grader in graders:
        grader.close()
    for pool in pools:
        pool.close()


atexit.register(close_sandboxes)


def _key(config: SandboxConfig) -> tuple[int, SandboxConfig, tuple[tuple[str, str], ...]]:
    # Neither a pool nor a grader is usable in a fork of the process that created it.
    return os.getpid(), config, tuple(sorted(config.environment.items()))


def _pool_options(episodes: int, options: Mapping[str, Any], others: Iterable[str] = ()) -> tuple[SandboxConfig, int]:
    slots = check_count("episodes", episodes, 1) * SESSIONS_PER_ENV
    config = sandbox_config(None, {"sessions": min(slots, _SESSIONS_PER_SANDBOX), **options}, others)
    return config, 1 if config.base_urls else -(-slots // config.sessions)
