"""Contexts: interpreters that share a workspace, and the calls that wait for their turn in each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import msgspec

from coding_gym_server.backends import UnknownBackendError, check_backend, check_installed
from coding_gym_server.display.pictures import png
from coding_gym_server.interpreter import messages
from coding_gym_server.interpreter.languages import DEFAULT_LANGUAGE, USUAL_LANGUAGES, backend_of, normalize
from coding_gym_server.protocol import ResetOptions
from coding_gym_server.sessions import FAULTS, Session, Sessions
from coding_gym_server.workers.messages import Execute, Result
from coding_gym_server.workers.watchdog import Limits
from coding_gym_server.workers.worker_end import Event, Printed

__all__ = ["HOME", "Context", "ContextNotFoundError", "ContextSettings", "Contexts", "WorkingDirectoryError"]

HOME = "/home/user"
"""The workspace as clients know it."""


class ContextNotFoundError(LookupError):
    """There is no context of that id."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"Context {identifier} not found")


class WorkingDirectoryError(ValueError):
    """A working directory cannot be entered."""


class ContextSettings(msgspec.Struct, kw_only=True, frozen=True):
    """What holds for all contexts.

    Attributes:
        python: The backend for Python.
        timeout: Wall-clock limit of an execution in seconds, unless it brings its own.
        max_output_chars: The most code points of stdout, and of stderr, of an execution.
    """

    python: str = "notebook"
    timeout: float = 300.0
    max_output_chars: int = 4 * 1024 * 1024


class Context:
    """One interpreter. Executions run one after the other, in the order in which they came.

    Args:
        language: What it executes.
        cwd: Its working directory as the client gave it.
        directory: Where that is.
        sessions: Where its session comes from, at the first execution.
        workspace: What it has in common with the others.
        settings: What holds for all.
    """

    def __init__(
        self, language: str, cwd: str, directory: Path, *, sessions: Sessions, workspace: Path, settings: ContextSettings
    ) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._directory = directory
        self._sessions = sessions
        self._workspace = workspace
        self._settings = settings
        self._session: Session | None = None
        self._turn = asyncio.Lock()
        self._generation = 0
        self._count = 0
        self._is_deleted = False
        self._running: asyncio.Task[None] | None = None

    async def execute(
        self, code: str, *, environment: dict[str, str], timeout: float | None, emit: Callable[[bytes], None]
    ) -> None:
        """Run code when its turn comes, and emit what it shows, a line at a time.

        Args:
            code: The code.
            environment: Environment variables that are set while it runs.
            timeout: Wall-clock limit in seconds; the default if None.
            emit: Called with each line.

        Raises:
            CapacityError: The context has no session yet, and there is none free.
        """
        generation = self._generation
        async with self._turn:
            if generation != self._generation or self._is_deleted:
                emit(messages.error_line(messages.ABORTED))
                return
            cell = Execute(code, environment, rich=True)
            limits = Limits(wall=timeout or self._settings.timeout)

            def on_event(event: Event) -> None:
                emit(messages.printed(event) if isinstance(event, Printed) else messages.result(event))

            try:
                session = self._session or await self._begin()
                if code.strip():
                    self._count += 1
                emit(messages.counted(self._count))
                self._running = asyncio.current_task()
                seen = await session.execute(cell, limits, on_event=on_event)
            except FAULTS as fault:
                self._count = 0
                emit(messages.error_line(messages.lost(fault)))
                return
            finally:
                self._running = None
            if seen.picture is not None and seen.is_new:
                emit(messages.result(Result({"image/png": png(seen.picture)}, {}, is_value=False)))
            completion = seen.completion
            assert completion is not None
            if completion.state_lost:
                self._count = 0
            error = messages.error_of(completion)
            if error is not None:
                emit(messages.error_line(error))
            elif completion.note:
                emit(messages.printed(Printed("stderr", completion.note)))

    def give_up(self, execution: asyncio.Task[None]) -> None:
        """Interrupt an execution, as Ctrl-C does, or withdraw it if its turn has not come.

        Args:
            execution: The task that runs ``execute``.
        """
        if execution is not self._running:
            execution.cancel()
        elif self._session is not None:
            self._session.interrupt()

    async def begin(self) -> None:
        """Start the interpreter.

        Raises:
            CapacityError: There is no session free.
            FAULTS: It cannot be started.
        """
        async with self._turn:
            await self._begin()

    async def restart(self) -> None:
        """End all that runs, and begin with a fresh interpreter; executions that wait for their turn are aborted."""
        self._generation += 1
        if self._session is not None:
            self._session.abort("the context was restarted")
        async with self._turn:
            await self._begin()

    async def delete(self) -> None:
        """End the context and all that runs in it."""
        self._generation += 1
        self._is_deleted = True
        if self._session is not None:
            self._session.abort("the context was deleted")
        async with self._turn:
            if self._session is not None:
                self._sessions.close(self._session)
                self._session = None

    async def _begin(self) -> Session:
        if self._session is None:
            self._session = self._sessions.open(shared=self._workspace)
        backend = backend_of(self.language, python=self._settings.python)
        options = ResetOptions(backend=backend, max_output_chars=self._settings.max_output_chars, show_value=False)
        self._count = 0
        try:
            await self._session.reset(options, directory=self._directory)
        except BaseException:
            self._sessions.close(self._session)
            self._session = None
            raise
        return self._session


