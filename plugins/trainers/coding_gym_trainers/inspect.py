"""Sandbox provider for Inspect: ``Task(sandbox="coding_gym")``. Registered by the entry point group ``inspect_ai``.

Each sample gets its own sandbox with one session, so that its ``/tmp`` is writable and private.
"""

from __future__ import annotations

import errno
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, overload

from gymnasium.error import ClosedEnvironmentError
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict

from coding_gym.client.processes import ProcessResult
from coding_gym.envs.async_coding_env import AsyncCodingEnv
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError
from coding_gym_trainers._commands import kept, losses
from coding_gym_trainers.file_programs import read_file, write_file

__all__ = ["CodingGymSandbox", "CodingGymSandboxConfig"]

_DEFAULTS: dict[str, Any] = {"sessions": 1, "preload": (), "screen": None}
_CANNOT_EXECUTE = 126
_TOO_LARGE = "Argument list too long"


class CodingGymSandboxConfig(BaseModel):
    """Options of ``AsyncCodingEnv`` and fields of ``SandboxConfig``: ``SandboxEnvironmentSpec("coding_gym", config)``.

    Example:
        >>> CodingGymSandboxConfig(provider="docker", mem="4g").model_dump()
        {'provider': 'docker', 'mem': '4g'}
    """

    model_config = ConfigDict(extra="allow", frozen=True)


@sandboxenv(name="coding_gym")
class CodingGymSandbox(SandboxEnvironment):
    """Sandbox of a sample.

    Args:
        env: The started environment.
    """

    def __init__(self, env: AsyncCodingEnv) -> None:
        super().__init__()
        self._env = env

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Start the sandbox of a sample.

        Args:
            task_name: Ignored.
            config: The sandbox, or the path of a Dockerfile for its image; that of the defaults if None.
            metadata: Ignored.

        Raises:
            ConfigurationError: If an option is unknown or invalid.
            ProviderError: If no sandbox is available.
        """
        if isinstance(config, str):
            options: dict[str, Any] = {"image": _dockerfile(config)}
        else:
            options = {} if config is None else config.model_dump()
        return {"default": cls(await AsyncCodingEnv.acquire(**{**_DEFAULTS, **options}))}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Remove the sandbox of a sample."""
        for environment in environments.values():
            await environment.as_type(CodingGymSandbox)._env.aclose()

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Return the configuration of a log."""
        return CodingGymSandboxConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program; see ``SandboxEnvironment.exec``.

        Raises:
            TimeoutError: If it exceeds ``timeout`` seconds. Its ``truncated_output`` is the output until then, if there is any.
            PermissionError: If it is not executable.
            ValueError: If an argument or a variable contains a null byte.
            OutputLimitExceededError: If it prints more than Inspect's limit.
            SandboxUserUnsupportedError: If ``user`` is another user than that of the session.
            SandboxUnavailableError: If the sandbox is gone, or cannot start another process.
        """
        if any("\0" in text for text in (*cmd, cwd or "", *(env or {}), *(env or {}).values())):
            # Inspect recognizes the words of ``subprocess``, and tells the model.
            message = "embedded null byte"
            raise ValueError(message)
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            result = await self._run(cmd, input or b"", cwd=cwd, env=env, user=user, timeout=timeout, max_output_bytes=limit)
        except ProtocolError as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise SandboxUnavailableError(str(error)) from error
            # The kernel refuses programs with less than that.
            return ExecResult(False, _CANNOT_EXECUTE, "", f"{cmd[0]}: {_TOO_LARGE}\n")
        if result.timed_out:
            message = f"{cmd[0]} exceeded {timeout} s"
            raise _timeout_error(message, result)
        if result.dropped_stdout or result.dropped_stderr:
            truncated = result.stdout_text + result.stderr_text
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, truncated)
        if result.exit_code == _CANNOT_EXECUTE and "Permission denied" in result.stderr_text:
            raise PermissionError(result.stderr_text)
        return ExecResult(result.exit_code == 0, result.exit_code, result.stdout_text, result.stderr_text)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file; missing directories are created.

        Raises:
            IsADirectoryError: If it is a directory.
            PermissionError: If it is not writable.
            TimeoutError: If that takes more than ten minutes.
            OSError: If it cannot be written for another reason, such as a full disk.
            SandboxUnavailableError: If the sandbox is gone, or cannot start another process.
        """
        await write_file(self._run_for_file, file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: If it does not exist.
            IsADirectoryError: If it is a directory.
            PermissionError: If it is not readable.
            UnicodeDecodeError: If it is not UTF-8, and ``text`` is true.
            OutputLimitExceededError: If it is larger than Inspect's limit.
            TimeoutError: If that takes more than ten minutes: a pipe has no end, for example.
            OSError: If it cannot be read for another reason.
            SandboxUnavailableError: If the sandbox is gone, or cannot start another process.
        """
        try:
            content = await read_file(self._run_for_file, file, max_bytes=SandboxEnvironmentLimits.MAX_READ_FILE_SIZE)
        except OSError as error:
            if error.errno != errno.EFBIG:
                raise
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None) from error
        return content.decode() if text else content

    async def _run_for_file(self, command: list[str], stdin: str | bytes = b"", **options: Any) -> ProcessResult:
        try:
            return await self._run(command, stdin, **options)
        except ProtocolError as error:
            raise SandboxUnavailableError(str(error)) from error

    async def _run(self, command: list[str], stdin: str | bytes = b"", **options: Any) -> ProcessResult:
        """Run a program.

        Raises:
            SandboxUserUnsupportedError: If the user is not available.
            SandboxUnavailableError: If the sandbox is gone.
            ProtocolError: If the server refuses.
        """
        try:
            with losses():
                return kept(await self._env.exec(command, stdin=stdin, **options))
        except ConfigurationError as error:
            if options.get("user") is not None:
                raise SandboxUserUnsupportedError(str(error)) from error
            raise
        except (TransportError, ClosedEnvironmentError) as error:
            raise SandboxUnavailableError(str(error)) from error


def _dockerfile(path: str) -> str:
    """Return the absolute path of a Dockerfile, or of the directory with one.

    Raises:
        ConfigurationError: If it is another file, such as one of Docker Compose.
    """
    found = Path(path).resolve()
    if not ("Dockerfile" in found.name and found.is_file()) and not (found / "Dockerfile").is_file():
        message = (
            "Expected config to be a CodingGymSandboxConfig, None, or the path of a Dockerfile, whose sandbox has no further "
            f"services as Docker Compose starts them; got {path!r}"
        )
        raise ConfigurationError(message)
    return str(found)


def _timeout_error(message: str, result: ProcessResult) -> TimeoutError:
    error = TimeoutError(message)
    if output := result.stdout_text + result.stderr_text:
        # Inspect shows it to the model.
        error.truncated_output = output  # type: ignore[attr-defined]
    return error
