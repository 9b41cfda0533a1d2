"""Forms in which a program can run: environments, processes, contexts and submissions.

Each form is a context manager that starts what it needs and yields a function that runs a program. The function returns what
each session of the form saw: one, or several in a vector environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import gymnasium as gym

from coding_gym import AsyncCodingEnv, CodeInterpreter, SandboxPool
from coding_gym.code_interpreter.execution import ExecutionError
from coding_gym.tasks import Grader, GradingLimits, ProgramCase, Programs, Task
from tests.conformance.behaviors import BEHAVIORS

__all__ = ["EPISODES", "FORMS", "Form", "Observed", "Run", "Seen", "observe"]

_SESSIONS = 4
_TIMEOUT = 60.0

_LEAVE_TRACES = """
import contextlib, os, signal, subprocess
for directory in (".", os.environ["HOME"], os.environ["TMPDIR"], "/tmp", "/dev/shm"):
    with contextlib.suppress(OSError):
        open(f"{directory}/left-{os.getpid()}", "w").close()
    with contextlib.suppress(OSError):
        os.makedirs(f"{directory}/left/below")
for directory in (".", os.environ["HOME"]):
    os.chmod(directory, 0o500)
subprocess.Popen(["sleep", "600"], start_new_session=True)
os.environ["LEFT"] = "left"
signal.signal(signal.SIGINT, signal.SIG_IGN)
os.umask(0)
os.nice(5)
os.chdir("/")
"""


class Seen(NamedTuple):
    """Output and exit code of a program in a session."""

    stdout: str
    stderr: str
    exit_code: int


Run = Callable[[str], list[Seen]]
Form = Callable[..., AbstractContextManager[Run]]
Observed = dict[str, dict[str, list[Seen]]]
"""Observations by form and behavior, one per session."""


def observe(forms: dict[str, Form], **options: Any) -> Observed:
    """Run all behaviors in each form.

    Args:
        forms: The forms by name.
        options: Passed to each form: those of the sandbox, or ``pool=``.
    """
    observed: Observed = {}
    for name, form in forms.items():
        with form(**options) as run:
            observed[name] = {behavior: run(program) for behavior, program in BEHAVIORS.items()}
    return observed


@contextlib.contextmanager
def _environment(**options: Any) -> Iterator[Run]:
    """Environment in its first episode; with several sessions per sandbox if there is a pool."""
    with contextlib.closing(gym.make("CodingEnv-v0", step_timeout=_TIMEOUT, **options)) as env:
        env.reset(seed=1)
        yield lambda code: [_seen_in_step(*env.step(code))]


@contextlib.contextmanager
def _environment_after_reset(**options: Any) -> Iterator[Run]:
    """Environment whose previous episode has left traces."""
    with contextlib.closing(gym.make("CodingEnv-v0", step_timeout=_TIMEOUT, **options)) as env:
        env.reset(seed=1)
        assert _seen_in_step(*env.step(_LEAVE_TRACES)) == Seen("", "", 0)
        env.reset(seed=2)
        yield lambda code: [_seen_in_step(*env.step(code))]


@contextlib.contextmanager
def _vector(**options: Any) -> Iterator[Run]:
    """Vector environment whose sessions share a sandbox and run each program at the same time."""
    with contextlib.closing(gym.make_vec("CodingEnv-v0", num_envs=_SESSIONS, step_timeout=_TIMEOUT, **options)) as envs:
        envs.reset(seed=1)
        yield lambda code: _seen_in_vector_step(*envs.step([code] * _SESSIONS))


@contextlib.contextmanager
def _vector_after_reset(**options: Any) -> Iterator[Run]:
    """Vector environment whose previous episodes have left traces."""
    with contextlib.closing(gym.make_vec("CodingEnv-v0", num_envs=_SESSIONS, step_timeout=_TIMEOUT, **options)) as envs:
        envs.reset(seed=1)
        assert {*_seen_in_vector_step(*envs.step([_LEAVE_TRACES] * _SESSIONS))} == {Seen("", "", 0)}
        envs.reset(seed=2)
        yield lambda code: _seen_in_vector_step(*envs.step([code] * _SESSIONS))


@contextlib.contextmanager
def _asynchronous(*, pool: SandboxPool | None = None, screen: str | None = "auto", **options: Any) -> Iterator[Run]:
    """Asynchronous environment in a pool with several sessions per sandbox."""
    with contextlib.ExitStack() as stack:
        if pool is None:
            pool = stack.enter_context(SandboxPool(1, sessions=_SESSIONS, **options))
        runner = stack.enter_context(asyncio.Runner())
        env = runner.run(AsyncCodingEnv.acquire(pool, screen=screen, step_timeout=_TIMEOUT))
        stack.callback(lambda: runner.run(env.aclose()))
        yield lambda code: [_seen_in_step(*runner.run(env.step(code)))]


@contextlib.contextmanager
def _process(**options: Any) -> Iterator[Run]:
    """Process beside the interpreter of an environment."""
    with contextlib.closing(gym.make("CodingEnv-v0", step_timeout=_TIMEOUT, **options)) as env:
        env.reset(seed=1)
        # Once the interpreter has run a cell, the files of the session are complete.
        env.step("pass")

        def run(code: str) -> list[Seen]:
            result = env.unwrapped.exec(["python3", "-c", code], timeout=_TIMEOUT)
            return [Seen(result.stdout_text, result.stderr_text, result.exit_code)]

        yield run


@contextlib.contextmanager
def _context(**options: Any) -> Iterator[Run]:
    """Context of a code interpreter."""
    with CodeInterpreter(**options) as interpreter:
        context = interpreter.contexts.create()

        def run(code: str) -> list[Seen]:
            execution = interpreter.execute(code, context=context, timeout=_TIMEOUT)
            return [Seen(execution.stdout, execution.stderr, _exit_code_of(execution.error))]

        yield run


@contextlib.contextmanager
def _submission(**options: Any) -> Iterator[Run]:
    """Submission that is graded: a verdict has the output of the first run that did not pass."""
    task = Task(
        id="conformance",
        prompt="Print the expected output.",
        tests=Programs(cases=(ProgramCase(stdout="what no behavior prints"),)),
        limits=GradingLimits(cpu_timeout=_TIMEOUT, wall_timeout=_TIMEOUT, max_output_chars=100_000),
    )
    with Grader(workers=1, **options) as grader:

        def run(code: str) -> list[Seen]:
            verdict = grader.grade(task, code)
            assert verdict.outcome.value in ("failed", "error"), verdict
            exit_code = re.match(r"exit code (\d+)", verdict.cases[0].message)
            return [Seen(verdict.stdout, verdict.stderr, int(exit_code[1]) if exit_code else 0)]

        yield run


EPISODES: dict[str, Form] = {
    "environment": _environment,
    "environment after reset": _environment_after_reset,
    "asynchronous environment": _asynchronous,
}
"""Forms that can share a pool."""

FORMS: dict[str, Form] = {
    **EPISODES,
    "vector environment": _vector,
    "vector environment after reset": _vector_after_reset,
    "process": _process,
    "context": _context,
    "submission": _submission,
}
"""All forms. The others are compared with the first."""


def _seen_in_step(observation: dict[str, Any], *rest: Any) -> Seen:
    info = rest[-1]
    assert info["outcome"] in ("ok", "error"), (info, observation["stderr"])
    return Seen(observation["stdout"], observation["stderr"], int(observation["exit_code"]))


def _seen_in_vector_step(observations: dict[str, Any], *rest: Any) -> list[Seen]:
    infos = rest[-1]
    assert {*infos["outcome"]} <= {"ok", "error"}, (infos, observations["stderr"])
    columns = observations["stdout"], observations["stderr"], observations["exit_code"].tolist()
    return [Seen(*row) for row in zip(*columns, strict=True)]


def _exit_code_of(error: ExecutionError | None) -> int:
    """Return the exit code that a program would have that ended with an error."""
    if error is None:
        return 0
    return int(error.value) if error.name == "SystemExit" and error.value.isdecimal() else 1
