"""Environment for mini-swe-agent: ``environment_class: coding_gym_trainers.minisweagent.SandboxEnvironment``."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Any

from pydantic import BaseModel, ConfigDict

from coding_gym.client.processes import ProcessResult
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym.sandbox.pool import SandboxPool
from coding_gym_trainers._commands import kept, losses

try:
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.utils.serialize import recursive_merge
except ImportError as error:
    message = "coding_gym_trainers.minisweagent requires mini-swe-agent: pip install 'coding-gym[minisweagent]'"
    raise ImportError(message) from error

__all__ = ["SandboxEnvironment", "SandboxEnvironmentConfig"]

_SANDBOX: dict[str, Any] = {"sessions": 1, "preload": ()}
_MERGED = ["sh", "-c", 'exec "$@" 2>&1', "sh"]
_UNAME = {"system": "-s", "node": "-n", "release": "-r", "version": "-v", "machine": "-m"}
_FAILED = -1


class SandboxEnvironmentConfig(BaseModel):
    """Options of ``SandboxEnvironment``.

    Attributes:
        cwd: Working directory of commands, relative to that of the session, which is the default.
        env: Environment variables of commands.
        timeout: Wall-clock limit of a command in seconds.
        interpreter: Program that runs the command, which is its last argument.
        image: Image of the sandbox, as mini-swe-agent's runners of benchmarks set it; None for that of ``sandbox``.
        sandbox: Arguments of ``CodingEnv``: the sandbox's ``provider``, ``image``, ``packages``, ``mem`` ...
    """

    model_config = ConfigDict(extra="forbid")

    cwd: str = ""
    env: dict[str, str] = {}
    timeout: float = 30
    interpreter: list[str] = ["bash", "-c"]
    image: str | None = None
    sandbox: dict[str, Any] = {}


class SandboxEnvironment(LocalEnvironment):
    """``LocalEnvironment`` whose commands run in a sandbox, which starts with this object.

    Each command is its own process: variables and the directory do not persist, files do. A command that exceeds its
    timeout is killed with its descendants, and its output until then is kept. Commands that cannot run are outputs that say
    why; the loss of the sandbox is not, but raises ``TransportError``, so that no trajectory blames the model for it.

    Use it as a context manager, or call ``cleanup``.

    Args:
        pool: Pool to lease the sandbox from; the environment starts its own sandbox if None.
        config_class: Class of the configuration.
        options: Fields of ``SandboxEnvironmentConfig``.

    Raises:
        pydantic.ValidationError: If an option is unknown or invalid.
        ConfigurationError: If an option of the sandbox is invalid.
        ProviderError: If no sandbox is available.

    Example:
        >>> with SandboxEnvironment(sandbox={"provider": "docker"}) as env:  # doctest: +SKIP
        ...     DefaultAgent(model, env, **agent_config).run("Fix the tests.")
    """

    def __init__(
        self, *, pool: SandboxPool | None = None, config_class: type[Any] = SandboxEnvironmentConfig, **options: Any
    ) -> None:
        super().__init__(config_class=config_class, **options)
        defaults = {"screen": None} if pool is not None else {"screen": None, **_SANDBOX}
        self._env = CodingEnv(pool=pool, **{**defaults, **self.config.sandbox})
        try:
            self._env.reset(options={"image": self.config.image})
            script = "; ".join(f"uname {option}" for option in _UNAME.values())
            self._uname = dict(zip(_UNAME, self._env.exec(script).stdout_text.splitlines(), strict=False))
        except BaseException:
            self._env.close()
            raise

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        """Run a command; return its ``output``, ``returncode`` and ``exception_info``, as ``LocalEnvironment`` does.

        Raises:
            Submitted: If the command says that the task is completed.
            TransportError: If the sandbox is gone.
        """
        command = action.get("command", "")
        timeout = timeout or self.config.timeout
        options = {"cwd": cwd or self.config.cwd or None, "env": self.config.env, "timeout": timeout}
        try:
            with losses():
                result = kept(self._env.exec([*_MERGED, *self.config.interpreter, command], **options))
        except (ConfigurationError, ProtocolError) as error:
            return _failure("", error)
        if result.timed_out:
            return _failure(_text(result), subprocess.TimeoutExpired(command, timeout))
        output = {"output": _text(result), "returncode": result.exit_code, "exception_info": ""}
        self._check_finished(output)
        return output

    def get_template_vars(self, **kwargs: Any) -> dict[str, Any]:
        """Return the variables of prompts: the configuration, and the operating system of the sandbox."""
        variables: dict[str, Any] = recursive_merge(self.config.model_dump(), self._uname, kwargs)
        return variables

    def cleanup(self) -> None:
        """Remove the sandbox, or return it to the pool. Idempotent."""
        self._env.close()

    def __enter__(self) -> SandboxEnvironment:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cleanup()


def _text(result: ProcessResult) -> str:
    dropped = f"\n[{result.dropped_stdout} more bytes]" if result.dropped_stdout else ""
    # The streams are one: the other one has only why the command did not start, or was killed.
    return result.stdout_text + dropped + result.stderr_text


def _failure(output: str, error: Exception) -> dict[str, Any]:
    return {
        "output": output,
        "returncode": _FAILED,
        "exception_info": f"An error occurred while executing the command: {error}",
        "extra": {"exception_type": type(error).__name__, "exception": str(error)},
    }
