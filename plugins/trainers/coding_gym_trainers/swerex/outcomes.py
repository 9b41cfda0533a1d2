"""Outcomes of commands as SWE-ReX has them: responses, or the errors that its own runtime raises."""

from __future__ import annotations

from swerex.exceptions import CommandTimeoutError, NonZeroExitCodeError
from swerex.runtime import abstract as messages

from coding_gym.client.processes import ProcessResult
from coding_gym.code_interpreter.execution import Execution

__all__ = ["observation_of", "response_of"]

_SHOWN_CHARS = 10_000
_KILLED = 137


def observation_of(action: messages.BashAction, execution: Execution) -> messages.BashObservation:
    """Return the outcome of a command in a session.

    Raises:
        CommandTimeoutError: If it exceeded its timeout; the message has its output.
        NonZeroExitCodeError: If it failed, and ``check`` is ``raise``.
    """
    failure, output = execution.error, execution.stdout + execution.stderr
    if failure is not None and failure.name == "TimeoutError":
        end = output[-_SHOWN_CHARS:]
        message = f"timeout after {action.timeout} seconds while running command {action.command!r}. Its output ends: {end}"
        raise CommandTimeoutError(message)
    exit_code = 0
    if failure is not None and failure.name == "ExitCode":
        exit_code = int(failure.value)
    elif failure is not None:
        output, exit_code = f"{output}{failure.traceback or failure.value}\n", _KILLED
    if action.check == "raise" and exit_code != 0:
        raise _failed(action.command, exit_code, f"Here is the output:\n{output!r}", action.error_msg)
    return messages.BashObservation(output=output, exit_code=None if action.check == "ignore" else exit_code)


def response_of(command: messages.Command, result: ProcessResult) -> messages.CommandResponse:
    """Return the outcome of a program outside of the sessions.

    Raises:
        CommandTimeoutError: If it exceeded its timeout.
        NonZeroExitCodeError: If it failed, and ``check`` is true.
    """
    if result.timed_out:
        message = f"Timeout ({command.timeout}s) exceeded while running command"
        raise CommandTimeoutError(message)
    if command.check and result.exit_code != 0:
        output = f"Stdout:\n{result.stdout_text!r}\nStderr:\n{result.stderr_text!r}"
        raise _failed(command.command, result.exit_code, output, command.error_msg)
    stdout, stderr = result.stdout_text, result.stderr_text
    if command.merge_output_streams:
        # What did not come from the command itself: why it did not start, or was killed.
        stdout, stderr = stdout + stderr, ""
    return messages.CommandResponse(stdout=stdout, stderr=stderr, exit_code=result.exit_code)


def _failed(command: str | list[str], exit_code: int, output: str, error_msg: str) -> NonZeroExitCodeError:
    message = f"Command {command!r} failed with exit code {exit_code}. {output}"
    return NonZeroExitCodeError(f"{error_msg}: {message}" if error_msg else message)
