"""``SandboxEnvironment``: the trials of Harbor run in sandboxes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gymnasium.error import ClosedEnvironmentError
from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import (
    COMPOSE_FILE_NAME,
    require_agent_environment_definition,
    should_use_prebuilt_docker_image,
)
from harbor.models.task.config import NetworkMode

from coding_gym.client.processes import ProcessResult, call_in_own_thread
from coding_gym.envs.async_coding_env import AsyncCodingEnv
from coding_gym.errors import ConfigurationError, ImageBuildError, TransportError
from coding_gym_trainers._commands import kept, losses
from coding_gym_trainers.file_programs import (
    download_directory,
    read_file,
    upload_directory,
    write_file,
)
from coding_gym_trainers.harbor.images import build_task, working_directory

__all__ = ["SandboxEnvironment"]

_DEFAULTS: dict[str, Any] = {"provider": "docker", "sessions": 1, "root": True, "preload": (), "screen": None}


class SandboxEnvironment(BaseEnvironment):
    """``BaseEnvironment`` that runs a trial in a session of the task's own image.

    Its files are all there, and programs change them in a layer of the session. Commands run as the image's user, or as the
    one that they are for, root included, which is root of the session (see ``docs/security.md``).

    Args:
        arguments: Arguments of ``BaseEnvironment``.
        sandbox: Fields of ``SandboxConfig``, which take precedence over the resources of the task; ``network`` gives access
            to one. In a job's configuration: ``environment: {import_path: ..., kwargs: {sandbox: {mem: 4g}}}``.
        options: Keyword arguments of ``BaseEnvironment``.

    Raises:
        ConfigurationError: If the task consists of several services.
    """

    def __init__(self, *arguments: Any, sandbox: Mapping[str, Any] | None = None, **options: Any) -> None:
        self._sandbox = dict(sandbox or {})
        self._env: AsyncCodingEnv | None = None
        self._directory: str | None = None
        super().__init__(*arguments, **options)

    @staticmethod
    def type() -> str:
        """Return the name of the environment."""
        return "coding_gym"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """What the environment can do: run without internet access."""
        return EnvironmentCapabilities(disable_internet=True)

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Return which resources it limits: CPU time and memory."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    def _validate_definition(self) -> None:
        require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if (self.environment_dir / COMPOSE_FILE_NAME).exists():
            message = f"A sandbox is one container: the task in {self.environment_dir} has a {COMPOSE_FILE_NAME}"
            raise ConfigurationError(message)

    async def start(self, force_build: bool) -> None:
        """Build the image of the task, and start a container.

        Raises:
            SandboxBuildFailedError: If the image does not build.
            ProviderError: If the container does not start.
            ConfigurationError: If an option of the sandbox is invalid.
        """
        try:
            image, self._directory = await call_in_own_thread(lambda: self._image(force_build))
        except ImageBuildError as error:
            raise SandboxBuildFailedError(str(error)) from error
        if self.network_policy.network_mode == NetworkMode.PUBLIC and "network" not in self._sandbox:
            self.logger.warning("The task expects network access, which its sandbox lacks: pass sandbox={'network': 'bridge'}")
        options: dict[str, Any] = {"image": image}
        if (cpus := self._effective_cpus) is not None:
            options["cpu"] = cpus
        if (memory := self._effective_memory_mb) is not None:
            options["mem"] = f"{memory}m"
        self._env = await AsyncCodingEnv.acquire(**{**_DEFAULTS, **options, **self._sandbox})
        if self._directory is not None:
            await self._run(["mkdir", "-p", "--", self._directory])
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        """Remove the container; it is not kept if ``delete`` is false, either. Idempotent."""
        if self._env is not None:
            await self._env.aclose()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in bash.

        Raises:
            RuntimeError: If it exceeds its timeout, as for Harbor's own environments.
            ConfigurationError: If the environment is not started.
            TransportError: If the sandbox is gone.
        """
        user = self._resolve_user(user)
        options: dict[str, Any] = {"cwd": cwd or self._directory, "env": self._merge_env(env), "timeout": timeout_sec}
        result = await self._run(["bash", "-c", command], user=None if user is None else str(user), **options)
        if result.timed_out:
            message = f"Command timed out after {timeout_sec} seconds"
            raise RuntimeError(message)
        return ExecResult(stdout=result.stdout_text, stderr=result.stderr_text, return_code=result.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the sandbox; executable files stay executable. Raises ``OSError`` if that fails."""
        source = Path(source_path)
        await write_file(self._run_as_root, target_path, source.read_bytes())
        if source.stat().st_mode & 0o100:
            await self._run_as_root(["chmod", "+x", "--", target_path])

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy the content of a directory into the sandbox. Raises ``OSError`` if that fails."""
        await upload_directory(self._run_as_root, source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        """Copy a file out of the sandbox. Raises ``OSError`` if that fails."""
        target = Path(target_path)
        content = await read_file(self._run_as_root, source_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        """Copy the content of a directory out of the sandbox, without links that lead out. Raises ``OSError`` if that fails."""
        await download_directory(self._run_as_root, source_dir, target_dir)

    def _image(self, force_build: bool) -> tuple[str | None, str | None]:
        """Return the name of the image, and the working directory, None for that of a session."""
        config = self.task_env_config
        base = config.docker_image
        if not should_use_prebuilt_docker_image(self.environment_dir, docker_image=base, force_build=force_build):
            base = build_task(self.environment_dir, force=force_build)
        return base, config.workdir or working_directory(base)

    async def _run_as_root(self, command: list[str], **options: Any) -> ProcessResult:
        return await self._run(command, user="root", **options)

    async def _run(self, command: list[str], **options: Any) -> ProcessResult:
        if self._env is None:
            message = "The environment is not started: call start"
            raise ConfigurationError(message)
        try:
            with losses():
                return kept(await self._env.exec(command, **options))
        except ClosedEnvironmentError as error:
            message = "The environment was stopped"
            raise TransportError(message) from error
