"""``CodeRuns``: runs programs of SandboxFusion's clients in the processes of the grading service."""

from __future__ import annotations

import base64
import binascii

from coding_gym_server.protocol.grading import FileContent
from coding_gym_server.server.grading.libraries import libraries_in
from coding_gym_server.server.grading.program_run import Program, ProgramRun
from coding_gym_server.server.grading.service import GradingService
from coding_gym_server.server.grading.submission_run import RunLimits
from coding_gym_server.server.sandbox_fusion.languages import LanguageError, launch
from coding_gym_server.server.sandbox_fusion.messages import (
    CommandResult,
    CommandStatus,
    RunRequest,
    RunResponse,
    RunStatus,
    encoded,
    status_of,
)
from coding_gym_server.server.threads import in_thread
from coding_gym_server.workspace.file_errors import FilesError, StorageError

__all__ = ["MAX_OUTPUT_CHARS", "MAX_WAIT_SECONDS", "CodeRuns", "decode_files", "memory_limit", "time_limit"]

MAX_OUTPUT_CHARS = 1 << 20
"""Maximum number of code points of stdout, and of stderr, that are returned; the middle of a longer text is dropped."""

MAX_WAIT_SECONDS = 4.0
"""Maximum number of seconds that a request waits for a place, and a program for processors in total.

verl waits for the time limits and 10 s more, so it always gets a response.
"""

_MIN_SECONDS, _MAX_SECONDS = 0.001, 3600.0
_MEBIBYTE = 1 << 20
_MAX_MEBIBYTES = 1 << 42
"""Limit on memory limits, far above any memory: larger numbers are none of the operating system's."""

_IGNORED = "IGNORE_THIS_FILE"


class CodeRuns:
    """Runs programs.

    Args:
        grading: The service whose processes run them.
    """

    def __init__(self, grading: GradingService) -> None:
        self._grading = grading

    async def run(self, request: RunRequest) -> RunResponse:
        """Run a program.

        Raises:
            OverloadedError: If too many programs run.
            NotStartedError: If the sandbox failed to start it.
            StorageError: If its files cannot be written although their paths are valid.
            ForkError: If processes, memory or disk space are exhausted.
            OSError: If the sandbox failed to run it.
            EOFError: If the sandbox ends.
        """
        try:
            program = await in_thread(_program_of, request) if request.files else _program_of(request)
            run = await self._grading.run(program, max_wait=MAX_WAIT_SECONDS)
        except StorageError:
            raise
        except (LanguageError, FilesError) as error:
            return RunResponse(status=RunStatus.SANDBOX_ERROR, message=str(error))
        result = _result_of(run)
        files = await in_thread(encoded, run.files) if run.files else {}
        message = "; ".join(filter(None, (run.kill_reason, *run.refused)))
        return RunResponse(status=status_of([result]), message=message, run_result=result, files=files)


def decode_files(files: dict[str, str | None]) -> dict[str, str | FileContent]:
    """Return the contents of files, of which those that SandboxFusion ignores are omitted.

    Raises:
        FilesError: If a content is not Base64.
    """
    contents: dict[str, str | FileContent] = {}
    for path, text in files.items():
        if text is None or _IGNORED in path:
            continue
        try:
            contents[path] = FileContent(base64.b64decode(text))
        except (binascii.Error, ValueError) as error:
            message = f"Expected the file {path!r} to be Base64 text: {error}"
            raise FilesError(message) from error
    return contents


def time_limit(seconds: float) -> float:
    """Return a requested number of seconds, within limits."""
    return min(max(seconds, _MIN_SECONDS), _MAX_SECONDS)


def memory_limit(mebibytes: int) -> int | None:
    """Return a requested limit in bytes, None if there is none."""
    return min(mebibytes, _MAX_MEBIBYTES) * _MEBIBYTE if mebibytes > 0 else None


def _program_of(request: RunRequest) -> Program:
    limit = memory_limit(request.memory_limit_MB)
    keeps_file = bool(request.fetch_files)
    launched = launch(request.language, request.code, request.stdin or "", limit, keeps_file=keeps_file)
    files = decode_files(request.files)
    if launched.file is not None:
        files[launched.file] = request.code
    seconds = time_limit(request.run_timeout)
    return Program(
        request=launched.request,
        limits=RunLimits(wall_timeout=seconds, max_seconds=seconds + MAX_WAIT_SECONDS),
        files=files,
        fetch=tuple(request.fetch_files),
        libraries=launched.libraries | libraries_in(request.code) if request.language in ("python", "pytest") else frozenset(),
        max_stdout_chars=MAX_OUTPUT_CHARS,
        max_stderr_chars=MAX_OUTPUT_CHARS,
    )


def _result_of(run: ProgramRun) -> CommandResult:
    return CommandResult(
        status=CommandStatus.TIME_LIMIT_EXCEEDED if run.expired else CommandStatus.FINISHED,
        execution_time=run.seconds,
        return_code=None if run.expired else run.exit_code,
        stdout=run.stdout,
        stderr=run.stderr,
    )
