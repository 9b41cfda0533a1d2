"""``NotebookRuns``: runs the cells of SandboxFusion's clients, each request in its own session."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from typing import Any

import msgspec

from coding_gym_server.ipc.messages import Execute
from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.protocol import Outcome, ResetOptions
from coding_gym_server.protocol.errors import DECODING_ERRORS
from coding_gym_server.server.code_interpreter.messages import error_of
from coding_gym_server.server.grading.grading_slots import OverloadedError
from coding_gym_server.server.sandbox_fusion.code_runs import (
    MAX_OUTPUT_CHARS,
    MAX_WAIT_SECONDS,
    decode_files,
    memory_limit,
    time_limit,
)
from coding_gym_server.server.sandbox_fusion.messages import (
    CellOutput,
    CommandResult,
    CommandStatus,
    NotebookRequest,
    NotebookResponse,
    RunStatus,
    encoded,
    status_of,
)
from coding_gym_server.server.sessions.registry import SessionLimitError, SessionRegistry
from coding_gym_server.server.sessions.session import ServerSession
from coding_gym_server.server.supervisor.cell_run import CompletedCell
from coding_gym_server.server.supervisor.watchdog import TimeLimits
from coding_gym_server.server.supervisor.worker_handle import Event, OutputChunk
from coding_gym_server.server.threads import in_thread
from coding_gym_server.workspace.fetching import read_files
from coding_gym_server.workspace.file_errors import FilesError, StorageError

__all__ = ["NotebookRuns"]

_LOOK_AGAIN = 0.05
_SET_UP_SECONDS = 10.0


class NotebookRuns:
    """Runs notebooks.

    Args:
        sessions: The registry that opens the sessions.
        backend: The backend that executes the cells.
    """

    def __init__(self, sessions: SessionRegistry, *, backend: str) -> None:
        self._sessions = sessions
        self._backend = backend

    async def run(self, request: NotebookRequest) -> NotebookResponse:
        """Run the cells of a notebook, also those after one that raises an exception, as SandboxFusion does.

        Raises:
            OverloadedError: If all sessions of the sandbox are in use.
            StorageError: If its files cannot be written although their paths are valid.
            INFRASTRUCTURE_ERRORS: If the sandbox failed to run them.
        """
        session = await self._open()
        try:
            files = await in_thread(decode_files, request.files)
            await session.reset(
                ResetOptions(backend=self._backend, max_output_chars=MAX_OUTPUT_CHARS, show_value=False, files=files)
            )
            if (limit := memory_limit(request.memory_limit_MB)) is not None:
                await session.execute(Execute(_limiting(limit)), TimeLimits(wall=_SET_UP_SECONDS))
            return await _run_cells(session, request)
        except StorageError:
            raise
        except FilesError as error:
            return NotebookResponse(status=RunStatus.SANDBOX_ERROR, message=str(error))
        finally:
            self._sessions.close(session)

    async def _open(self) -> ServerSession:
        deadline = time.monotonic() + MAX_WAIT_SECONDS
        while self._sessions.is_full and time.monotonic() <= deadline:
            await asyncio.sleep(_LOOK_AGAIN)
        try:
            return self._sessions.open()
        except SessionLimitError:
            raise OverloadedError(MAX_WAIT_SECONDS) from None


async def _run_cells(session: ServerSession, request: NotebookRequest) -> NotebookResponse:
    began = time.monotonic()
    total = time_limit(request.total_timeout)
    driver = CommandResult(status=CommandStatus.FINISHED, return_code=0, stdout="", stderr="")
    own = time_limit(request.cell_timeout) if request.cell_timeout > 0 else total
    outputs: list[CellOutput] = []
    has_expired = False
    for code in request.cells:
        left = total - (time.monotonic() - began)
        if has_expired or left <= 0:
            has_expired = True
            break
        collector = _CellCollector()
        capture = await session.execute(Execute(code, rich=True), TimeLimits(wall=min(own, left)), on_event=collector)
        assert capture.completion is not None
        outputs.append(collector.output(capture.completion))
        has_expired = capture.completion.outcome is Outcome.TIMEOUT and left <= own
    if has_expired:
        driver.status, driver.return_code = CommandStatus.TIME_LIMIT_EXCEEDED, None
    driver.execution_time = time.monotonic() - began
    executor = await session.executor_beside_steps()
    contents, refused = await executor.lease.run(read_files, executor.directory.work, request.fetch_files)
    return NotebookResponse(
        status=status_of([driver]),
        message="; ".join(refused),
        driver=driver,
        cells=outputs,
        files=await in_thread(encoded, contents),
    )


class _CellCollector:
    """Collects the events of a cell."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._display: list[dict[str, Any]] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, OutputChunk):
            self._texts[event.stream].append(event.text)
            return
        data: dict[str, Any] = dict(event.texts)
        for mime, text in event.documents.items():
            with contextlib.suppress(*DECODING_ERRORS):
                data[mime] = msgspec.json.decode(text)
        self._display.append(data)

    def output(self, completion: CompletedCell) -> CellOutput:
        """Return what the cell has printed, displayed and raised."""
        raised = error_of(completion)
        error = []
        if raised is not None:
            error = [{"ename": raised.name, "evalue": raised.value, "traceback": raised.traceback.splitlines()}]
        stdout, stderr = (truncate_middle("".join(texts), MAX_OUTPUT_CHARS) for texts in self._texts.values())
        return CellOutput(stdout=stdout, stderr=stderr, display=self._display, error=error)


def _limiting(max_bytes: int) -> str:
    """Return code that limits the memory of the interpreter and its child processes."""
    return f"__import__('resource').setrlimit({resource.RLIMIT_DATA}, ({max_bytes}, {max_bytes}))"
