"""Requests and responses of SandboxFusion's server (``bytedance/SandboxFusion``, ``sandbox/server/sandbox_api.py``)."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from coding_gym_server.languages import languages

__all__ = [
    "LANGUAGES",
    "CellOutput",
    "CommandResult",
    "CommandStatus",
    "NotebookRequest",
    "NotebookResponse",
    "RunRequest",
    "RunResponse",
    "RunStatus",
    "encoded",
    "status_of",
]

_LANGUAGES = (
    *("python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda", "lua"),
    *("R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog", "python_gpu"),
    *("lean", "swift", "racket", "python2", "gtest", "react"),
)
"""All languages of the protocol: those of the server, and those that its client has in addition."""

LANGUAGES = tuple(dict.fromkeys((*_LANGUAGES, *languages())))
"""Those, and all that sandboxes may have."""


class RunStatus(StrEnum):
    """How a request ended."""

    SUCCESS = "Success"
    """All programs exited with 0."""
    FAILED = "Failed"
    """A program exited with something else, or exceeded its time."""
    SANDBOX_ERROR = "SandboxError"
    """Nothing was run."""


class CommandStatus(StrEnum):
    """How a program ended."""

    FINISHED = "Finished"
    ERROR = "Error"
    TIME_LIMIT_EXCEEDED = "TimeLimitExceeded"


class CommandResult(msgspec.Struct, kw_only=True):
    """Result of a program.

    Attributes:
        status: How it ended.
        execution_time: Wall-clock time in seconds.
        return_code: Exit code, or the negative number of the signal that killed it; None if it exceeded its time.
        stdout: Its stdout, truncated in the middle.
        stderr: Its stderr, truncated in the middle.
    """

    status: CommandStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None


class RunRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /run_code``.

    Attributes:
        code: The source code.
        language: One of ``LANGUAGES``.
        stdin: Standard input.
        compile_timeout: Seconds to compile a program in, if its language has a compiler.
        run_timeout: Seconds to run a program in.
        memory_limit_MB: Memory of each process in mebibytes; not limited beyond the sandbox's limit if it is not positive.
        files: Base64 contents of files of the working directory by path; None is ignored.
        fetch_files: Paths of files to return.
    """

    code: str
    language: str
    stdin: str | None = None
    compile_timeout: float = 10
    run_timeout: float = 10
    memory_limit_MB: int = -1
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []


class RunResponse(msgspec.Struct, kw_only=True):
    """Response to ``RunRequest``.

    Attributes:
        status: How the request ended.
        message: Why nothing was run, or what else there is to know; empty otherwise.
        compile_result: Result of the compiler; None if the language has none.
        run_result: Result of the program; None if nothing was run.
        executor_pod_name: None.
        files: Base64 contents of the requested files that exist.
    """

    status: RunStatus
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


class NotebookRequest(msgspec.Struct, kw_only=True):
    """Body of ``POST /run_jupyter``.

    Attributes:
        cells: Source code of the cells.
        cell_timeout: Seconds to run each cell in; not limited beyond ``total_timeout`` if it is not positive.
        total_timeout: Seconds to run all cells in.
        memory_limit_MB: As in ``RunRequest``.
        kernel: ``python3``.
        files: As in ``RunRequest``.
        fetch_files: As in ``RunRequest``.
    """

    cells: list[str]
    cell_timeout: float = 0
    total_timeout: float = 45
    memory_limit_MB: int = -1
    kernel: str = "python3"
    files: dict[str, str | None] = {}
    fetch_files: list[str] = []


class CellOutput(msgspec.Struct, kw_only=True):
    """Output of a cell.

    Attributes:
        stdout: Its stdout, truncated in the middle.
        stderr: Its stderr, truncated in the middle.
        display: Values and displays, each by MIME type.
        error: At most one exception: ``ename``, ``evalue`` and ``traceback``, a list of lines.
    """

    stdout: str
    stderr: str
    display: list[dict[str, Any]]
    error: list[dict[str, Any]]


class NotebookResponse(msgspec.Struct, kw_only=True):
    """Response to ``NotebookRequest``.

    Attributes:
        status: ``Success`` even if a cell raised an exception; ``Failed`` if the cells together exceeded their time.
        message: As in ``RunResponse``.
        driver: Result of the notebook as a whole.
        cells: Outputs of the cells that were run.
        executor_pod_name: None.
        files: As in ``RunResponse``.
    """

    status: RunStatus
    message: str = ""
    driver: CommandResult | None = None
    cells: list[CellOutput] = []
    executor_pod_name: str | None = None
    files: dict[str, str] = {}


def status_of(results: Iterable[CommandResult]) -> RunStatus:
    """Return the status of a request by the results of its programs, as SandboxFusion does."""
    has_failed = any(result.status is not CommandStatus.FINISHED or result.return_code for result in results)
    return RunStatus.FAILED if has_failed else RunStatus.SUCCESS


def encoded(contents: Mapping[str, bytes]) -> dict[str, str]:
    """Return the contents of files as Base64 text."""
    return {path: base64.b64encode(content).decode() for path, content in contents.items()}
