"""A program that judges submissions with a function, each in a process that is forked for it.

It is started with the form and the name of the function, see ``FunctionVerifier``, and with a time limit in seconds. It reads
lines of JSON: the row of a task, and the code. It answers each with a line: the reward or null, and what went wrong.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from coding_gym import plugins
from coding_gym._named import import_named
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Task

__all__ = ["find_function", "main"]

_MAX_ANSWER_BYTES = 1 << 16
_MAX_ERROR_CHARS = 2000

Answer = tuple[float | None, str]


def find_function(form: str, name: str) -> Callable[[Task, str], Any]:
    """Return the function that judges: ``MODULE:NAME`` of the form ``python``, or what a plug-in makes of the name.

    Raises:
        ConfigurationError: If it cannot be imported, or is not callable.
    """
    if form != "python":
        function: Callable[[Task, str], Any] = plugins.load("verifiers", form)(name)
        return function
    function = import_named(name, "a function")
    if not callable(function):
        message = f"Expected a function, got {name}, which is {type(function).__name__}"
        raise ConfigurationError(message)
    return function


def _judge(function: Callable[..., Any], row: str, code: str, timeout: float) -> Answer:
    """Return what the function says, called in a process that is killed with its descendants."""
    with tempfile.TemporaryDirectory(prefix="coding-gym-audit-", ignore_cleanup_errors=True) as directory:
        return _judge_in(directory, function, row, code, timeout)


def _judge_in(directory: str, function: Callable[..., Any], row: str, code: str, timeout: float) -> Answer:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.chdir(directory)
        # Whatever the submission does to the process, it has nothing of this one but the end of the pipe.
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.dup2(writing, 3)
        os.closerange(4, 1 << 16)
        _answer(_call(function, row, code))
        os._exit(0)
    os.close(writing)
    try:
        data = _read(reading, timeout)
    finally:
        os.close(reading)
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if data is None:
        return None, f"the verifier did not return within {timeout:g} s"
    try:
        reward, problem = json.loads(data)
    except ValueError:
        return None, f"the verifier's process ended, with exit code {os.waitstatus_to_exitcode(status)}"
    return reward, problem


def _read(descriptor: int, timeout: float) -> bytes | None:
    """Return a line, or what was written before the end; None if neither comes in time."""
    deadline = time.monotonic() + timeout
    data = b""
    while not data.endswith(b"\n") and len(data) < _MAX_ANSWER_BYTES:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        if not (part := os.read(descriptor, _MAX_ANSWER_BYTES)):
            break
        data += part
    return data


def _call(function: Callable[..., Any], row: str, code: str) -> Answer:
    task = Task.from_json(row)
    try:
        reward = function(task, code)
        return None if reward is None else float(reward), ""
    except Exception as error:  # noqa: BLE001 - of any verifier
        return None, f"the verifier raised {type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]


def _answer(answer: Answer) -> None:
    # A pipe takes as much at once.
    os.write(3, json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Answer until standard input ends."""
    form, name, timeout = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    # What the module prints is no answer.
    os.dup2(2, 1)
    function = find_function(form, name)
    for line in sys.stdin:
        row, code = json.loads(line)
        print(json.dumps(_judge(function, row, code, float(timeout))), file=answers, flush=True)
