"""``CodingShellEnv-v0``: an agent gives commands to a shell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.episode import EpisodeState
from coding_gym.envs.options import CodingEnvKwargs, EnvOptions
from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool

__all__ = ["CodingShellEnv", "CodingShellVectorEnv"]

_BACKEND = "bash"


class CodingShellEnv(CodingEnv):
    r"""``CodingEnv`` for shell commands: each action runs in one bash per episode.

    Variables, functions, aliases, options and the working directory persist between steps, also after ``exit``.

    A bash cannot be copied: a snapshot is a record of the episode, and ``restore_state`` runs its commands again.

    Action:
        ``CodeText(max_code_chars)``: a script of bash, such as one command.

    Observation, reward and info:
        As for ``CodingEnv``. ``exit_code`` is that of the last command; ``outcome`` is ``error`` unless it is 0.

    Args:
        pool: As for ``CodingEnv``.
        config: As for ``CodingEnv``.
        options: As for ``CodingEnv``, but ``backend`` is always ``bash``.

    Raises:
        ConfigurationError: If an option is unknown or invalid.

    Example:
        >>> env = gym.make("CodingShellEnv-v0")  # doctest: +SKIP
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> observation, *_ = env.step("cd /usr && ls | head -n 1")  # doctest: +SKIP
        >>> observation["stdout"]  # doctest: +SKIP
        'bin\n'
    """

    _clones_by_replay = True

    def __init__(
        self,
        *,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        backend = options.setdefault("backend", _BACKEND)
        if backend != _BACKEND:
            message = f"Expected backend= to be {_BACKEND!r} or left out, got {backend!r}: CodingEnv-v0 has other backends"
            raise ConfigurationError(message)
        super().__init__(pool=pool, config=config, **options)

    def _make_episode(self, options: EnvOptions) -> EpisodeState:
        return _ShellEpisode(options)


class _ShellEpisode(EpisodeState):
    """An episode of shell commands."""

    env_id = "CodingShellEnv-v0"


class CodingShellVectorEnv(CodingVectorEnv):
    """The vector form of ``CodingShellEnv-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    Args:
        num_envs: Number of environments.
        options: Options of ``CodingVectorEnv`` and ``CodingShellEnv``.

    Raises:
        ConfigurationError: If an option is invalid.

    Example:
        >>> envs = gym.make_vec("CodingShellEnv-v0", num_envs=2)  # doctest: +SKIP
        >>> observations, infos = envs.reset(seed=1)  # doctest: +SKIP
        >>> observations, *_ = envs.step(["echo $((6 * 7))", "pwd"])  # doctest: +SKIP
    """

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        options.setdefault("backend", "bash")
        super().__init__(num_envs, **options)

    def _make_env(self, **settings: Any) -> CodingEnv:
        return CodingShellEnv(**settings)
