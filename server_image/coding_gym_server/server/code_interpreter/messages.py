"""Messages of the code-interpreter API, one JSON object per line.

They match the messages of e2b's server (``e2b-dev/code-interpreter``, ``template/server``), which its SDK parses.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from coding_gym_server.ipc.messages import CellResult, Raised
from coding_gym_server.protocol import Outcome
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.server.supervisor.cell_run import CompletedCell
from coding_gym_server.server.supervisor.worker_handle import OutputChunk

__all__ = ["ABORTED", "END", "KEEPALIVE", "counted", "error_line", "error_of", "lost", "printed", "result"]

_FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}
_json = msgspec.json.Encoder()


def _line(message: dict[str, Any]) -> bytes:
    return _json.encode(message) + b"\n"


KEEPALIVE = _line({"type": "keepalive"})
END = _line({"type": "end_of_execution"})
ABORTED = Raised("ExecutionAborted", "Execution was aborted", "")
_LOST = "Connection to the execution was closed before the execution was finished"


def counted(count: int) -> bytes:
    """Return the message with the execution count, the first one of an execution."""
    return _line({"type": "number_of_executions", "execution_count": count})


def printed(event: OutputChunk) -> bytes:
    """Return the message for a chunk of stdout or stderr."""
    return _line({"type": event.stream, "text": event.text, "timestamp": datetime.now(UTC).isoformat()})


def result(event: CellResult, *, quotes: bool) -> bytes:
    """Return the message for a value or display output.

    Args:
        event: The value or display output.
        quotes: Whether the text of a string has its quotes, which that of e2b's server lacks.
    """
    fields: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for mime, content in {**event.texts, **_documents(event)}.items():
        if mime in _FIELDS:
            fields[_FIELDS[mime]] = content
        else:
            extra[mime] = content
    if "text" in fields and not quotes:
        fields["text"] = _without_quotes(fields["text"])
    ordered = {name: fields[name] for name in _FIELDS.values() if name in fields}
    return _line({"type": "result", **ordered, "extra": extra, "is_main_result": event.is_value})


def error_line(raised: Raised, *, state_lost: bool = False) -> bytes:
    """Return the message for the error that ended an execution.

    Args:
        raised: The error.
        state_lost: Whether the variables are lost, which e2b's server does not report.
    """
    message = {"type": "error", "name": raised.name, "value": raised.value, "traceback": raised.traceback}
    return _line({**message, "state_lost": True} if state_lost else message)


def error_of(completion: CompletedCell) -> Raised | None:
    """Return the error of an execution, or None without one.

    As with ipykernel, that is the exception that ended it, or the last one that was shown: by ``showtraceback()``, or because
    a value could not be formatted.
    """
    note = completion.note.strip().strip("[]")
    match completion.outcome:
        case Outcome.OK:
            return completion.raised
        case Outcome.TIMEOUT:
            traceback = completion.raised.traceback if completion.raised is not None else ""
            return Raised("TimeoutError", note, traceback)
        case Outcome.KILLED | Outcome.MEMORY:
            return Raised("ContextRestarting", "Context was restarted", note)
    return completion.raised or Raised("ExitCode", str(completion.exit_code), "")


def lost(error: BaseException) -> Raised:
    """Return the error to report for an infrastructure error, as opposed to an error of the code."""
    return Raised("UnexpectedEndOfExecution", _LOST, f"{type(error).__name__}: {error}")


def _documents(event: CellResult) -> dict[str, msgspec.Raw]:
    """Return the JSON documents of a result, each formatted on one line; invalid ones are omitted."""
    documents = {}
    for mime, text in event.documents.items():
        try:
            documents[mime] = msgspec.Raw(msgspec.json.format(text.encode(), indent=-1))
        except DECODING_ERRORS:
            continue
    return documents


def _without_quotes(text: Any) -> Any:
    """Return the text of a string's ``repr`` without its quotes, as e2b's server shows it."""
    is_quoted = isinstance(text, str) and len(text) >= 2 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text
