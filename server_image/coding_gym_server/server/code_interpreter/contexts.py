"""Contexts of the code-interpreter API: interpreters that share a workspace, each with a queue of executions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
import weakref
from collections.abc import Callable
from functools import partial

import msgspec

from coding_gym_server.ipc.async_channel import ChannelClosedError
from coding_gym_server.ipc.messages import Execute
from coding_gym_server.protocol import ResetOptions
from coding_gym_server.protocol.backends import UnknownBackendError, check_backend
from coding_gym_server.server.code_interpreter import messages
from coding_gym_server.server.code_interpreter.cells import DEFAULT_TIMEOUT, ContextRefusedError, SessionInterpreter, run_cell
from coding_gym_server.server.code_interpreter.languages import DEFAULT_LANGUAGE, USUAL_LANGUAGES, backend_of, normalize
from coding_gym_server.server.sessions.registry import SessionLimitError, SessionRegistry
from coding_gym_server.server.sessions.session import INFRASTRUCTURE_ERRORS, ServerSession
from coding_gym_server.server.supervisor.executor import Executor
from coding_gym_server.server.supervisor.files_of_session import FilesOfSession
from coding_gym_server.server.supervisor.shared_files import SharedFiles
from coding_gym_server.server.supervisor.watchdog import TimeLimits
from coding_gym_server.server.supervisor.zygote_handle import ForkError
from coding_gym_server.server.threads import in_thread
from coding_gym_server.worker.backends.registry import check_installed
from coding_gym_server.workspace.layout import PRIVATE

__all__ = [
    "ContextNotFoundError",
    "ContextRegistry",
    "ContextSettings",
    "InterpreterContext",
    "SessionContexts",
    "WorkingDirectoryError",
]


_MAX_OF_SESSION = 16
"""Maximum number of contexts of a session, its own interpreter included."""


class ContextNotFoundError(LookupError):
    """No context has the given ID."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"Context {identifier} not found")


class WorkingDirectoryError(ValueError):
    """The working directory does not exist or is not accessible."""


class ContextSettings(msgspec.Struct, kw_only=True, frozen=True):
    """Settings that all contexts share.

    Attributes:
        python: The backend that executes Python.
        cwd: The working directory of a context whose client does not say.
        timeout: Wall-clock limit of an execution in seconds, unless the request specifies one.
        max_output_chars: Maximum number of code points of stdout, and of stderr, of an execution.
    """

    python: str = "notebook"
    cwd: str = PRIVATE.home
    timeout: float = DEFAULT_TIMEOUT
    max_output_chars: int = 4 * 1024 * 1024


