"""Forms in which a program can run: environments, processes, contexts and submissions.

A place, such as an environment, is a generator that starts what it needs and yields its forms: each a name and a function
that runs a program. The function returns what each session of the form saw: one, or several in a vector environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import gymnasium as gym

from coding_gym import AsyncCodingEnv, CodeInterpreter, SandboxPool
from coding_gym.code_interpreter.execution import ExecutionError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.tasks import Grader, GradingLimits, ProgramCase, Programs, Task
from tests.conformance.behaviors import BEHAVIORS
from tests.support.program_requests import client_of, post_program

__all__ = [
    "EPISODES",
    "FORMS",
    "Observed",
    "Seen",
    "observe_environment",
    "observe_episodes",
    "observe_forms",
    "observe_programs",
]

_SESSIONS = 2
_SIDE_BY_SIDE = 3
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
Form = tuple[str, Run]
Observed = dict[str, dict[str, list[Seen]]]
"""Observations by form and behavior, one per session."""

EPISODES = ("environment", "environment after reset", "asynchronous environment")
"""Forms that can share a pool."""

FORMS = (*EPISODES, "vector environment", "vector environment after reset", "process", "context", "submission")
"""All forms. The others are compared with the first."""


def observe_forms(**options: Any) -> Observed:
    """Run all behaviors in each form, in sandboxes with the given options."""
    return _observe(FORMS, [_environment_and_process, _in_pool, _submission, _context], options)


def observe_episodes(pool: SandboxPool) -> Observed:
    """Run all behaviors in environments without screens that share a pool."""
    return _observe(EPISODES, [_environment, _asynchronous], {"pool": pool, "screen": None})


def observe_environment(**options: Any) -> dict[str, list[Seen]]:
    """Run all behaviors in the first episode of an environment."""
    return _observe(FORMS[:1], [_first_episode], options)[FORMS[0]]


def observe_programs(programs: Mapping[str, str], **options: Any) -> Observed:
    """Run other programs in a form of each kind, and by the route of SandboxFusion."""
    names = ("environment", "environment after reset", "process", "context", "submission", "/run_code")
    return _observe(names, [_environment_and_process, _submission, _context, _run_code], options, programs)


def _observe(
    names: Sequence[str],
    places: Sequence[Callable[..., Iterator[Form]]],
    options: dict[str, Any],
    programs: Mapping[str, str] = BEHAVIORS,
) -> Observed:
    """Run all programs in the forms of each place: places side by side, and the forms of a place one after the other."""

    def observe(place: Callable[..., Iterator[Form]]) -> Observed:
        with contextlib.closing(place(**options)) as forms:
            return {name: {title: run(program) for title, program in programs.items()} for name, run in forms}

    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        observed = {name: seen for part in threads.map(observe, places) for name, seen in part.items()}
    return {name: observed[name] for name in names}


def _first_episode(**options: Any) -> Iterator[Form]:
    """Environment in its first episode."""
    with contextlib.closing(gym.make("CodingEnv-v0", step_timeout=_TIMEOUT, **options)) as env:
        env.reset(seed=1)
        yield "environment", lambda code: [_seen_in_step(*env.step(code))]


def _environment(**options: Any) -> Iterator[Form]:
    """Environment in its first episode, and after a reset; with several sessions per sandbox if there is a pool."""
    with contextlib.closing(gym.make("CodingEnv-v0", step_timeout=_TIMEOUT, **options)) as env:
        yield from _episodes_of(env)


def _environment_and_process(**options: Any) -> Iterator[Form]:
    """Environment as above, and a process beside its interpreter."""
    with contextlib.closing(gym.make("CodingEnv-v0", step_timeout=_TIMEOUT, **options)) as env:
        yield from _episodes_of(env)
        env.reset(seed=3)
        # Once the interpreter has run a cell, the files of the session are complete.
        env.step("pass")

        def run(code: str) -> list[Seen]:
            result = env.unwrapped.exec(["python3", "-c", code], timeout=_TIMEOUT)
            return [Seen(result.stdout_text, result.stderr_text, result.exit_code)]

        yield "process", run


def _episodes_of(env: gym.Env[Any, Any]) -> Iterator[Form]:
    """First episode, and an episode whose previous one has left traces."""

    def run(code: str) -> list[Seen]:
        return [_seen_in_step(*env.step(code))]

    env.reset(seed=1)
    yield "environment", run
    assert run(_LEAVE_TRACES) == [Seen("", "", 0)]
    env.reset(seed=2)
    yield "environment after reset", run


def _in_pool(**options: Any) -> Iterator[Form]:
    """Vector and asynchronous environments in a pool with several sessions per sandbox."""
    with SandboxPool(1, sessions=_SESSIONS, **options) as pool:
        yield from _vector(pool)
        yield from _asynchronous(pool)


def _vector(pool: SandboxPool) -> Iterator[Form]:
    """Vector environment whose sessions run each program at the same time; episodes as above."""
    with contextlib.closing(gym.make_vec("CodingEnv-v0", num_envs=_SESSIONS, step_timeout=_TIMEOUT, pool=pool)) as envs:

        def run(code: str) -> list[Seen]:
            return _seen_in_vector_step(*envs.step([code] * _SESSIONS))

        envs.reset(seed=1)
        yield "vector environment", run
        assert {*run(_LEAVE_TRACES)} == {Seen("", "", 0)}
        envs.reset(seed=2)
        yield "vector environment after reset", run


def _asynchronous(pool: SandboxPool, *, screen: str | None = "auto") -> Iterator[Form]:
    """Asynchronous environment."""
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        env = runner.run(AsyncCodingEnv.acquire(pool, screen=screen, step_timeout=_TIMEOUT))
        stack.callback(lambda: runner.run(env.aclose()))
        yield "asynchronous environment", lambda code: [_seen_in_step(*runner.run(env.step(code)))]


def _context(**options: Any) -> Iterator[Form]:
    """Context of a code interpreter."""
    with CodeInterpreter(**options) as interpreter:
        context = interpreter.contexts.create()

        def run(code: str) -> list[Seen]:
            execution = interpreter.execute(code, context=context, timeout=_TIMEOUT)
            return [Seen(execution.stdout, execution.stderr, _exit_code_of(execution.error))]

        yield "context", run


def _submission(**options: Any) -> Iterator[Form]:
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

        yield "submission", run


def _run_code(**options: Any) -> Iterator[Form]:
    """Process of the route ``/run_code``."""
    with contextlib.closing(start_sandbox(SandboxConfig(**options))) as sandbox, client_of(sandbox) as http:

        def run(code: str) -> list[Seen]:
            result = post_program(http, {"code": code, "language": "python", "run_timeout": _TIMEOUT}).json()["run_result"]
            return [Seen(result["stdout"], result["stderr"], result["return_code"])]

        yield "/run_code", run


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
    return int(error.value) % 256 if error.name == "SystemExit" and error.value.isdecimal() else 1
