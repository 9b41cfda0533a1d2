"""The outcome of an execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coding_gym._html import MAX_ROWS, caption, document, preformatted
from coding_gym.media.representation import result_html
from coding_gym.media.results import Result

__all__ = ["Execution", "ExecutionError", "Listeners"]

_MIME = {
    "text": "text/plain",
    "html": "text/html",
    "markdown": "text/markdown",
    "svg": "image/svg+xml",
    "png": "image/png",
    "jpeg": "image/jpeg",
    "pdf": "application/pdf",
    "latex": "text/latex",
    "json": "application/json",
    "javascript": "application/javascript",
    "data": "e2b/data",
    "chart": "e2b/chart",
}


@dataclass(frozen=True)
class ExecutionError:
    """The error that ended an execution.

    Attributes:
        name: The class of the exception, ``TimeoutError`` or ``ContextRestarting``.
        value: Message of the exception, or a description of the restart of the context.
        traceback: Formatted traceback.
        state_lost: Whether the variables of the context are lost.
    """

    name: str
    value: str
    traceback: str
    state_lost: bool = False


@dataclass
class Execution:
    """The outcome of an execution.

    Attributes:
        stdout: Standard output.
        stderr: Standard error.
        results: Displays and the value of the last expression, in order.
        error: The error that ended it, None on success.
        count: Number of executions of the context, including this one.
    """

    stdout: str = ""
    stderr: str = ""
    results: list[Result] = field(default_factory=list)
    error: ExecutionError | None = None
    count: int | None = None

    def _repr_html_(self) -> str:
        error = self.error
        return document(
            preformatted(self.stdout),
            preformatted(self.stderr, is_error=True),
            *(result_html(result.data) for result in self.results[:MAX_ROWS]),
            caption(f"... and {len(self.results) - MAX_ROWS} more results") if len(self.results) > MAX_ROWS else "",
            preformatted(error.traceback or f"{error.name}: {error.value}", is_error=True) if error is not None else "",
        )

    @property
    def text(self) -> str | None:
        """The value of the last expression as text, None without a value."""
        return next((result.text for result in self.results if result.is_value), None)


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Callbacks for the output of an execution as it arrives.

    Attributes:
        on_stdout: Called with each chunk of stdout.
        on_stderr: Called with each chunk of stderr.
        on_result: Called with each result.
        on_error: Called with the error that ended the execution.
    """

    on_stdout: Callable[[str], None] | None = None
    on_stderr: Callable[[str], None] | None = None
    on_result: Callable[[Result], None] | None = None
    on_error: Callable[[ExecutionError], None] | None = None

    def take(self, message: Mapping[str, Any], execution: Execution) -> None:
        """Add a stream message to an execution and call the listener; messages of unknown types are ignored."""
        match message["type"]:
            case "number_of_executions":
                execution.count = message["execution_count"]
            case "stdout":
                execution.stdout += message["text"]
                _notify(self.on_stdout, message["text"])
            case "stderr":
                execution.stderr += message["text"]
                _notify(self.on_stderr, message["text"])
            case "result":
                result = _result(message)
                execution.results.append(result)
                _notify(self.on_result, result)
            case "error":
                execution.error = ExecutionError(
                    message["name"], message["value"], message["traceback"], message.get("state_lost", False)
                )
                _notify(self.on_error, execution.error)


def _notify(listener: Callable[[Any], None] | None, value: Any) -> None:
    if listener is not None:
        listener(value)


def _result(message: Mapping[str, Any]) -> Result:
    formats = {_MIME[name]: content for name, content in message.items() if name in _MIME and content is not None}
    return Result.of_formats({**formats, **message.get("extra", {})}, is_value=message["is_main_result"])
