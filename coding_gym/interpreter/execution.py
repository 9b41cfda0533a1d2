"""What came of an execution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coding_gym.results import Result

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
    """What ended an execution.

    Attributes:
        name: The class of the exception, ``TimeoutError`` or ``ContextRestarting``.
        value: The exception as text, or what became of the context.
        traceback: The traceback as it is shown.
    """

    name: str
    value: str
    traceback: str


@dataclass
class Execution:
    """What came of an execution.

    Attributes:
        stdout: What it printed.
        stderr: What it printed there.
        results: Its displays and its value, in order.
        error: What ended it; None if it ended well.
        count: How many executions the context has had, this one included.
    """

    stdout: str = ""
    stderr: str = ""
    results: list[Result] = field(default_factory=list)
    error: ExecutionError | None = None
    count: int | None = None

    @property
    def text(self) -> str | None:
        """The value of the last expression as text; None if there is none."""
        return next((result.text for result in self.results if result.is_value), None)


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Whom to tell of what an execution shows, as it comes.

    Attributes:
        on_stdout: Called with each piece of stdout.
        on_stderr: Called with each piece of stderr.
        on_result: Called with each result.
        on_error: Called with what ended it.
    """

    on_stdout: Callable[[str], None] | None = None
    on_stderr: Callable[[str], None] | None = None
    on_result: Callable[[Result], None] | None = None
    on_error: Callable[[ExecutionError], None] | None = None

    def take(self, message: Mapping[str, Any], execution: Execution) -> None:
        """Add a message of the stream to an execution, and tell of it; messages of other kinds are passed over."""
        match message["type"]:
            case "number_of_executions":
                execution.count = message["execution_count"]
            case "stdout":
                execution.stdout += message["text"]
                _tell(self.on_stdout, message["text"])
            case "stderr":
                execution.stderr += message["text"]
                _tell(self.on_stderr, message["text"])
            case "result":
                result = _result(message)
                execution.results.append(result)
                _tell(self.on_result, result)
            case "error":
                execution.error = ExecutionError(message["name"], message["value"], message["traceback"])
                _tell(self.on_error, execution.error)


def _tell(listener: Callable[[Any], None] | None, news: Any) -> None:
    if listener is not None:
        listener(news)


def _result(message: Mapping[str, Any]) -> Result:
    formats = {_MIME[name]: content for name, content in message.items() if name in _MIME and content is not None}
    return Result.of_formats({**formats, **message.get("extra", {})}, is_value=message["is_main_result"])