class Contexts:
    """All contexts of a sandbox, and the default one of each language.

    Args:
        sessions: Where their sessions come from.
        workspace: The directory that they share.
        settings: What holds for all.
    """

    def __init__(self, sessions: Sessions, workspace: Path, settings: ContextSettings) -> None:
        self.workspace = workspace
        self._sessions = sessions
        self._settings = settings
        self._contexts: dict[str, Context] = {}
        self._defaults: dict[str, Context] = {}
        self._default(DEFAULT_LANGUAGE)

    async def list(self) -> list[Context]:
        """Return all contexts: first the default ones, of the usual languages always, then the others, the oldest first."""
        for language in USUAL_LANGUAGES:
            with contextlib.suppress(UnknownBackendError):
                await self.default(language)
        defaults = set(self._defaults.values())
        return sorted(self._contexts.values(), key=lambda context: context not in defaults)

    def get(self, identifier: str) -> Context:
        """Return the context of an id.

        Raises:
            ContextNotFoundError: There is none.
        """
        try:
            return self._contexts[identifier]
        except KeyError:
            raise ContextNotFoundError(identifier) from None

    async def create(self, language: str, cwd: str) -> Context:
        """Make a context and start its interpreter.

        Raises:
            UnknownBackendError: Nothing here executes that language.
            WorkingDirectoryError: ``cwd`` is no directory that can be entered.
            CapacityError: There is no session free.
            FAULTS: Its interpreter cannot be started.
        """
        context = self._make(normalize(language), cwd)
        await context.begin()
        self._contexts[context.id] = context
        return context

    async def default(self, language: str | None) -> Context:
        """Return the default context of a language, Python if None; its interpreter starts at the first execution.

        Raises:
            UnknownBackendError: Nothing here executes that language.
        """
        language = DEFAULT_LANGUAGE if language is None else normalize(language)
        backend = backend_of(language, python=self._settings.python)
        if backend not in self._defaults:
            check_backend(backend)
            await asyncio.to_thread(check_installed, backend)
        return self._default(language)

    async def delete(self, identifier: str) -> None:
        """Delete a context; if it was a default one, the next call gets another.

        Raises:
            ContextNotFoundError: There is none.
        """
        context = self.get(identifier)
        del self._contexts[identifier]
        for language, default in list(self._defaults.items()):
            if default is context:
                del self._defaults[language]
        await context.delete()

    def _default(self, language: str) -> Context:
        # One for what one backend executes: TypeScript sees the variables of JavaScript.
        backend = backend_of(language, python=self._settings.python)
        if backend not in self._defaults:
            context = self._defaults[backend] = self._make(language, HOME)
            self._contexts[context.id] = context
        return self._defaults[backend]

    def _make(self, language: str, cwd: str) -> Context:
        return Context(
            language,
            cwd,
            self._directory(cwd),
            sessions=self._sessions,
            workspace=self.workspace,
            settings=self._settings,
        )

    def _directory(self, cwd: str) -> Path:
        """Return where a client's working directory is.

        Raises:
            WorkingDirectoryError: It is no directory that can be entered.
        """
        path = PurePosixPath(cwd)
        directory = self.workspace / path.relative_to(HOME) if path.is_relative_to(HOME) else Path(path)
        if not path.is_absolute() or not directory.is_dir() or not os.access(directory, os.X_OK):
            message = f"cwd {cwd!r} is no directory that can be entered: give the absolute path of one, such as {HOME}"
            raise WorkingDirectoryError(message)
        return directory