class InterpreterContext:
    """An interpreter whose executions run sequentially, in the order of arrival.

    Args:
        language: The language that it executes.
        cwd: The working directory as the client specified it.
        sessions: The registry that opens its session, when the interpreter starts.
        files: The files that it shares with the other contexts.
        settings: The settings that all contexts share.
    """

    def __init__(
        self, language: str, cwd: str, *, sessions: SessionRegistry, files: SharedFiles, settings: ContextSettings
    ) -> None:
        self.id = str(uuid.uuid4())
        self.language = language
        self.cwd = cwd
        self._sessions = sessions
        self._files = files
        self._settings = settings
        self._session: ServerSession | None = None
        self._turn = asyncio.Lock()
        self._generation = 0
        self._count = 0
        self._is_deleted = False
        self._running: asyncio.Task[None] | None = None

    async def execute(
        self,
        code: str,
        *,
        environment: dict[str, str],
        timeout: float | None,
        quotes: bool = False,
        emit: Callable[[bytes], None],
    ) -> None:
        """Execute code after the executions queued before it, and emit its messages line by line.

        Args:
            code: The code to execute.
            environment: Environment variables that are set during the execution.
            timeout: Wall-clock limit in seconds; None for the default of the settings.
            quotes: Whether the text of a string has its quotes.
            emit: Callback for each encoded line.

        Raises:
            SessionLimitError: If the context has no session yet, and none is available.
        """
        generation = self._generation
        async with self._turn:
            if generation != self._generation or self._is_deleted:
                emit(messages.error_line(messages.ABORTED))
                return
            cell = Execute(code, environment, rich=True)
            limits = TimeLimits(wall=timeout or self._settings.timeout)
            try:
                session = self._session or await self._begin()
                if code.strip():
                    self._count += 1
                emit(messages.counted(self._count))
                self._running = asyncio.current_task()
                if await run_cell(session, cell, limits, quotes=quotes, emit=emit):
                    self._count = 0
            except INFRASTRUCTURE_ERRORS as failure:
                self._count = 0
                emit(messages.error_line(messages.lost(failure), state_lost=True))
            finally:
                self._running = None

    def give_up(self, execution: asyncio.Task[None]) -> None:
        """Interrupt an execution, as Ctrl-C does, or cancel it if it is still queued.

        Args:
            execution: The task that runs ``execute``.
        """
        if execution is not self._running:
            execution.cancel()
        elif self._session is not None:
            self._session.interrupt()

    async def interrupt(self) -> None:
        """Interrupt the running execution, as Ctrl-C does, if there is one; the queued ones follow."""
        if self._session is not None:
            self._session.interrupt()

    async def begin(self) -> None:
        """Start the interpreter.

        Raises:
            SessionLimitError: If no session is available.
            INFRASTRUCTURE_ERRORS: If the interpreter fails to start.
        """
        async with self._turn:
            await self._begin()

    async def session(self) -> ServerSession:
        """Return the session, also while an execution runs; starts the interpreter if necessary.

        Raises:
            SessionLimitError: If no session is available.
            INFRASTRUCTURE_ERRORS: If the interpreter fails to start.
        """
        session = self._session
        if session is None:
            async with self._turn:
                session = self._session or await self._begin()
        return session

    async def restart(self) -> None:
        """Abort the running execution and all queued ones, and start a new interpreter."""
        self._generation += 1
        if self._session is not None:
            self._session.abort("the context was restarted")
        async with self._turn:
            await self._begin()

    async def delete(self) -> None:
        """Delete the context: abort all its executions and close its session."""
        self._generation += 1
        self._is_deleted = True
        if self._session is not None:
            self._session.abort("the context was deleted")
        async with self._turn:
            if self._session is not None:
                self._sessions.close(self._session)
                self._session = None

    def close(self) -> None:
        """Delete the context at once, because the session that it belongs to ends; its executions fail."""
        self._generation += 1
        self._is_deleted = True
        if self._session is not None:
            self._sessions.close(self._session)
            self._session = None

    async def _begin(self) -> ServerSession:
        await self._files.start()
        if self._is_deleted:
            message = "the context was deleted"
            raise ForkError(message)
        if self._session is None:
            self._session = self._sessions.open(shared=self._files)
        backend = backend_of(self.language, python=self._settings.python)
        options = ResetOptions(backend=backend, max_output_chars=self._settings.max_output_chars, show_value=False)
        self._count = 0
        session = self._session
        try:
            await session.reset(options, directory=self.cwd)
        except BaseException:
            self._sessions.close(session)
            self._session = None
            raise
        return session


