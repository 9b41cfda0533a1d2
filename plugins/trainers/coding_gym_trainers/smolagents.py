"""Executor for smolagents: ``CodeAgent(executor=SandboxExecutor())`` runs the code of an agent in a sandbox."""

from __future__ import annotations

import io
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Unpack

from PIL import Image

from coding_gym.code_interpreter.client import CodeInterpreter, CodeInterpreterKwargs, Context
from coding_gym.code_interpreter.execution import Execution, ExecutionError
from coding_gym.errors import ConfigurationError

try:
    from smolagents.local_python_executor import CodeOutput
    from smolagents.monitoring import AgentLogger, LogLevel
    from smolagents.remote_executors import RemotePythonExecutor
    from smolagents.tools import Tool, get_tools_definition_code
    from smolagents.utils import AgentError
except ImportError as error:
    message = "coding_gym_trainers.smolagents requires smolagents: pip install 'coding-gym[smolagents]'"
    raise ImportError(message) from error

__all__ = ["SandboxExecutor"]

_SHORT_CHARS = 10_000
"""Length of messages of exceptions that the server does not abridge."""
_PRINTED_CHARS = 1 << 19
_PRINT = "print(__import__('sys').last_value.value[{start}:{end}], end='')"
_MISSING = """
import importlib.util as _importlib_util
[name for name in {names!r} if _importlib_util.find_spec(name) is None]
"""
_IMAGES = ("image/png", "image/jpeg")


class SandboxExecutor(RemotePythonExecutor):
    """``PythonExecutor`` whose cells run in a sandbox, in CPython with IPython, where variables and files persist.

    Tools are sent as source, variables and the final answer as JSON, as smolagents' remote executors do. Whatever a cell does,
    including exceeding its time limit, ends as an ``AgentError`` with its output, which the agent shows to the model.

    Use it as a context manager, or call ``cleanup``, as ``CodeAgent.cleanup`` does.

    Args:
        interpreter: Interpreter to execute cells in, each executor in its own context; None to start a sandbox, which
            ``cleanup`` removes.
        timeout: Wall-clock limit of a cell in seconds.
        allow_pickle: Whether values that JSON cannot express may be pickled. Code of a sandbox that sends pickles controls
            this process: leave it off.
        logger: Logger of the agent; errors only if None.
        sandbox_options: Arguments of ``CodeInterpreter`` for the sandbox, such as ``packages=["networkx"]``.

    Raises:
        ConfigurationError: If an option is invalid, or sandbox options are passed with ``interpreter``.
        ProviderError: If the sandbox cannot be started.

    Example:
        >>> with SandboxExecutor(provider="docker") as executor:  # doctest: +SKIP
        ...     CodeAgent(tools=[], model=model, executor=executor).run("What is the 20th prime?")
    """

    def __init__(
        self,
        interpreter: CodeInterpreter | None = None,
        *,
        timeout: float = 60.0,
        allow_pickle: bool = False,
        logger: AgentLogger | None = None,
        **sandbox_options: Unpack[CodeInterpreterKwargs],
    ) -> None:
        if interpreter is not None and sandbox_options:
            message = f"The interpreter has a sandbox already: pass {', '.join(sandbox_options)} to CodeInterpreter instead"
            raise ConfigurationError(message)
        super().__init__([], logger or AgentLogger(level=LogLevel.ERROR), allow_pickle)
        self._timeout = timeout
        self._owned = CodeInterpreter(**sandbox_options) if interpreter is None else None
        self._interpreter = interpreter or self._owned
        self._context: Context | None = None
        self._definitions = ""

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        """Execute a cell.

        Raises:
            AgentError: If it failed; the message has its output, the exception and the traceback.
            TransportError: If the sandbox is gone.
        """
        execution = self._execute(code)
        logs = execution.stdout + execution.stderr
        failure = execution.error
        if failure is None:
            return CodeOutput(output=_value(execution), logs=logs, is_final_answer=False)
        if failure.name == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(self._whole_value(failure), self.allow_pickle)
            return CodeOutput(output=answer, logs=execution.stdout, is_final_answer=True)
        text = f"{logs}\nExecuting code yielded an error:\n{failure.name}\n{failure.value}\n{failure.traceback}"
        if failure.state_lost:
            # The next cell finds another interpreter, without the tools.
            self._execute(self._definitions)
        raise AgentError(text, self.logger)

    def send_tools(self, tools: Mapping[str, Tool]) -> None:
        """Define tools in the sandbox.

        Raises:
            ConfigurationError: If one is a managed agent, or imports a module that the sandbox lacks.
        """
        if agents := [name for name, tool in tools.items() if not isinstance(tool, Tool)]:
            message = f"Managed agents run outside of the sandbox, so that code in it cannot call them: {', '.join(agents)}"
            raise ConfigurationError(message)
        answer = tools.get("final_answer")
        # A second run of an agent sends the same tools again.
        if answer is not None and not hasattr(answer, "_forward"):
            self._patch_final_answer_with_exception(answer)
        self.install_packages(
            sorted({name for tool in tools.values() for name in tool.to_dict()["requirements"]} - {"smolagents"})
        )
        self._definitions = get_tools_definition_code(tools)
        self.run_code_raise_errors(self._definitions)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Check that modules can be imported; sandboxes have no network to install them.

        Raises:
            ConfigurationError: If the sandbox lacks one.
        """
        missing = self._execute(_MISSING.format(names=additional_imports)).text
        if missing != "[]":
            message = f"The sandbox lacks modules that tools import: pass packages={missing}"
            raise ConfigurationError(message)
        return additional_imports

    def cleanup(self) -> None:
        """Delete the context, or remove the sandbox that this executor has started. Idempotent."""
        context, self._context = self._context, None
        if self._owned is not None:
            self._owned.close()
        elif context is not None and self._interpreter is not None:
            self._interpreter.contexts.delete(context)
        self._interpreter = None

    def __enter__(self) -> SandboxExecutor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cleanup()

    def _whole_value(self, failure: ExecutionError) -> str:
        """Return the answer that an exception has, of which the server abridges a long one."""
        if len(failure.value) <= _SHORT_CHARS:
            return failure.value
        parts = [""]
        while len(parts) == 1 or len(parts[-1]) == _PRINTED_CHARS:
            start = (len(parts) - 1) * _PRINTED_CHARS
            parts.append(self._execute(_PRINT.format(start=start, end=start + _PRINTED_CHARS)).stdout)
        return "".join(parts)

    def _execute(self, code: str) -> Execution:
        if self._interpreter is None:
            message = "The executor is closed: make another one"
            raise ConfigurationError(message)
        if self._context is None:
            self._context = self._interpreter.contexts.create()
        return self._interpreter.execute(code, context=self._context, timeout=self._timeout)


def _value(execution: Execution) -> Any:
    """Return the value of the last expression: an image, or its text."""
    result = next((result for result in execution.results if result.is_value), None)
    if result is None:
        return None
    for kind in _IMAGES:
        if kind in result.data:
            return Image.open(io.BytesIO(result.data[kind]))
    return result.text
