"""``SandboxRuntime``: bash sessions, commands and files of a sandbox."""

from __future__ import annotations

import asyncio
import logging
import posixpath
from pathlib import Path

from swerex.exceptions import BashIncorrectSyntaxError
from swerex.runtime import abstract as messages

from coding_gym.client.processes import call_in_own_thread
from coding_gym.code_interpreter.client import CodeInterpreter
from coding_gym.errors import CodingGymError, ConfigurationError
from coding_gym_trainers.file_programs import read_file, upload_directory, write_file
from coding_gym_trainers.swerex.outcomes import observation_of, response_of
from coding_gym_trainers.swerex.sessions import BashSessions

__all__ = ["SandboxRuntime"]


class SandboxRuntime(messages.AbstractRuntime):
    """``AbstractRuntime`` whose bash sessions share the files of one sandbox.

    A command that exceeds its timeout is interrupted: the session keeps its variables and its directory, and the next command
    runs at once. ``exit`` ends a command, and the session continues. Programs get no terminal and no input: interactive actions
    and ``expect`` raise ``ConfigurationError``.

    Args:
        interpreter: The sandbox. ``close`` closes it.
        logger: Logger of SWE-ReX.
    """

    def __init__(self, interpreter: CodeInterpreter, *, logger: logging.Logger | None = None) -> None:
        self.logger = logger or logging.getLogger(__name__)
        self._interpreter = interpreter
        self._sessions = BashSessions(interpreter)

    async def is_alive(self, *, timeout: float | None = None) -> messages.IsAliveResponse:
        """Return whether the sandbox responds within ``timeout`` seconds."""
        try:
            await asyncio.wait_for(call_in_own_thread(self._interpreter.contexts.list), timeout)
        except (CodingGymError, TimeoutError) as error:
            return messages.IsAliveResponse(is_alive=False, message=str(error) or f"no response within {timeout} s")
        return messages.IsAliveResponse(is_alive=True)

    async def create_session(self, request: messages.CreateBashSessionRequest) -> messages.CreateBashSessionResponse:
        """Start a bash, and source its startup files.

        Raises:
            SessionExistsError: If there is one with this name.
            CommandTimeoutError: If the startup files exceed their timeout.
        """
        await self._sessions.create(request.session)
        output = ""
        for file in request.startup_source:
            action = messages.BashAction(
                command=f"source {file}", session=request.session, timeout=request.startup_timeout, check="ignore"
            )
            output += (await self.run_in_session(action)).output
        return messages.CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: messages.BashAction | messages.BashInterruptAction) -> messages.BashObservation:
        """Run a command, or interrupt the one that runs.

        Raises:
            SessionDoesNotExistError: If there is no such session.
            BashIncorrectSyntaxError: If the command is not valid; nothing runs.
            CommandTimeoutError: If it exceeds its timeout; the message has its output.
            NonZeroExitCodeError: If it fails, and ``check`` is ``raise``.
            ConfigurationError: If the action is interactive.
            TransportError: If the sandbox is gone.
        """
        if isinstance(action, messages.BashInterruptAction):
            await self._sessions.interrupt(action.session)
            return messages.BashObservation(output="", exit_code=0)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            message = "Programs in a sandbox get no input: interactive actions and expect are not supported"
            raise ConfigurationError(message)
        self._sessions.check(action.session)
        checked = await self._sessions.run(["bash", "-n"], stdin=action.command)
        if checked.exit_code != 0:
            message = f"Error while checking bash command\n{action.command!r}\n{checked.stderr_text}"
            raise BashIncorrectSyntaxError(message, extra_info={"bash_stdout": "", "bash_stderr": checked.stderr_text})
        return observation_of(action, await self._sessions.execute(action.session, action.command, action.timeout))

    async def close_session(self, request: messages.CloseBashSessionRequest) -> messages.CloseBashSessionResponse:
        """End a bash session, and what it runs.

        Raises:
            SessionDoesNotExistError: If there is no such session.
        """
        await self._sessions.delete(request.session)
        return messages.CloseBashSessionResponse()

    async def execute(self, command: messages.Command) -> messages.CommandResponse:
        """Run a program outside of the sessions.

        Raises:
            CommandTimeoutError: If it exceeds its timeout.
            NonZeroExitCodeError: If it fails, and ``check`` is true.
            TransportError: If the sandbox is gone.
        """
        program = [command.command] if isinstance(command.command, str) else command.command
        arguments = ["sh", "-c", *program] if command.shell else program
        if command.merge_output_streams:
            arguments = ["sh", "-c", 'exec "$@" 2>&1', "sh", *arguments]
        result = await self._sessions.run(arguments, cwd=command.cwd, env=command.env, timeout=command.timeout)
        return response_of(command, result)

    async def read_file(self, request: messages.ReadFileRequest) -> messages.ReadFileResponse:
        """Return the content of a file, at any path of the sandbox. Raises ``OSError`` if it cannot be read."""
        content = await read_file(self._sessions.run, request.path)
        return messages.ReadFileResponse(content=content.decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: messages.WriteFileRequest) -> messages.WriteFileResponse:
        """Write a file, at any path of the sandbox. Raises ``OSError`` if it cannot be written."""
        await write_file(self._sessions.run, request.path, request.content)
        return messages.WriteFileResponse()

    async def upload(self, request: messages.UploadRequest) -> messages.UploadResponse:
        """Copy a file or a directory of this machine. Raises ``OSError`` if it cannot be read or written."""
        source = Path(request.source_path)
        if source.is_dir():
            await upload_directory(self._sessions.run, source, request.target_path)
        else:
            target = request.target_path
            if target.endswith("/") or (await self._sessions.run(["test", "-d", target])).exit_code == 0:
                target = posixpath.join(target, source.name)
            await write_file(self._sessions.run, target, source.read_bytes())
        return messages.UploadResponse()

    async def close(self) -> messages.CloseResponse:
        """Remove the sandbox. Idempotent."""
        self._sessions.clear()
        await call_in_own_thread(self._interpreter.close)
        return messages.CloseResponse()
