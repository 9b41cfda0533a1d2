"""A program that judges submissions with a function, each in a process that is forked for it.

It is started with the form, the module and the name of the function, see ``FunctionVerifier``, and with a time limit in
seconds. It reads lines of JSON: the row of a task, and the code. It answers each with a line: the reward or null, and what
went wrong.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Task

__all__ = ["find_function", "main"]

_MAX_ANSWER_BYTES = 1 << 16
_MAX_ERROR_CHARS = 2000

Answer = tuple[float | None, str]


def find_function(module: str, name: str) -> Callable[..., Any]:
    """Return a function of a module, which may lie in the current directory.

    Raises:
        ConfigurationError: If it cannot be imported, or is not callable.
    """
    # Not "": submissions are judged in another directory.
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        message = f"Expected a function as MODULE:NAME, got {module}:{name}: {error}"
        raise ConfigurationError(message) from error
    if not callable(found):
        message = f"Expected a function, got {module}:{name}, which is {type(found).__name__}"
        raise ConfigurationError(message)
    return found


def _judge(function: Callable[..., Any], form: str, row: str, code: str, timeout: float) -> Answer:
    """Return what the function says, called in a process that is killed with its descendants."""
    with tempfile.TemporaryDirectory(prefix="coding-gym-audit-", ignore_cleanup_errors=True) as directory:
        return _judge_in(directory, function, form, row, code, timeout)


def _judge_in(directory: str, function: Callable[..., Any], form: str, row: str, code: str, timeout: float) -> Answer:
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
        _answer(_call(function, form, row, code))
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], timeout)
        data = os.read(reading, _MAX_ANSWER_BYTES) if ready else b""
    finally:
        os.close(reading)
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if not ready:
        return None, f"the verifier did not return within {timeout:g} s"
    try:
        reward, problem = json.loads(data)
    except ValueError:
        return None, f"the verifier's process ended, with exit code {os.waitstatus_to_exitcode(status)}"
    return reward, problem


def _call(function: Callable[..., Any], form: str, row: str, code: str) -> Answer:
    task = Task.from_json(row)
    try:
        if form == "trl":
            (reward,) = function(**_trl_batch(task, code))
        else:
            reward = function(task, code)
        return None if reward is None else float(reward), ""
    except Exception as error:  # noqa: BLE001 - of any verifier
        return None, f"the verifier raised {type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]


def _answer(answer: Answer) -> None:
    os.write(3, json.dumps(answer).encode())


def _trl_batch(task: Task, code: str) -> dict[str, Any]:
    cases = getattr(task.tests, "cases", ())
    tests = getattr(task.tests, "source", "") or "\n".join(str(case) for case in cases)
    return {
        "prompts": [task.prompt],
        "completions": [f"```python\n{task.submission(code)}\n```"],
        "task_id": [task.id],
        "entry_point": [task.entry_point],
        "tests": [tests],
        "reference": [task.reference],
    }


def main() -> None:
    """Answer until standard input ends."""
    form, module, name, timeout = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    # What the module prints is no answer.
    os.dup2(2, 1)
    function = find_function(module, name)
    for line in sys.stdin:
        row, code = json.loads(line)
        print(json.dumps(_judge(function, form, row, code, float(timeout))), file=answers, flush=True)
