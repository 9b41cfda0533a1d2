"""Sandbox provider for NeMo Gym, named ``coding_gym``: registered by the entry point group ``nemo_gym.sandbox_providers``."""

from __future__ import annotations

import logging
import posixpath
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from gymnasium.error import ClosedEnvironmentError

from coding_gym.client.processes import ProcessResult, call_in_own_thread
from coding_gym.envs.async_coding_env import AsyncCodingEnv
from coding_gym.envs.options import CodingEnvKwargs
from coding_gym.errors import CodingGymError, ConfigurationError, TransportError
from coding_gym_trainers._commands import kept, losses
from coding_gym_trainers.file_programs import read_file, write_file

try:
    from nemo_gym.sandbox.providers.base import (
        SandboxCreateError,
        SandboxExecResult,
        SandboxHandle,
        SandboxSpec,
        SandboxStatus,
    )
except ImportError as error:
    message = "coding_gym_trainers.nemo_gym requires NeMo Gym, and Python 3.13.14 or later: pip install nemo-gym"
    raise ImportError(message) from error

__all__ = ["CodingGymProvider"]

_DEFAULTS: dict[str, Any] = {"sessions": 1, "preload": (), "screen": None}
_SUPERUSER = ("root", 0, "0")
_FAILED = 125
"""Return code of commands that did not run to their end, as of NeMo Gym's own providers."""

_log = logging.getLogger("coding_gym")


@dataclass
class _Started:
    """State of a handle.

    Attributes:
        env: The sandbox.
        workdir: Working directory, None for that of the session.
        variables: Environment variables of all commands.
    """

    env: AsyncCodingEnv
    workdir: str | None
    variables: dict[str, str]

    async def run(self, command: str | list[str], **options: Any) -> ProcessResult:
        """Run a command. Raises ``TransportError`` if the sandbox is gone."""
        try:
            with losses():
                return kept(await self.env.exec(command, **{"cwd": self.workdir, **options}))
        except ClosedEnvironmentError as error:
            message = "The sandbox was closed"
            raise TransportError(message) from error

    def path(self, path: str) -> str:
        """Return a path, which is relative to the working directory."""
        return posixpath.join(self.workdir or "", path)


class CodingGymProvider:
    """``SandboxProvider`` of NeMo Gym. Each sandbox is a container, or a local sandbox, with one session.

    An image is any, and commands for ``root`` run as its user, as all do.

    Args:
        options: Arguments of ``AsyncCodingEnv`` for all sandboxes, such as ``provider: docker`` or ``mem: 4g``. The resources
            and the ``provider_options`` of a specification take precedence.

    Example:
        >>> sandbox = AsyncSandbox({"coding_gym": {"provider": "docker"}})  # doctest: +SKIP
    """

    name = "coding_gym"

    def __init__(self, **options: Unpack[CodingEnvKwargs]) -> None:
        self._options = options
        self._started: dict[str, _Started] = {}

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a sandbox.

        Raises:
            SandboxCreateError: If it does not start, or an option is invalid or not supported.
        """
        try:
            env = await AsyncCodingEnv.acquire(**{**_DEFAULTS, **self._options, **_options(spec)})
        except CodingGymError as error:
            raise SandboxCreateError(str(error)) from error
        started = _Started(env, None, dict(spec.env))
        try:
            # It finds out whether the sandbox runs anything with these variables, too.
            made = await started.run(["mkdir", "-p", "--", spec.workdir or "."], env=started.variables)
            if made.exit_code != 0:
                raise SandboxCreateError(made.stderr_text.strip())
        except CodingGymError as error:
            await env.aclose()
            raise SandboxCreateError(str(error)) from error
        except BaseException:
            await env.aclose()
            raise
        started.workdir = spec.workdir
        identifier = f"{self.name}-{uuid.uuid4().hex[:12]}"
        self._started[identifier] = started
        return SandboxHandle(sandbox_id=identifier, provider_name=self.name, raw=started)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command in bash. A timeout, and the loss of the sandbox, are results with ``error_type``.

        Raises:
            ConfigurationError: If ``user`` is neither root nor None, or another argument is invalid.
        """
        if user is not None and user not in _SUPERUSER:
            message = f"A sandbox has the user of its session only, got user={user!r}"
            raise ConfigurationError(message)
        started: _Started = handle.raw
        options: dict[str, Any] = {"cwd": started.path(cwd) if cwd else started.workdir, "timeout": timeout_s}
        try:
            result = await started.run(command, env=started.variables | (env or {}), **options)
        except TransportError as error:
            return SandboxExecResult(None, str(error), _FAILED, error_type="sandbox")
        if result.timed_out:
            note = f"command timed out after {timeout_s:g}s"
            return SandboxExecResult(result.stdout_text, f"{result.stderr_text}{note}", _FAILED, error_type="timeout")
        return SandboxExecResult(result.stdout_text, result.stderr_text, result.exit_code)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file into the sandbox; executable files stay executable. Raises ``OSError`` if that fails."""
        source, target = Path(source_path), handle.raw.path(target_path)
        await write_file(handle.raw.run, target, source.read_bytes())
        if source.stat().st_mode & 0o100:
            await handle.raw.run(["chmod", "+x", "--", target])

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file out of the sandbox. Raises ``OSError`` if that fails."""
        content = await read_file(handle.raw.run, handle.raw.path(source_path))
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return ``RUNNING``, ``STOPPED`` after ``close``, or ``ERROR`` if the sandbox does not respond."""
        if (sandbox := handle.raw.env.sandbox) is None:
            return SandboxStatus.STOPPED
        try:
            await call_in_own_thread(sandbox.health)
        except CodingGymError:
            return SandboxStatus.ERROR
        return SandboxStatus.RUNNING

    async def close(self, handle: SandboxHandle) -> None:
        """Remove the sandbox. Idempotent."""
        self._started.pop(handle.sandbox_id, None)
        await handle.raw.env.aclose()

    async def aclose(self) -> None:
        """Remove all sandboxes. Idempotent."""
        while self._started:
            _, started = self._started.popitem()
            await started.env.aclose()


def _options(spec: SandboxSpec) -> dict[str, Any]:
    """Return the options of a specification.

    Raises:
        ConfigurationError: If it asks for what sandboxes do not have.
    """
    resources = spec.resources
    wanted = {"ports": spec.ports, "entrypoint": spec.entrypoint, "gpu": resources.gpu}
    if lacking := [name for name, value in wanted.items() if value]:
        message = f"Sandboxes have no {' and no '.join(lacking)}: leave them out of the specification"
        raise ConfigurationError(message)
    if spec.ttl_s is not None:
        _log.info("sandboxes of coding_gym live until they are closed: ttl_s=%s is ignored", spec.ttl_s)
    options = {
        "image": spec.image,
        "start_timeout": spec.ready_timeout_s,
        "cpu": resources.cpu,
        "mem": None if resources.memory_mib is None else f"{resources.memory_mib}m",
        "disk": None if resources.disk_gib is None else f"{resources.disk_gib}g",
    }
    return {**{name: value for name, value in options.items() if value is not None}, **spec.provider_options}
