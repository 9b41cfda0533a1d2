"""Construction of the environments that episodes run in, and of their sandboxes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym

from coding_gym.datasets.dataset import Dataset
from coding_gym.datasets.episode import plain
from coding_gym.datasets.policies.base import name_of
from coding_gym.envs.task_env import SESSIONS_PER_ENV, CodingTaskEnv
from coding_gym.errors import ConfigurationError, DatasetError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool

__all__ = ["EnvFactory", "EnvSource", "OpenFactory", "Wrapper", "recorded_factory"]

EnvSource = str | Callable[[], gym.Env[Any, Any]]
Wrapper = Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]]

_PACKAGE_PREFIX = "coding_gym."
_TASK_ENV = f"{CodingTaskEnv.__module__}:{CodingTaskEnv.__qualname__}"
_SESSIONS_PER_SANDBOX = 16
# ``backend`` is an option of the environment, although the sandbox has a default for it.
_SANDBOX_OPTIONS = frozenset(field.name for field in dataclasses.fields(SandboxConfig)) - {"backend"}
_SECRET = "token"  # noqa: S105 - the name of an option


class OpenFactory(NamedTuple):
    """A factory whose sandboxes are running.

    Attributes:
        make: Returns an environment.
        sandbox: Description of the sandboxes.
        sessions: Maximum number of concurrent episodes.
    """

    make: Callable[[], gym.Env[Any, Any]]
    sandbox: str
    sessions: int


class EnvFactory:
    """Factory of environments.

    Args:
        source: Environment id, or a callable that returns an environment with its own sandboxes.
        options: Keyword arguments for an environment id; fields of ``SandboxConfig`` configure the sandboxes.
        wrappers: Wrappers to apply to each environment, the innermost first.
        pool: Existing sandbox pool to use; if None, a pool is started by ``open`` and closed at its end.

    Raises:
        ConfigurationError: If ``options`` or ``pool`` are combined with a callable.
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
            message = "Options and pool= require the id of an environment: a callable passes its own"
            raise ConfigurationError(message)

    @property
    def name(self) -> str:
        """Name of the environment in the manifest."""
        return self._source if isinstance(self._source, str) else name_of(self._source)

    @property
    def wrapper_names(self) -> list[str]:
        """Names of the wrappers in the manifest."""
        return [name_of(wrapper) for wrapper in self._wrappers]

    def describe_options(self) -> dict[str, Any]:
        """Return the options as JSON data, without the server's token.

        Raises:
            ConfigurationError: If an option is not serializable, and so could not be compared when a collection is resumed.
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

    @contextlib.contextmanager
    def open(self, sessions: int, *, sandboxes: int | None = None) -> Iterator[OpenFactory]:
        """Run sandboxes for a number of concurrent episodes.

        Args:
            sessions: Maximum number of concurrent episodes; a pool with fewer slots reduces it.
            sandboxes: Number of sandboxes that the sessions share; one per 16 sessions if None.

        Raises:
            ProviderError: If no sandbox is available.
        """
        if self._bundled_entry_point() is None:
            yield OpenFactory(self.make, "", sessions)
            return
        options = dict(self._options)
        with contextlib.ExitStack() as stack:
            pool = self._pool
            if pool is None:
                sandbox_options = {name: options.pop(name) for name in list(options) if name in _SANDBOX_OPTIONS}
                size = sandboxes or -(-sessions // _SESSIONS_PER_SANDBOX)
                pool = stack.enter_context(_make_pool(size, sessions * self._slots_per_env, options, sandbox_options))
            with pool.acquire() as lease:
                sandbox = lease.sandbox.description
            sessions = min(sessions, max(pool.capacity // self._slots_per_env, 1))
            yield OpenFactory(lambda: self._make(options, pool), sandbox, sessions)

    def make(self) -> gym.Env[Any, Any]:
        """Return an environment with a dedicated sandbox, which starts at the first reset."""
        return self._make(self._options, None)

    def _make(self, options: Mapping[str, Any], pool: SandboxPool | None) -> gym.Env[Any, Any]:
        if isinstance(self._source, str):
            # Gymnasium's environment checker would run at the first use of each of many environments.
            shared: dict[str, Any] = {} if pool is None else {"pool": pool}
            env = gym.make(self._source, disable_env_checker=True, **shared, **options)
        else:
            env = self._source()
        for wrapper in self._wrappers:
            env = wrapper(env)
        return env

    @property
    def _slots_per_env(self) -> int:
        """Number of slots of a pool that an environment occupies."""
        return SESSIONS_PER_ENV if self._bundled_entry_point() == _TASK_ENV else 1

    def _bundled_entry_point(self) -> str | None:
        """Return the entry point of an environment of this package; None for any other environment."""
        entry_point = gym.spec(self._source).entry_point if isinstance(self._source, str) else None
        return entry_point if isinstance(entry_point, str) and entry_point.startswith(_PACKAGE_PREFIX) else None


def recorded_factory(
    dataset: Dataset,
    env: EnvSource | None,
    wrappers: Sequence[Wrapper],
    *,
    env_options: Mapping[str, Any] | None = None,
    pool: SandboxPool | None = None,
) -> EnvFactory:
    """Return a factory of the environments that a dataset was collected from.

    Args:
        dataset: The dataset.
        env: Callable that made the environments, if the dataset was collected from a callable.
        wrappers: Wrappers of the environments, the innermost first.
        env_options: Options that override the recorded ones.
        pool: Existing sandbox pool to use instead of sandboxes as recorded.

    Raises:
        DatasetError: If the environment or the wrappers do not match the recorded ones, or ``env`` is required.
    """
    arguments = dataset.manifest.arguments
    if env is None and arguments.env not in gym.registry:
        message = f"{dataset.path} was collected from {arguments.env}: pass env= with a callable that makes the environment"
        raise DatasetError(message)
    recorded = arguments.env_options if env is None else {}
    if pool is not None:
        recorded = {name: value for name, value in recorded.items() if name not in _SANDBOX_OPTIONS}
    maker = EnvFactory(env or arguments.env, {**recorded, **(env_options or {})}, wrappers=wrappers, pool=pool)
    if (maker.name, maker.wrapper_names) != (arguments.env, arguments.wrappers):
        message = (
            f"{dataset.path} was collected from {arguments.env} with the wrappers {arguments.wrappers}, "
            f"got {maker.name} with {maker.wrapper_names}: pass the same env= and wrappers="
        )
        raise DatasetError(message)
    return maker


def _make_pool(size: int, slots: int, options: Mapping[str, Any], sandbox_options: dict[str, Any]) -> SandboxPool:
    if "config" in options:
        message = "Pass the sandbox's settings as individual options here: provider=, mem= ..., not as config="
        raise ConfigurationError(message)
    backend = {"backend": options["backend"]} if options.get("backend") else {}
    settings = {**backend, "sessions": -(-slots // size), **sandbox_options}
    return SandboxPool(1 if settings.get("base_urls") else size, **settings)
