"""``CodeInterpreter``: a client of the code-interpreter API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from coding_gym.client.address import Address
from coding_gym.client.http import HttpClient
from coding_gym.client.session import Session
from coding_gym.config import SandboxConfig, sandbox_config
from coding_gym.interpreter.execution import Execution, ExecutionError, Listeners
from coding_gym.interpreter.files import Files
from coding_gym.providers import Sandbox, start_sandbox
from coding_gym.results import Result

__all__ = ["CodeInterpreter", "Context", "Contexts"]

_DEFAULTS: dict[str, Any] = {"sessions": 16, "backend": "notebook"}
_KEEPALIVES_LOST = 30.0
"""Seconds of silence after which a server that sends a keepalive every five is taken for dead."""


@dataclass(frozen=True)
class Context:
    """An interpreter.

    Attributes:
        id: Its name.
        language: What it executes.
        cwd: Its working directory.
    """

    id: str
    language: str
    cwd: str


class Contexts:
    """The contexts of a sandbox. All methods raise ``ProtocolError`` if the server refuses.

    Args:
        http: The server.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def create(self, *, language: str = "python", cwd: str = "/home/user") -> Context:
        """Start an interpreter of its own.

        Args:
            language: ``python``, ``javascript``, ``typescript``, ``bash``, or the name of a Jupyter kernel in the image.
            cwd: Its working directory.
        """
        body = json.dumps({"language": language, "cwd": cwd}).encode()
        with self._http.request("POST", "/contexts", body=body) as response:
            return Context(**self._http.json(response))

    def list(self) -> list[Context]:
        """Return all contexts, the default ones of the languages included, the oldest first."""
        with self._http.request("GET", "/contexts") as response:
            return [Context(**context) for context in self._http.json(response)]

    def restart(self, context: Context | str) -> None:
        """End all that runs in a context and begin with a fresh interpreter; its working directory and the files stay."""
        with self._http.request("POST", f"/contexts/{_id(context)}/restart") as response:
            response.read()

    def delete(self, context: Context | str) -> None:
        """End a context and all that runs in it."""
        with self._http.request("DELETE", f"/contexts/{_id(context)}") as response:
            response.read()


class CodeInterpreter:
    """Executes notebook cells in contexts that share a workspace.

    It may be used from several threads: calls to one context queue, those to different ones run at the same time.

    Args:
        base_url: A running server; None to start a sandbox, which goes at ``close``.
        token: The server's token, if it has one.
        config: The sandbox to start, as a ``SandboxConfig`` or a mapping of its fields.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``.

    Attributes:
        files: The files of the workspace.
        contexts: The contexts.

    Raises:
        ConfigurationError: A setting cannot be.
        ProviderError: The sandbox cannot be started.

    Example:
        >>> with CodeInterpreter() as interpreter:  # doctest: +SKIP
        ...     interpreter.execute("1 + 1").text
        '2'
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token: str | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **sandbox_options: Any,
    ) -> None:
        self._sandbox: Sandbox | None = None
        self._presence: Session | None = None
        if base_url is None:
            resolved = sandbox_config(config, {**(_DEFAULTS if config is None else {}), **sandbox_options})
            # One more, for the connection that tells the sandbox that it is still wanted.
            self._sandbox = start_sandbox(replace(resolved, sessions=resolved.sessions + 1))
            try:
                self._presence = self._sandbox.connect()
            except BaseException:
                self._sandbox.close()
                raise
            address = self._sandbox.address
        else:
            address = Address.of_url(base_url, token=token)
        self._http = HttpClient(address)
        self.files = Files(self._http)
        self.contexts = Contexts(self._http)

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, if this started it."""
        return self._sandbox

    def execute(
        self,
        code: str,
        *,
        context: Context | str | None = None,
        language: str | None = None,
        env_vars: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_stdout: Callable[[str], None] | None = None,
        on_stderr: Callable[[str], None] | None = None,
        on_result: Callable[[Result], None] | None = None,
        on_error: Callable[[ExecutionError], None] | None = None,
    ) -> Execution:
        """Execute code and return what came of it; whatever the code does is no exception here.

        Args:
            code: The code.
            context: Where; the default context of ``language`` if None.
            language: Python if None. Excludes ``context``.
            env_vars: Environment variables that are set while it runs.
            timeout: Wall-clock limit in seconds; the server's default, 300, if None.
            on_stdout: Called with each piece of stdout as it comes.
            on_stderr: Called with each piece of stderr as it comes.
            on_result: Called with each result as it comes.
            on_error: Called with what ended it.

        Raises:
            ProtocolError: The server refuses: there is no such context or language, for example.
            TransportError: The server does not answer, or falls silent.
        """
        body = {
            "code": code,
            "context_id": None if context is None else _id(context),
            "language": language,
            "env_vars": None if env_vars is None else dict(env_vars),
            "timeout": timeout,
        }
        listeners = Listeners(on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error)
        execution = Execution()
        with self._http.request("POST", "/execute", body=json.dumps(body).encode(), timeout=_KEEPALIVES_LOST) as response:
            for line in self._http.lines(response):
                listeners.take(json.loads(line), execution)
        return execution

    def close(self) -> None:
        """Close the connections, and remove the sandbox if this started it; harmless when closed already."""
        self._http.close()
        if self._presence is not None:
            self._presence.close()
        if self._sandbox is not None:
            self._sandbox.close()

    def __enter__(self) -> CodeInterpreter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _id(context: Context | str) -> str:
    return context.id if isinstance(context, Context) else context
