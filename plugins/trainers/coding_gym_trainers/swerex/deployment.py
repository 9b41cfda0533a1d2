"""``SandboxDeployment``: starts and removes the sandbox of a runtime."""

from __future__ import annotations

import logging
import threading
from typing import Unpack

from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import DeploymentNotStartedError
from swerex.runtime.abstract import IsAliveResponse

from coding_gym.client.processes import call_in_own_thread
from coding_gym.code_interpreter.client import CodeInterpreter, CodeInterpreterKwargs
from coding_gym_trainers.swerex.runtime import SandboxRuntime

__all__ = ["SandboxDeployment"]

_DEFAULTS: CodeInterpreterKwargs = {"sessions": 16, "backend": "python", "preload": ()}


class SandboxDeployment(AbstractDeployment):
    """``AbstractDeployment`` that starts a sandbox for ``SandboxRuntime``.

    Args:
        logger: Logger of SWE-ReX.
        sandbox_options: Arguments of ``CodeInterpreter``, such as ``image="my-image"`` or ``mem="4g"``.

    Example:
        >>> deployment = SandboxDeployment(provider="docker")  # doctest: +SKIP
        >>> await deployment.start()  # doctest: +SKIP
        >>> await deployment.runtime.create_session(CreateBashSessionRequest())  # doctest: +SKIP
    """

    def __init__(self, *, logger: logging.Logger | None = None, **sandbox_options: Unpack[CodeInterpreterKwargs]) -> None:
        self.logger = logger or logging.getLogger(__name__)
        self._options: CodeInterpreterKwargs = {**_DEFAULTS, **sandbox_options}
        self._hooks = CombinedDeploymentHook()
        self._runtime: SandboxRuntime | None = None
        # Held while a sandbox starts: threads continue if their calls are canceled.
        self._lock = threading.Lock()

    @property
    def runtime(self) -> SandboxRuntime:
        """The runtime. Raises ``DeploymentNotStartedError`` before ``start`` and after ``stop``."""
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        """Return whether the sandbox responds. Raises ``DeploymentNotStartedError`` before ``start`` and after ``stop``."""
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Start the sandbox. Idempotent.

        Raises:
            ConfigurationError: If an option is invalid.
            ProviderError: If no sandbox is available.
        """
        self._hooks.on_custom_step("Starting sandbox")
        await call_in_own_thread(self._start)

    async def stop(self) -> None:
        """Remove the sandbox, also one whose start was canceled. Idempotent."""
        runtime = await call_in_own_thread(self._take)
        if runtime is not None:
            await runtime.close()

    def _start(self) -> None:
        with self._lock:
            if self._runtime is None:
                self._runtime = SandboxRuntime(CodeInterpreter(**self._options), logger=self.logger)

    def _take(self) -> SandboxRuntime | None:
        with self._lock:
            runtime, self._runtime = self._runtime, None
            return runtime

    def __del__(self) -> None:
        # The inherited method requires an event loop.
        if (runtime := getattr(self, "_runtime", None)) is not None:
            runtime._interpreter.close()
