"""Making the environments that episodes run in, and the sandboxes below them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium as gym

from coding_gym.config import SandboxConfig
from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.policies import name_of
from coding_gym.datasets.records import plain
from coding_gym.env import CodingEnv
from coding_gym.errors import ConfigurationError, DatasetError
from coding_gym.pool import SandboxPool

__all__ = ["EnvMaker", "EnvSource", "Wrapper", "recorded_maker"]

EnvSource = str | Callable[[], gym.Env[Any, Any]]
Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]

_OWN = "coding_gym."
_SESSIONS_PER_SANDBOX = 16
# What ``backend`` says is an environment's, though a sandbox has a default.
_SANDBOX_OPTIONS = frozenset(field.name for field in dataclasses.fields(SandboxConfig)) - {"backend"}
_SECRET = "token"  # noqa: S105 - the name of an option


class EnvMaker:
    """Makes environments.

    Args:
        source: An id, or a callable that returns an environment, which then brings its own sandboxes.
        options: What an environment with an id is made with; fields of ``SandboxConfig`` go to the sandboxes.
        wrappers: What is put around each, the innermost first.
        pool: The sandboxes; they are started, and removed in the end, if None.

    Raises:
        ConfigurationError: An option cannot be, or does not go with a callable.
    """

    def __init__(
        self,
        source: EnvSource,
        options: Mapping[str, Any] | None = None,
        *,
        wrappers: Sequence[Wrapper] = (),
        pool: SandboxPool | None = None,
    ) -> None:
        self._source = source
        self._options = dict(options or {})
        self._wrappers = tuple(wrappers)
        self._pool = pool
        if not isinstance(source, str) and (self._options or pool is not None):
            message = "Options and pool= go with the id of an environment; a callable makes it with its own"
            raise ConfigurationError(message)

    @property
    def name(self) -> str:
        """What the manifest calls the environment."""
        return self._source if isinstance(self._source, str) else name_of(self._source)

    @property
    def wrapper_names(self) -> list[str]:
        """What the manifest calls the wrappers."""
        return [name_of(wrapper) for wrapper in self._wrappers]

    def describe_options(self) -> dict[str, Any]:
        """Return the options as JSON data, without the token of a server.

        Raises:
            ConfigurationError: One is no data, so that nobody could tell whether it is still the same.
        """
        options = {name: value for name, value in self._options.items() if name != _SECRET}
        try:
            described = dict(plain(options))
        except (TypeError, ValueError) as error:
            message = f"Expected env_options= to be data: {error}. Pass a callable that makes the environment instead"
            raise ConfigurationError(message) from error
        if isinstance(described.get("config"), dict):
            described["config"].pop(_SECRET, None)
        return described

    def most_sessions(self, wanted: int) -> int:
        """Return how many episodes can run at a time: no more than a pool has places."""
        return wanted if self._pool is None else min(wanted, self._pool.size * self._pool.config.sessions)

    @contextlib.contextmanager
    def open(self, sessions: int, *, sandboxes: int | None = None) -> Iterator[tuple[Callable[[], gym.Env[Any, Any]], str]]:
        """Within the block there are sandboxes for so many sessions; gives what makes an environment, and what a sandbox is.

        Args:
            sessions: How many environments there will be.
            sandboxes: How many sandboxes share them; one for each 16 if None.

        Raises:
            ProviderError: A sandbox cannot be had.
        """
        if not self._is_our_own():
            yield self.make, ""
            return
        options = dict(self._options)
        with contextlib.ExitStack() as stack:
            pool = self._pool
            if pool is None:
                sandbox_options = {name: options.pop(name) for name in list(options) if name in _SANDBOX_OPTIONS}
                pool = stack.enter_context(_make_pool(sessions, sandboxes, options, sandbox_options))
            with pool.acquire() as lease:
                sandbox = lease.sandbox.description
            yield lambda: self._make(options, pool), sandbox

    def make(self) -> gym.Env[Any, Any]:
        """Return an environment with a sandbox of its own, which starts when it is reset."""
        return self._make(self._options, None)

    def _make(self, options: Mapping[str, Any], pool: SandboxPool | None) -> gym.Env[Any, Any]:
        if isinstance(self._source, str):
            # Gymnasium's checker looks at an environment when it is first used: many are made here.
            shared: dict[str, Any] = {} if pool is None else {"pool": pool}
            env = gym.make(self._source, disable_env_checker=True, **shared, **options)
            if not self._wrappers and isinstance(env.unwrapped, CodingEnv):
                env.unwrapped.share_black_screenshots()
        else:
            env = self._source()
        for wrapper in self._wrappers:
            env = wrapper(env)
        return env

    def _is_our_own(self) -> bool:
        if not isinstance(self._source, str):
            return False
        entry_point = gym.spec(self._source).entry_point
        return isinstance(entry_point, str) and entry_point.startswith(_OWN)


def recorded_maker(
    dataset: Dataset,
    env: EnvSource | None,
    wrappers: Sequence[Wrapper],
    *,
    env_options: Mapping[str, Any] | None = None,
    pool: SandboxPool | None = None,
) -> EnvMaker:
    """Return what makes the environments that a dataset was collected from.

    Args:
        dataset: The dataset.
        env: What made them, if that was a callable.
        wrappers: What was around them.
        env_options: What is to be otherwise.
        pool: Sandboxes to use, instead of such as they were.

    Raises:
        DatasetError: They are others, or are missing.
    """
    arguments = dataset.manifest.arguments
    if env is None and arguments.env not in gym.registry:
        message = f"{dataset.path} was collected from {arguments.env}: pass env= with what makes the environment"
        raise DatasetError(message)
    recorded = arguments.env_options if env is None else {}
    if pool is not None:
        recorded = {name: value for name, value in recorded.items() if name not in _SANDBOX_OPTIONS}
    maker = EnvMaker(env or arguments.env, {**recorded, **(env_options or {})}, wrappers=wrappers, pool=pool)
    if (maker.name, maker.wrapper_names) != (arguments.env, arguments.wrappers):
        message = (
            f"{dataset.path} was collected from {arguments.env} with the wrappers {arguments.wrappers}, "
            f"got {maker.name} with {maker.wrapper_names}: pass env= and wrappers= as they were"
        )
        raise DatasetError(message)
    return maker


def _make_pool(
    sessions: int, sandboxes: int | None, options: Mapping[str, Any], sandbox_options: dict[str, Any]
) -> SandboxPool:
    size = sandboxes or -(-sessions // _SESSIONS_PER_SANDBOX)
    if "config" in options:
        message = "Pass the sandbox's settings as single options here: provider=, mem= ..., not as config="
        raise ConfigurationError(message)
    backend = {"backend": options["backend"]} if options.get("backend") else {}
    settings = {**backend, "sessions": -(-sessions // size), **sandbox_options}
    # Episodes begin in a fresh interpreter and an empty workspace: their number wears out no sandbox.
    return SandboxPool(size, max_episodes=None, **settings)
