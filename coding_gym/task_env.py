"""``CodingTask-v0``: an agent solves problems with hidden tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle

from coding_gym.env import CodingEnv
from coding_gym.episode import Episode, Info, Obs, StepResult
from coding_gym.errors import ConfigurationError
from coding_gym.pool import SandboxPool, make_slot
from coding_gym.settings import EpisodeSettings, check_count
from coding_gym.spaces import CodeText
from coding_gym.tasks import Task, TaskSuite, Verdict, load_suite
from coding_gym.tasks.background_grading import BackgroundGrading, BorrowedSlot
from coding_gym.tasks.completion import defined_names, parse
from coding_gym.tasks.definitions import Definitions
from coding_gym_server.protocol import Observation, ObservationData, Outcome, ResetOptions

__all__ = ["SESSIONS_PER_ENV", "CodingTaskEnv", "as_suite"]

SESSIONS_PER_ENV = 2
"""The agent's, and the one over which its submissions are graded."""

_NOT_GRADED: Info = {"graded": False, "solved": False, "tests_passed": 0, "tests_total": 0}


class CodingTaskEnv(CodingEnv):
    """``CodingEnv`` with a problem to solve: actions run in one interpreter, and those that answer the problem are graded.

    An answer is an action that defines the task's entry point at its top level; if the task is a program, every action is one.
    It is graded while it runs in the agent's session, which never sees the tests: they go to other processes of its sandbox.
    What is graded is the action below those definitions of the episode's earlier actions that it uses: see
    ``coding_gym.tasks.definitions.Definitions``. Actions count for that if their outcome was ``ok``.

    An episode is ``terminated`` when all tests have passed, and ``truncated`` after ``max_turns`` steps.

    Observation:
        ``CodingEnv``'s dict, with ``prompt``: ``CodeText``, what the task says.

    Reward:
        How much better the answer is than the best of the episode before, by the part of the tests that it passed; 0 for other
        steps. So the return is the best score, 0 to 1.

    Info:
        ``CodingEnv``'s, with ``task_id``; ``graded``, whether the step was; ``solved``; ``tests_passed`` and ``tests_total``,
        0 where the step was not graded. A fault of ours in grading is no score: it truncates the episode with ``outcome``
        ``infrastructure``, as one in running code does.

    Args:
        suite: The tasks, or what ``load_suite`` takes: ``basics``, ``humaneval``, the path of a file ... Only the latter can be
            saved with the environment's spec.
        max_turns: Steps after which an episode is truncated.
        pool: Where to take a sandbox. An environment takes two places.
        options: What ``CodingEnv`` takes, and fields of ``SandboxConfig``.

    Attributes:
        suite: The tasks.

    Raises:
        ConfigurationError: A setting cannot be, there is no such suite, or it is empty.

    Example:
        >>> env = gym.make("CodingTask-v0", suite="basics", provider="auto")  # doctest: +SKIP
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> print(observation["prompt"])  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step("def bill(prices, rate): ...")  # doctest: +SKIP
    """

    def __init__(
        self, *, suite: TaskSuite | str | Path, max_turns: int = 10, pool: SandboxPool | None = None, **options: Any
    ) -> None:
        super().__init__(pool=pool, **options)
        EzPickle.__init__(self, suite=suite, max_turns=max_turns, pool=pool, **options)
        self.suite = as_suite(suite)
        self._task_episode = _TaskEpisode(self._episode.settings, self.suite, check_count("max_turns", max_turns, 1))
        self._episode = self._task_episode
        self.observation_space = self._episode.observation_space
        if pool is None:
            self.config = replace(self.config, sessions=max(self.config.sessions, SESSIONS_PER_ENV))
        elif pool.size * pool.config.sessions < SESSIONS_PER_ENV:
            message = f"An environment of tasks takes {SESSIONS_PER_ENV} places of a pool, this one has 1: pass it sessions="
            raise ConfigurationError(message)
        self._grading: BackgroundGrading | None = None
        self._last_verdict: Verdict | None = None

    @property
    def task(self) -> Task | None:
        """The task of the episode, with its tests and its reference solution: not for the agent. None before the first."""
        return self._task_episode.task

    @property
    def last_verdict(self) -> Verdict | None:
        """What came of grading the last step; None if it was not graded. Its messages may quote tests."""
        return self._last_verdict

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: a task, a new interpreter, and a workspace with the task's files.

        Args:
            seed: As for ``CodingEnv``. The task is drawn from ``np_random``, too.
            options: What ``CodingEnv.reset`` takes, and ``task_id``: the task.

        Raises:
            ConfigurationError: There is no such task.
            ProviderError: A sandbox cannot be had; of a pool, in time.
            CapacityError: The server has no free session.
        """
        return super().reset(seed=seed, options=options)

    def close(self) -> None:
        """End the session and remove the sandbox, or give it back to the pool; harmless when closed already."""
        if self._grading is not None:
            self._grading.close()
            self._grading = None
        super().close()

    def begin_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if self._grading is not None:
            self._grading.cancel()
        self._last_verdict = None
        super().begin_reset(seed=seed, options=options)

    def begin_step(self, action: str) -> None:
        super().begin_step(action)
        program = self._task_episode.submission()
        if program is not None and self._session is not None:
            assert self.task is not None
            self._grader().begin(self.task, program)

    def finish_step(self) -> StepResult:
        try:
            result = super().finish_step()
            self._last_verdict = self._grading.finish() if self._grading is not None else None
        except BaseException:
            if self._grading is not None:
                self._grading.cancel()
            raise
        return self._task_episode.graded(result, self._last_verdict)

    def _grader(self) -> BackgroundGrading:
        if self._grading is None:
            assert self._slot is not None
            slot = BorrowedSlot(self._slot) if self._pool is None else make_slot(self._pool, self.config)
            self._grading = BackgroundGrading(slot)
        return self._grading


class _TaskEpisode(Episode):
    """An episode with a task.

    Args:
        settings: What applies to all episodes.
        suite: The tasks.
        max_turns: Steps that an episode has at most.
    """

    def __init__(self, settings: EpisodeSettings, suite: TaskSuite, max_turns: int) -> None:
        super().__init__(settings)
        self.task: Task | None = None
        self._suite = suite
        self._max_turns = max_turns
        self._turns_taken = 0
        self._best = 0.0
        self._definitions = Definitions()
        longest = max(len(task.prompt) for task in suite)
        self.observation_space = spaces.Dict({**self.observation_space.spaces, "prompt": CodeText(max(longest, 1))})

    def begin(
        self, *, seed: int | None, np_random: np.random.Generator, options: Mapping[str, Any] | None = None
    ) -> ResetOptions:
        options = dict(options or {})
        task = self._choose(options.pop("task_id", None), np_random)
        files = options.get("files")
        if files is None or isinstance(files, Mapping):
            options["files"] = {**task.files, **(files or {})}
        asked = super().begin(seed=seed, np_random=np_random, options=options)
        self.task = task
        self._turns_taken = 0
        self._best = 0.0
        self._definitions.clear()
        return asked

    def submission(self) -> str | None:
        """Return the program that the action of this step submits, None if it submits none."""
        assert self.task is not None
        entry_point = self.task.entry_point
        if entry_point is not None:
            module = parse(self._code) if entry_point in self._code else None
            if module is None or entry_point not in defined_names(module):
                return None
        return self._definitions.program(self._code)

    def step_ended(self, data: ObservationData) -> StepResult:
        self._turns_taken += 1
        metadata = data.observation.metadata
        if metadata.state_lost:
            self._definitions.clear()
        elif metadata.outcome is Outcome.OK:
            self._definitions.add(self._code)
        return super().step_ended(data)

    def graded(self, result: StepResult, verdict: Verdict | None) -> StepResult:
        """Return what ``step`` returns, with what grading says."""
        obs, reward, terminated, truncated, info = result
        if verdict is not None and verdict.is_infrastructure:
            info["outcome"] = Outcome.INFRASTRUCTURE.value
            truncated = True
        elif verdict is not None and not truncated:
            score = verdict.score or 0.0
            reward = max(score - self._best, 0.0)
            self._best = max(score, self._best)
            terminated = verdict.solved
            info.update(graded=True, solved=verdict.solved, tests_passed=verdict.passed, tests_total=verdict.total)
        truncated = truncated or (self._turns_taken >= self._max_turns and not terminated)
        return obs, reward, terminated, truncated, info

    def _observe(self, observation: Observation) -> Obs:
        assert self.task is not None
        return {**super()._observe(observation), "prompt": self.task.prompt}

    def _info(self, observation: Observation) -> Info:
        assert self.task is not None
        return {**super()._info(observation), "task_id": self.task.id, **_NOT_GRADED}

    def _choose(self, task_id: Any, np_random: np.random.Generator) -> Task:
        if task_id is None:
            return self._suite[int(np_random.integers(len(self._suite)))]
        if task_id not in self._suite.ids:
            known = ", ".join(self._suite.ids[:3])
            message = f"Expected options['task_id'] to be the id of a task of the suite, such as {known}; got {task_id!r}"
            raise ConfigurationError(message)
        return self._suite[str(task_id)]


def as_suite(suite: TaskSuite | str | Path) -> TaskSuite:
    """Return a suite of at least one task, loaded if need be.

    Raises:
        ConfigurationError: There is none.
    """
    tasks = suite if isinstance(suite, TaskSuite) else load_suite(suite)
    if not tasks:
        message = f"Expected a suite with at least one task, got {tasks}"
        raise ConfigurationError(message)
    return tasks
