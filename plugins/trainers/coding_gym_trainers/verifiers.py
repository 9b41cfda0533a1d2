"""Task suites for verifiers: ``CodingGymTaskset`` grades one reply, with ``CodingGymEnv`` a model has several turns.

An environment package exports what it is made of, and verifiers runs it by its name::

    # coding_gym_tasks/__init__.py
    from coding_gym_trainers.verifiers import CodingGymTaskset
    from verifiers.v1.harnesses.null import NullHarness

    __all__ = ["CodingGymTaskset", "NullHarness"]
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pydantic import Field

from coding_gym.errors import ProviderError, TransportError
from coding_gym.tasks import Task, Verdict
from coding_gym.wrappers.actions import extract_code
from coding_gym_trainers._episodes import HOW_TO_ANSWER, TextEpisodes, TextStep
from coding_gym_trainers._sharing import close_sandboxes, shared_grader, shared_suite

try:
    import verifiers.v1 as vf
except ImportError as error:
    message = "coding_gym_trainers.verifiers requires verifiers: pip install 'coding-gym[verifiers]'"
    raise ImportError(message) from error

__all__ = ["CodingGymConfig", "CodingGymData", "CodingGymEnv", "CodingGymTask", "CodingGymTaskset", "close_sandboxes"]


class CodingGymTaskConfig(vf.TaskConfig):
    """Settings of the sandboxes: ``--env.taskset.task.provider docker``.

    Attributes:
        provider: Provider of the sandboxes.
        workers: Number of replies that are graded in parallel; None for two per core.
        sandbox: Other fields of ``SandboxConfig``.
    """

    provider: str = "auto"
    workers: int | None = None
    sandbox: dict[str, Any] = Field(default_factory=dict)

    @property
    def sandbox_options(self) -> dict[str, Any]:
        """Fields of ``SandboxConfig``."""
        return {**self.sandbox, "provider": self.provider}


class CodingGymData(vf.TaskData):
    """A task without its tests and its reference, which are neither in traces nor sent to the processes of rollouts.

    Attributes:
        suite: Name of its suite, see ``load_suite``. ``id`` is its id there.
    """

    suite: str


class CodingGymTask(vf.Task[CodingGymData, vf.State, CodingGymTaskConfig]):
    """Task whose reward is the fraction of hidden tests that pass with the last Python block of the last reply.

    An infrastructure error is not a score: the trace has an error of type ``SandboxError`` and no reward, and the episode is
    not ``ok``, so that it can be retried, or resumed.
    """

    @property
    def key(self) -> str:
        """Id of the task, which does not depend on its position in the suite."""
        return f"{self.data.suite}:{self.data.id}"

    @property
    def task(self) -> Task:
        """The task, with its tests."""
        task: Task = shared_suite(self.data.suite)[self.data.id]
        return task

    @vf.metric(priority=1)
    async def grade(self, trace: vf.Trace) -> dict[str, float]:
        """Grade the last reply.

        Raises:
            vf.SandboxError: If grading failed because of an infrastructure error.
        """
        verdict = await self._grade(extract_code(trace.last_reply))
        score = verdict.score or 0.0
        return {"score": score, "solved": float(verdict.solved), "tests": float(verdict.total)}

    @vf.reward
    async def tests_passed(self, trace: vf.Trace) -> float:
        """Return the score of the reply, 0 to 1."""
        return float(trace.metrics["score"])

    async def validate(self, runtime: vf.Runtime) -> bool | None:
        """Return whether the reference solution passes all tests; None if there is none."""
        reference = self.task.reference
        return None if reference is None else (await self._grade(reference)).solved

    async def _grade(self, code: str) -> Verdict:
        grader = shared_grader(self.config.workers, self.config.sandbox_options)
        verdict = await asyncio.to_thread(grader.grade, self.task, code)
        if verdict.is_infrastructure:
            raise vf.SandboxError(f"{self.data.id} could not be graded: {verdict.message}")  # noqa: EM102
        return verdict


class CodingGymConfig(vf.TasksetConfig):
    """Settings of the suite: ``--env.taskset.suite humaneval``.

    Attributes:
        suite: The suite, see ``load_suite``.
        system: System message; None for none.
        task: Settings of the sandboxes.
    """

    suite: str = "basics"
    system: str | None = "Put the whole solution into one fenced block: ```python ... ```."
    task: CodingGymTaskConfig = CodingGymTaskConfig()


class CodingGymTaskset(vf.Taskset[CodingGymTask, CodingGymConfig]):
    """Suite of tasks with hidden tests: one of ours, HumanEval, or a file in any format that ``load_suite`` reads."""

    def load(self) -> Iterator[CodingGymTask]:
        """Yield the tasks.

        Raises:
            ConfigurationError: If the suite does not exist or is empty.
        """
        for task in shared_suite(self.config.suite):
            named = {"id": task.id, "name": task.id, "suite": self.config.suite}
            # A directory with a Dockerfile is none for verifiers' own runtimes.
            image = None if task.image is None or task.image.startswith("/") else task.image
            data = CodingGymData(**named, image=image, prompt=task.prompt, system_prompt=self.config.system)
            yield CodingGymTask(data, self.config.task)


class CodingGymEnvConfig(vf.EnvConfig):
    """Settings of episodes of several turns: ``--env.max-turns 8``.

    Attributes:
        player: The model that solves the tasks.
        max_turns: Maximum number of replies.
        episodes: Maximum number of episodes in this process at a time.
    """

    player: vf.AgentConfig = vf.AgentConfig()
    max_turns: int = 4
    episodes: int = 64


class CodingGymEnv(vf.Env[CodingGymEnvConfig]):
    """Episodes of several turns, in one interpreter each: the code of a reply runs, and the model reads its output.

    The reward ``tests_passed`` is the best score of the episode. After an infrastructure error, the episode is replayed in
    another sandbox; if that fails, too, it has an error of type ``SandboxError`` and no reward.
    """

    async def run(self, task: CodingGymTask, agents: vf.Agents) -> None:
        """Play an episode."""
        name = task.data.id
        limits = {"max_turns": self.config.max_turns, "episodes": self.config.episodes, "retries": 2}
        suite, options = shared_suite(task.data.suite), task.config.sandbox_options
        episode = TextEpisodes.make(CodingGymEnv, suite=suite, options=options, **limits)
        # The reply to grade is the best one, not the last.
        playing = task.with_system_prompt(HOW_TO_ANSWER).defer_scoring()
        score, turns, solved = 0.0, 0, False
        # A thread of its own: those that wait for a place must not occupy the threads of those that have one.
        with ThreadPoolExecutor(1) as thread:
            run = partial(asyncio.get_running_loop().run_in_executor, thread)
            try:
                await run(partial(episode.begin, task_id=name, patience=None))
                async with agents.player.interaction(playing) as interaction:
                    segment = await interaction.turn()
                    while not segment.terminated:
                        step: TextStep = await run(episode.reply, segment.last_reply)
                        score, turns, solved = score + step.reward, turns + 1, step.terminated
                        if step.is_lost:
                            raise vf.SandboxError(f"{name} was lost with its sandbox, and in all retries")  # noqa: EM102
                        if step.terminated or step.truncated:
                            break
                        segment = await interaction.turn(step.text)
            except (ProviderError, TransportError) as error:
                raise vf.SandboxError(f"{name}: {error}") from error  # noqa: EM102
            finally:
                await run(episode.close)
        interaction.trace.record_metrics({"solved": float(solved), "turns": float(turns)})
        interaction.trace.record_reward("tests_passed", score)

    async def stop(self) -> None:
        """Remove the sandboxes."""
        await asyncio.to_thread(close_sandboxes)