class ContextRegistry:
    """Registry of the contexts of a sandbox, with a default context per language.

    Args:
        sessions: The registry that opens the sessions of the contexts.
        files: The files that all contexts share.
        settings: The settings that all contexts share.
        main: The default context for Python, None to make one.
        limit: Maximum number of contexts, None for that of the registry's sessions.
    """

    def __init__(
        self,
        sessions: SessionRegistry,
        files: SharedFiles,
        settings: ContextSettings,
        *,
        main: SessionInterpreter | None = None,
        limit: int | None = None,
    ) -> None:
        self._sessions = sessions
        self._files = files
        self._settings = settings
        self._limit = limit
        self._contexts: dict[str, InterpreterContext | SessionInterpreter] = {}
        self._defaults: dict[str, InterpreterContext | SessionInterpreter] = {}
        if main is None:
            self._default(DEFAULT_LANGUAGE)
        else:
            self._contexts[main.id] = self._defaults[settings.python] = main

    async def list(self) -> list[InterpreterContext | SessionInterpreter]:
        """Return all contexts: the default contexts first, then the others, each from oldest to newest.

        The default contexts of ``USUAL_LANGUAGES`` are created if necessary.
        """
        for language in USUAL_LANGUAGES:
            with contextlib.suppress(UnknownBackendError):
                await self.default(language)
        defaults = set(self._defaults.values())
        return sorted(self._contexts.values(), key=lambda context: context not in defaults)

    def get(self, identifier: str) -> InterpreterContext | SessionInterpreter:
        """Return the context with an ID.

        Raises:
            ContextNotFoundError: If no context has that ID.
        """
        try:
            return self._contexts[identifier]
        except KeyError:
            raise ContextNotFoundError(identifier) from None

    async def create(self, language: str, cwd: str | None) -> InterpreterContext:
        """Create a context and start its interpreter.

        Args:
            language: Name or alias of the language.
            cwd: Its working directory; that of the settings if None or empty.

        Raises:
            UnknownBackendError: If no installed backend executes that language.
            WorkingDirectoryError: If ``cwd`` is not the absolute path of an accessible directory.
            SessionLimitError: If no session is available, or the limit of contexts has been reached.
            INFRASTRUCTURE_ERRORS: If the files of the contexts cannot be accessed, or the interpreter fails to start.
        """
        if self._limit is not None and len(self._contexts) >= self._limit:
            raise SessionLimitError(len(self._contexts), self._limit)
        directory = cwd or self._settings.cwd
        await self._check_directory(directory)
        context = self._make(normalize(language), directory)
        await context.begin()
        self._contexts[context.id] = context
        return context

    async def default(self, language: str | None) -> InterpreterContext | SessionInterpreter:
        """Return the default context of a language; its interpreter starts at the first execution.

        Args:
            language: Name or alias of the language; None for Python.

        Raises:
            UnknownBackendError: If no installed backend executes that language.
        """
        language = DEFAULT_LANGUAGE if language is None else normalize(language)
        backend = backend_of(language, python=self._settings.python)
        if backend not in self._defaults:
            check_backend(backend)
            await in_thread(check_installed, backend)
        return self._default(language)

    async def delete(self, identifier: str) -> None:
        """Delete a context; if it was a default context, the next request for it creates another one.

        Raises:
            ContextNotFoundError: If no context has that ID.
            ContextRefusedError: If it is the interpreter of the session.
        """
        context = self.get(identifier)
        if isinstance(context, SessionInterpreter):
            raise ContextRefusedError
        del self._contexts[identifier]
        for language, default in list(self._defaults.items()):
            if default is context:
                del self._defaults[language]
        await context.delete()

    def close(self) -> None:
        """Delete all contexts at once."""
        for context in self._contexts.values():
            context.close()

    def _default(self, language: str) -> InterpreterContext | SessionInterpreter:
        # One default context per backend, not per language: TypeScript and JavaScript share variables.
        backend = backend_of(language, python=self._settings.python)
        if backend not in self._defaults:
            context = self._defaults[backend] = self._make(language, self._settings.cwd)
            self._contexts[context.id] = context
        return self._defaults[backend]

    def _make(self, language: str, cwd: str) -> InterpreterContext:
        return InterpreterContext(language, cwd, sessions=self._sessions, files=self._files, settings=self._settings)

    async def _check_directory(self, cwd: str) -> None:
        """Check that a client's working directory is the absolute path of an accessible directory.

        Raises:
            WorkingDirectoryError: If it is not.
            INFRASTRUCTURE_ERRORS: If the files of the contexts cannot be accessed.
        """
        await self._files.start()
        directory = self._files.seen_by_server(cwd)
        if not os.path.isabs(cwd) or not os.path.isdir(directory) or not os.access(directory, os.X_OK):
            message = f"cwd {cwd!r} is not an accessible directory: expected an absolute path such as {self._settings.cwd}"
            raise WorkingDirectoryError(message)


class SessionContexts:
    """The contexts of sessions: the session's own interpreter, and others in its files, which end with its episode.

    Args:
        sessions: The registry that opens the sessions of the contexts.
        settings: The settings that all contexts share.
    """

    def __init__(self, sessions: SessionRegistry, settings: ContextSettings) -> None:
        self._sessions = sessions
        self._settings = settings
        self._contexts: weakref.WeakKeyDictionary[ServerSession, ContextRegistry] = weakref.WeakKeyDictionary()

    def of(self, session: ServerSession) -> ContextRegistry:
        """Return the contexts of a session."""
        contexts = self._contexts.get(session)
        if contexts is None:
            # Without a reference to the session.
            find = weakref.WeakMethod(session.executor_beside_steps)

            async def executor() -> Executor:
                if (method := find()) is None:
                    raise ChannelClosedError
                return await method()

            main = SessionInterpreter(session)
            contexts = ContextRegistry(
                self._sessions, FilesOfSession(executor), self._settings, main=main, limit=_MAX_OF_SESSION
            )
            self._contexts[session] = contexts
            session.on_episode_ended = partial(self._end, weakref.ref(session))
        return contexts

    def _end(self, session: weakref.ref[ServerSession]) -> None:
        ended = session()
        if ended is not None and (contexts := self._contexts.pop(ended, None)) is not None:
            contexts.close()
