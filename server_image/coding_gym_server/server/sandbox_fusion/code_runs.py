"""``CodeRuns``: runs programs of SandboxFusion's clients in the processes of the grading service."""

from __future__ import annotations

import base64
import binascii

from coding_gym_server.languages import Language, LanguageMissingError
from coding_gym_server.protocol.grading import FileContent
from coding_gym_server.server.grading.builds import Build, build_key
from coding_gym_server.server.grading.language_programs import build_of, compilation_of
from coding_gym_server.server.grading.libraries import libraries_in
from coding_gym_server.server.grading.program_run import Program, ProgramRun
from coding_gym_server.server.grading.service import GradingService
from coding_gym_server.server.grading.submission_run import RunLimits
from coding_gym_server.server.sandbox_fusion.languages import LanguageError, Launch, launch
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
        compiled = None
        try:
            files = await in_thread(decode_files, request.files) if request.files else {}
            launched = _launch(request)
            if launched.language is not None and launched.language.compile:
                build = await self._build(launched.language, request, files)
                compiled = _result_of(build.run)
                if not build.product:
                    return RunResponse(status=RunStatus.FAILED, message=build.run.kill_reason, compile_result=compiled)
                files[launched.language.product] = FileContent(build.product, is_executable=True)
            elif launched.file is not None:
                files[launched.file] = request.code
            run = await self._grading.run(_program_of(request, launched, files), max_wait=MAX_WAIT_SECONDS)
        except StorageError:
            raise
        except (LanguageError, LanguageMissingError, FilesError) as error:
            return RunResponse(status=RunStatus.SANDBOX_ERROR, message=str(error))
        result = _result_of(run)
        contents = await in_thread(encoded, run.files) if run.files else {}
        message = "; ".join(filter(None, (run.kill_reason, *run.refused)))
        return RunResponse(
            status=status_of([result]), message=message, compile_result=compiled, run_result=result, files=contents
        )

    async def _build(self, language: Language, request: RunRequest, files: dict[str, str | FileContent]) -> Build:
        """Compile a program, unless it has been compiled before."""
        compilation = compilation_of(language, request.code, files, _limits(request.compile_timeout))
        builds, key = self._grading.builds, build_key(language, compilation.files)
        build = builds.find(key)
        if build is None:
            # Not together with others that want it: gradings have places while they wait for it, and this waits for one.
            build = build_of(language, await self._grading.run(compilation, max_wait=MAX_WAIT_SECONDS))
            builds.keep(key, build)
        return build


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


def _launch(request: RunRequest) -> Launch:
    limit = memory_limit(request.memory_limit_MB)
    return launch(request.language, request.code, request.stdin or "", limit, keeps_file=bool(request.fetch_files))


def _limits(seconds: float) -> RunLimits:
    seconds = time_limit(seconds)
    return RunLimits(wall_timeout=seconds, max_seconds=seconds + MAX_WAIT_SECONDS)


def _program_of(request: RunRequest, launched: Launch, files: dict[str, str | FileContent]) -> Program:
    return Program(
        request=launched.request,
        limits=_limits(request.run_timeout),
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
