"""``CodingClient``: the client of OpenEnv's coding environment, without its dependencies and without an event loop."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from coding_gym.client.address import Address
from coding_gym.client.coding_messages import CodeAction, CodeObservation, CodeState, CodeStepResult
from coding_gym.config import SandboxConfig
from coding_gym.errors import ConfigurationError, InvalidActionError, TransportError, TransportTimeoutError
from coding_gym.providers import start_sandbox
from coding_gym.settings import check_backend

if TYPE_CHECKING:
    from coding_gym.client.openenv import OpenEnvSession
    from coding_gym.providers import Sandbox

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodeStepResult", "CodingClient"]


class CodingClient:
    r"""Runs code on a server that speaks OpenEnv's protocol, ours or another.

    When an answer does not come, or is interrupted, the session is lost; the next ``step`` says so, and ``reset`` begins a new
    one. Not for use by two threads at a time.

    Args:
        base_url: A server that runs already, such as ``http://localhost:8000``, or a sandbox's ``address``; ``close`` leaves it
            running.
        token: What the server wants as bearer token, None for an open one.
        connect_timeout_s: Seconds that connecting may take.
        message_timeout_s: Seconds that an answer may take. Our server ends steps after 30 s, unless told otherwise.

    Raises:
        ConfigurationError: A setting cannot be.
        TransportError: The server cannot be reached.
        ProtocolError: There is something, but it does not accept the connection.

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
        **sandbox_options: Any,
    ) -> Self:
        """Start a hardened container, wait until it is ready, and connect to it; ``close`` removes it.

        Args:
            image: An image of our server; built from this package's own sources if None.
            additional_imports: Modules that code may import: the standard library's are allowed, others installed, once and
                into an image of their own, and allowed.
            executor_backend: How the server runs code: ``python``, ``restricted``, ``smolagents`` ...; its default if None.
            timeout_s: Seconds that the container may take to come up, not counting the build of its image.
            message_timeout_s: Seconds that an answer may take.
            sandbox_options: Other fields of ``SandboxConfig``, such as ``mem="1g"``.

        Raises:
            ConfigurationError: A setting cannot be.
            ProviderUnavailableError: No engine answers.
            ImageBuildError: The image is not there, and could not be had.
            PackageInstallError: One of ``additional_imports`` could not be installed.
            SandboxStartError: The container does not come up in time.
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
            episode_id: The name of the episode in ``state``; the server makes one up if None.
            options: Whatever else the server takes, of ours ``rewards=["safety", "quality"]``, ``step_timeout=5``,
                ``screen=(1024, 768)``, or ``capture="auto"``, which sends a screenshot whenever there is something to see.

        Raises:
            TransportError: There was no answer.
            CapacityError: The server has no free session.
            ProtocolError: The server refused.
        """
        self._require_open()
        named = {"seed": seed, "episode_id": episode_id}
        wanted = {**{name: value for name, value in named.items() if value is not None}, **options}
        if self._session.is_lost:
            self._session = self._connect()
        try:
            return self._session.reset(wanted)
        except TransportTimeoutError:
            raise
        except TransportError:
            # The connection broke while nobody looked, and nothing of the old session is wanted any more.
            self._session = self._connect()
            return self._session.reset(wanted)

    def step(self, action: CodeAction) -> CodeStepResult:
        """Run code in the episode. Whatever the code does is an observation.

        With ``capture_screenshot=True`` that has a picture of the screen: ``observation.screenshot``, a PNG in Base64.

        Raises:
            InvalidActionError: It is no action.
            TransportError: There was no answer, or the session was lost before.
            ProtocolError: The server refused.
        """
        if not isinstance(action, CodeAction):
            message = f"Expected CodeAction(code=...), got {type(action).__name__}"
            raise InvalidActionError(message)
        self._require_open()
        return self._session.step(action)

    def state(self) -> CodeState:
        """Return the state of the episode.

        Raises:
            TransportError: There was no answer, or the session was lost before.
        """
        self._require_open()
        return self._session.state()

    def close(self) -> None:
        """End the session, and remove the container if this client has started it; harmless when closed already."""
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
        from coding_gym.client.openenv import OpenEnvSession

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
