"""``CodingClient``: the client of OpenEnv's coding environment, without its dependencies and without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from coding_gym._validation import check_backend
from coding_gym.client.address import Address
from coding_gym.errors import ConfigurationError, InvalidActionError, TransportError, TransportTimeoutError
from coding_gym.openenv.messages import CodeAction, CodeObservation, CodeState, CodeStepResult
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig, StartKwargs

if TYPE_CHECKING:
    from coding_gym.openenv.session import OpenEnvSession
    from coding_gym.sandbox import Sandbox

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodeStepResult", "CodingClient"]


class CodingClient:
    r"""Client of a server that speaks OpenEnv's protocol: coding_gym's or another one.

    If a response does not arrive or waiting for it is interrupted, the session is lost: the next ``step`` raises an error, and
    ``reset`` begins a new session. Not thread-safe.

    Args:
        base_url: A running server, such as ``http://localhost:8000``, or a sandbox's ``address``; ``close`` does not stop it.
        token: Bearer token, None for a server without one.
        connect_timeout_s: Connection timeout in seconds.
        message_timeout_s: Response timeout in seconds. coding_gym's server ends steps after 30 s by default.

    Raises:
        ConfigurationError: If an option is invalid.
        TransportError: If the server cannot be reached.
        ProtocolError: If the endpoint does not accept the connection.

    Example:
        >>> client = CodingClient.from_docker_image()  # doctest: +SKIP
        >>> client.step(CodeAction(code="print('hello')")).observation.stdout  # doctest: +SKIP
        'hello\n'
        >>> client.close()  # doctest: +SKIP
    """

    def __init__(
        self,
        base_url: str | Address,
        *,
        token: str | None = None,
        connect_timeout_s: float = 10.0,
        message_timeout_s: float = 60.0,
    ) -> None:
        self._address = base_url if isinstance(base_url, Address) else Address.of_url(base_url, token=token)
        self._connect_timeout = _seconds("connect_timeout_s", connect_timeout_s)
        self._message_timeout = _seconds("message_timeout_s", message_timeout_s)
        self._sandbox: Sandbox | None = None
        self._closed = False
        self._session = self._connect()

    @classmethod
    def from_docker_image(
        cls,
        image: str | None = None,
        *,
        additional_imports: Sequence[str] = (),
        executor_backend: str | None = None,
        timeout_s: float = 30.0,
        message_timeout_s: float = 60.0,
        **sandbox_options: Unpack[StartKwargs],
    ) -> Self:
        """Start a hardened container, wait until it is ready, and connect to it; ``close`` removes the container.

        Args:
            image: An image of coding_gym's server; built from this package's sources if None.
            additional_imports: Modules that code may import; those outside of the standard library are also installed, once, in
                a dedicated image.
            executor_backend: Backend of the server: ``python``, ``restricted``, ``smolagents`` ...; its default if None.
            timeout_s: Seconds that the container may take to start, excluding the build of its image.
            message_timeout_s: Response timeout in seconds.
            sandbox_options: Other fields of ``SandboxConfig``, such as ``mem="1g"``.

        Raises:
            ConfigurationError: If an option is invalid.
            ProviderUnavailableError: If no engine answers.
            ImageBuildError: If the image does not exist, and cannot be built or pulled.
            PackageInstallError: If one of ``additional_imports`` cannot be installed.
            SandboxStartError: If the container does not start in time.
        """
        _seconds("message_timeout_s", message_timeout_s)
        if executor_backend is not None:
            check_backend(executor_backend, "executor_backend")
        packages = (*sandbox_options.pop("packages", ()), *_module_names(additional_imports))
        options = {"image": image, "start_timeout": timeout_s, "packages": packages, "backend": executor_backend}
        sandbox = start_sandbox(SandboxConfig.of({"provider": "docker", **options, **sandbox_options}))
        try:
            client = cls(sandbox.address, message_timeout_s=message_timeout_s)
        except BaseException:
            sandbox.close()
            raise
        client._sandbox = sandbox
        return client

    def reset(self, *, seed: int | None = None, episode_id: str | None = None, **options: Any) -> CodeStepResult:
        """Begin an episode: a fresh interpreter in an empty workspace.

        Args:
            seed: Seeds ``random`` and ``numpy.random``.
            episode_id: The id of the episode in ``state``; generated by the server if None.
            options: Other options of the server; coding_gym's accepts ``rewards=["safety", "quality"]``, ``step_timeout=5``,
                ``screen=(1024, 768)``, or ``capture="auto"``, which sends a screenshot whenever something is shown.

        Raises:
            TransportError: If the server does not respond.
            CapacityError: If the server has no free session.
            ProtocolError: If the server refuses.
        """
        self._require_open()
        named = {"seed": seed, "episode_id": episode_id}
        reset_options = {**{name: value for name, value in named.items() if value is not None}, **options}
        if self._session.is_lost:
            self._session = self._connect()
        try:
            return self._session.reset(reset_options)
        except TransportTimeoutError:
            raise
        except TransportError:
            # The connection broke since the last request; the old session is obsolete.
            self._session = self._connect()
            return self._session.reset(reset_options)

    def step(self, action: CodeAction) -> CodeStepResult:
        """Run code in the episode; everything that the code does, including errors, is an observation.

        With ``capture_screenshot=True``, ``observation.screenshot`` contains the screen as a Base64-encoded PNG.

        Raises:
            InvalidActionError: If it is not an action.
            TransportError: If the server does not respond, or the session was lost before.
            ProtocolError: If the server refuses.
        """
        if not isinstance(action, CodeAction):
            message = f"Expected CodeAction(code=...), got {type(action).__name__}"
            raise InvalidActionError(message)
        self._require_open()
        return self._session.step(action)

    def state(self) -> CodeState:
        """Return the state of the episode.

        Raises:
            TransportError: If the server does not respond, or the session was lost before.
        """
        self._require_open()
        return self._session.state()

    def close(self) -> None:
        """End the session, and remove the container if this client started it. Idempotent."""
        self._closed = True
        self._session.close()
        if self._sandbox is not None:
            self._sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed:
            message = "The client is closed. Make a new one."
            raise TransportError(message)

    def _connect(self) -> OpenEnvSession:
        from coding_gym.openenv.session import OpenEnvSession

        return OpenEnvSession(self._address, connect_timeout=self._connect_timeout, message_timeout=self._message_timeout)


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or not value > 0:
        message = f"Expected {name}= to be a positive number of seconds, got {value!r}"
        raise ConfigurationError(message)
    return value


def _module_names(names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not all(isinstance(name, str) and name.strip() and "," not in name for name in names):
        message = f"Expected additional_imports= to be a list of module names such as ['numpy'], got {names!r}"
        raise ConfigurationError(message)
    return tuple(names)
