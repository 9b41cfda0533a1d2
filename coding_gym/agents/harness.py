"""Harnesses: agents that run as a program in a session, and call a model on the trainer's side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

import gymnasium as gym

from coding_gym.agents.file_changes import FileChange, changes_between, list_files, unified_diff
from coding_gym.agents.model_calls import ModelCall
from coding_gym.client.processes import Command, ProcessResult
from coding_gym.doors.doors import Door
from coding_gym.doors.egress import Egress
from coding_gym.doors.targets import DoorTarget, ServerTarget
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.program_runs import SUBMIT
from coding_gym.envs.task_env import CodingTaskEnv
from coding_gym.errors import ConfigurationError, TransportError
from coding_gym.tasks.repository.tests import RepositoryTests
from coding_gym.tasks.verdict import Verdict

__all__ = ["HarnessRun", "run_harness"]

_PORT = 31415
_UNUSED_KEY = "unused"

HarnessOutcome = Literal["ok", "error", "timeout", "infrastructure"]


@dataclass(frozen=True)
class HarnessRun:
    """Result of a harness run.

    Attributes:
        outcome: ``ok``; ``error`` if it exited with another code than 0; ``timeout``; or ``infrastructure`` if the sandbox, or
            the endpoint of the model, has failed: the run then says nothing of the model.
        failure: What has failed, None unless the outcome is ``infrastructure``.
        result: How the program ended, with its output; None if the sandbox was lost.
        calls: The calls of the model, in order.
        changes: The files that have been created, changed or removed in the working directory.
        verdict: The verdict of the task, None without one.
        reward: The reward of the task, 0 without one.
    """

    outcome: HarnessOutcome
    failure: str | None
    result: ProcessResult | None
    calls: tuple[ModelCall, ...]
    changes: tuple[FileChange, ...]
    verdict: Verdict | None = None
    reward: float = 0.0

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The transcript: the messages of the last call that was answered, and its reply; empty without one."""
        return [] if self._last_answered is None else self._last_answered.messages

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the last call that was answered has offered."""
        return [] if self._last_answered is None else self._last_answered.tools

    @property
    def _last_answered(self) -> ModelCall | None:
        return next((call for call in reversed(self.calls) if call.response is not None), None)

    @property
    def diff(self) -> str:
        """The changes of files as a unified diff."""
        return unified_diff(self.changes)


def run_harness(
    env: gym.Env[Any, Any],
    command: Command,
    *,
    model: DoorTarget,
    solution: str | None = None,
    variables: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout: float | None = None,
    port: int = _PORT,
) -> HarnessRun:
    """Run an agent in a session until it ends, and return what it has done.

    The agent finds the model by the variables ``OPENAI_BASE_URL``, ``OPENAI_API_BASE``, ``ANTHROPIC_BASE_URL`` and the keys
    beside them, which lead to a door.

    Args:
        env: An environment in an episode, maybe in wrappers. The files and the processes of the episode are the agent's.
        command: The agent: a program and its arguments, or a command for the shell.
        model: The endpoint: the URL of a server, with ``/v1`` or without, a ``ServerTarget`` (with the key of the endpoint), or
            a function.
        solution: Of a ``CodingTask-v0`` whose tests call a program: the file, in the working directory, that the agent writes
            it to. Changes to a repository are submitted as they are.
        variables: Further environment variables.
        cwd: Directory that the agent begins in, whose changes are reported; that of the session if None.
        timeout: Wall-clock limit of the agent in seconds; None for no limit.
        port: Port of the door.

    Raises:
        ConfigurationError: If an argument is invalid.
        gymnasium.error.ResetNeeded: If no episode has begun.
    """
    session = env.unwrapped
    if not isinstance(session, CodingEnv):
        message = f"Expected a CodingEnv, maybe in wrappers, got {type(session).__name__}"
        raise ConfigurationError(message)
    if solution is not None and not isinstance(session, CodingTaskEnv):
        message = f"Expected solution= with a CodingTask-v0 only, got {solution!r} with {type(session).__name__}"
        raise ConfigurationError(message)
    target = _target(model)
    result: ProcessResult | None = None
    changes: tuple[FileChange, ...] = ()
    calls: tuple[ModelCall, ...] = ()
    failure: str | None = None
    try:
        door = session.open_door(port, target)
        before = list_files(session, cwd or ".")
        result = session.exec(command, cwd=cwd, env={**_variables(door), **(variables or {})}, timeout=timeout)
        if result.lost is not None and not result.limit_exceeded:
            failure = f"the sandbox failed: {result.lost}"
        calls = tuple(call for exchange in door.log if (call := ModelCall.of(exchange)) is not None)
        changes = changes_between(before, list_files(session, cwd or ".", before))
    except TransportError as error:
        failure = f"the sandbox failed: {error}"
    if failure is None and calls and calls[-1].failure is not None:
        failure = f"the endpoint of the model failed: {calls[-1].failure}"
    run = HarnessRun(_outcome(result, failure), failure, result, calls, changes)
    return _graded(env, session, run, solution) if isinstance(session, CodingTaskEnv) and failure is None else run


def _outcome(result: ProcessResult | None, failure: str | None) -> HarnessOutcome:
    if failure is not None or result is None:
        return "infrastructure"
    if result.timed_out:
        return "timeout"
    return "ok" if result.exit_code == 0 else "error"


def _target(model: DoorTarget) -> DoorTarget:
    """Return where the door leads to: a server is asked for bodies that are not compressed, which the log can be read from."""
    if isinstance(model, Egress):
        message = "Expected model= to be an endpoint, got an Egress: pass it to the environment as network="
        raise ConfigurationError(message)
    if isinstance(model, str):
        model = ServerTarget(model)
    if not isinstance(model, ServerTarget):
        return model
    parts = urlsplit(model.url)
    url = parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()
    return replace(model, url=url, headers={"accept-encoding": "identity", **model.headers})


def _variables(door: Door) -> dict[str, str]:
    """Return the variables that agents find their model by; those of OpenAI's clients have the version in the path."""
    openai = f"{door.url}/v1"
    return {
        "OPENAI_BASE_URL": openai,
        "OPENAI_API_BASE": openai,
        "OPENAI_API_KEY": _UNUSED_KEY,
        "ANTHROPIC_BASE_URL": door.url,
        "ANTHROPIC_API_KEY": _UNUSED_KEY,
    }


def _graded(env: gym.Env[Any, Any], session: CodingTaskEnv, run: HarnessRun, solution: str | None) -> HarnessRun:
    """Submit what the agent has done, as a step of the task."""
    assert session.task is not None
    if isinstance(session.task.tests, RepositoryTests):
        action = SUBMIT
    elif solution is None:
        return run
    else:
        try:
            action = session.files.read(solution).decode()
        except (FileNotFoundError, UnicodeDecodeError):
            # The agent has not solved it: there is nothing to grade.
            return run
    _, reward, _, _, info = env.step(action)
    if info["outcome"] == "infrastructure":
        return replace(run, outcome="infrastructure", failure="the sandbox failed while the task was graded")
    return replace(run, verdict=session.last_verdict, reward=float(reward))
