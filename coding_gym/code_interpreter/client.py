"""``CodeInterpreter``: a client of the code-interpreter API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Unpack

from coding_gym._validation import parameter_names
from coding_gym.client.address import Address
from coding_gym.client.files import Files
from coding_gym.client.http import KEEPALIVES_LOST, HttpClient
from coding_gym.client.processes import Command, Processes, ProcessResult, RunKwargs
from coding_gym.client.session import Session
from coding_gym.code_interpreter.execution import Execution, ExecutionError, Listeners
from coding_gym.errors import ConfigurationError, TransportError
from coding_gym.media.results import Result
from coding_gym.sandbox import Sandbox, start_sandbox
from coding_gym.sandbox.config import SandboxConfig, StartKwargs, sandbox_config

__all__ = ["CodeInterpreter", "Context", "Contexts"]

_DEFAULTS: dict[str, Any] = {"sessions": 16, "backend": "notebook"}
_END = "end_of_execution"
"""Type of the last message of an execution."""


@dataclass(frozen=True)
class Context:
    """An interpreter context.

    Attributes:
        id: Id of the context.
        language: Language that it executes.
        cwd: Working directory.
    """

    id: str
    language: str
    cwd: str


class Contexts:
    """The contexts of a sandbox. All methods raise ``ProtocolError`` if the server refuses.

    They raise ``ConfigurationError`` for a language or a working directory that the sandbox does not have.

    Args:
        http: The server.
    """

    def __init__(self, http: HttpClient) -> None:
        self._http = http

    def create(self, *, language: str = "python", cwd: str | None = None) -> Context:
        """Start a separate interpreter.

        Args:
            language: ``python``, ``javascript``, ``typescript``, ``bash``, a language of the sandbox's ``languages=``, or the
                name of a Jupyter kernel in the image.
            cwd: Working directory; that of the sandbox's image if None, ``/home/user`` in the default one.
        """
        body = json.dumps({"language": language} if cwd is None else {"language": language, "cwd": cwd}).encode()
        with self._http.request("POST", "/contexts", body=body) as response:
            return Context(**self._http.json(response))

    def list(self) -> list[Context]:
        """Return all contexts, including the default ones of the languages, the oldest first."""
        with self._http.request("GET", "/contexts") as response:
            return [Context(**context) for context in self._http.json(response)]

    def restart(self, context: Context | str) -> None:
        """End everything that runs in a context, and start a new interpreter; working directory and files are preserved."""
        with self._http.request("POST", f"/contexts/{_id(context)}/restart") as response:
            response.read()

    def interrupt(self, context: Context | str) -> None:
        """Interrupt what runs in a context, as Ctrl-C does; variables are preserved if it stops. No effect if nothing runs."""
        with self._http.request("POST", f"/contexts/{_id(context)}/interrupt") as response:
            response.read()

    def delete(self, context: Context | str) -> None:
        """End a context and everything that runs in it."""
        with self._http.request("DELETE", f"/contexts/{_id(context)}") as response:
            response.read()


class CodeInterpreterKwargs(StartKwargs, total=False):
    """Keyword arguments of the sandbox of a code interpreter."""

    image: str | None


class CodeInterpreter:
    """Executes notebook cells in contexts that share a workspace.

    Thread-safe: calls to the same context are queued, calls to different contexts run concurrently.

    Args:
        base_url: A running server; None to start a sandbox, which ``close`` removes.
        token: Bearer token, None for a server without one.
        config: The sandbox to start, as a ``SandboxConfig`` or a mapping of its fields.
        sandbox_options: Fields of ``SandboxConfig``, instead of ``config``.

    Attributes:
        files: The files of the workspace.
        contexts: The contexts.

    Raises:
        ConfigurationError: If an option is invalid.
        ProviderError: If the sandbox cannot be started.

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
        **sandbox_options: Unpack[CodeInterpreterKwargs],
    ) -> None:
        self._sandbox: Sandbox | None = None
        self._keepalive: Session | None = None
        if base_url is None and token is not None:
            message = "token= requires base_url=, the server that it is for: a sandbox that this client starts has its own"
            raise ConfigurationError(message)
        if base_url is not None and (config is not None or sandbox_options):
            names = ", ".join(["config", *sandbox_options] if config is not None else sandbox_options)
            message = f"The server at base_url= has been started already: pass {names} to it instead"
            raise ConfigurationError(message)
        if base_url is None:
            defaults = _DEFAULTS if config is None else {}
            resolved = sandbox_config(config, {**defaults, **sandbox_options}, parameter_names(CodeInterpreter))
            # One more, for the connection that keeps the sandbox from ending by itself.
            self._sandbox = start_sandbox(replace(resolved, sessions=resolved.sessions + 1))
            try:
                self._keepalive = self._sandbox.connect()
            except BaseException:
                self._sandbox.close()
                raise
            address = self._sandbox.address
        else:
            address = Address.of_url(base_url, token=token)
        self._http = HttpClient(address, checks_version=base_url is not None)
        self.files = Files(self._http)
        self.contexts = Contexts(self._http)

    @property
    def sandbox(self) -> Sandbox | None:
        """The sandbox, None if this client did not start one."""
        return self._sandbox

    def execute(
        self,
        code: str,
        *,
        context: Context | str | None = None,
        language: str | None = None,
        env_vars: Mapping[str, str] | None = None,
        timeout: float | None = None,
        quotes: bool = False,
        on_stdout: Callable[[str], None] | None = None,
        on_stderr: Callable[[str], None] | None = None,
        on_result: Callable[[Result], None] | None = None,
        on_error: Callable[[ExecutionError], None] | None = None,
    ) -> Execution:
        """Execute code and return its outcome; errors of the code are not raised here.

        Args:
            code: The code.
            context: Context to execute in; the default context of ``language`` if None.
            language: Language of the default context, Python if None; mutually exclusive with ``context``.
            env_vars: Environment variables that are set while it runs.
            timeout: Wall-clock limit in seconds; the server's default, 300, if None.
            quotes: Whether the text of a string is its ``repr``, with quotes; without them by default, as for e2b's SDK.
            on_stdout: Called with each chunk of stdout as it arrives.
            on_stderr: Called with each chunk of stderr as it arrives.
            on_result: Called with each result as it arrives.
            on_error: Called with the error that ended the execution.

        Raises:
            ConfigurationError: If the sandbox does not have the language.
            ProtocolError: If the server refuses for another reason, such as an unknown context.
            TransportError: If the server does not respond, its keepalives stop, or it ends before the execution.
        """
        body = {
            "code": code,
            "context_id": None if context is None else _id(context),
            "language": language,
            "env_vars": None if env_vars is None else dict(env_vars),
            "timeout": timeout,
            "quotes": quotes,
        }
        listeners = Listeners(on_stdout=on_stdout, on_stderr=on_stderr, on_result=on_result, on_error=on_error)
        execution, message = Execution(), {"type": ""}
        with self._http.request("POST", "/execute", body=json.dumps(body).encode(), timeout=KEEPALIVES_LOST) as response:
            for line in self._http.lines(response):
                if line.endswith(b"\n"):
                    message = json.loads(line)
                    listeners.take(message, execution)
        if message["type"] != _END:
            reason = "The server ended the connection before the execution: the sandbox has ended, or a proxy cut it off"
            raise TransportError(reason)
        return execution

    def run_process(
        self, command: Command, *, context: Context | str | None = None, **options: Unpack[RunKwargs]
    ) -> ProcessResult:
        """Run a process to its end, beside the cells of a context; see ``Processes.run``.

        Args:
            command: A program and its arguments, or a command for the shell.
            context: Context whose processes it joins, and which it ends with; Python's default context if None.
            options: ``stdin=``, ``cwd=``, ``env=``, ``timeout=``, ``user=``, ``max_output_bytes=``, ``keep=``.

        Raises:
            ConfigurationError: If an argument is invalid.
            ProtocolError: If the server refuses for another reason, such as an unknown context.
            TransportError: If the server does not respond.
        """
        return self.processes(context).run(command, **options)

    def processes(self, context: Context | str | None = None) -> Processes:
        """Return the processes of a context; Python's default context if None."""
        return Processes(self._http, f"/contexts/{'default' if context is None else _id(context)}")

    def close(self) -> None:
        """Close the connections, and remove the sandbox if this client started it. Idempotent."""
        self._http.close()
        if self._keepalive is not None:
            self._keepalive.close()
        if self._sandbox is not None:
            self._sandbox.close()

    def __enter__(self) -> CodeInterpreter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _id(context: Context | str) -> str:
    return context.id if isinstance(context, Context) else context
