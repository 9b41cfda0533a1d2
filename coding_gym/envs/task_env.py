"""``CodingTask-v0``: an agent solves problems with hidden tests."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from coding_gym._validation import check_count, hint
from coding_gym.envs.coding_env import CodingEnv
from coding_gym.envs.episode import EpisodeState, Info, Obs, StepResult
from coding_gym.envs.options import CodingEnvKwargs, EnvOptions
from coding_gym.envs.program_runs import SUBMIT, prompt_of, sample_run, shown_run
from coding_gym.envs.vector_env import CodingVectorEnv
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox import ManagedSandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.pool import SandboxPool, managed_sandbox
from coding_gym.spaces import CodeText
from coding_gym.tasks import Programs, RepositoryTests, Task, TaskSuite, Verdict, load_suite
from coding_gym.tasks.dependencies import DefinitionTracker
from coding_gym.tasks.grading import BackgroundGrading, BorrowedSandbox
from coding_gym.tasks.repository.grading import check_provider, config_for, prepare_session
from coding_gym.tasks.submission import defined_names, parse
from coding_gym_server.languages import PYTHON
from coding_gym_server.protocol import Observation, ObservationData, Outcome, ResetOptions, StepAction

__all__ = ["SESSIONS_PER_ENV", "CodingTaskEnv", "CodingTaskVectorEnv", "as_suite", "check_repositories"]

SESSIONS_PER_ENV = 2
"""Slots per environment: the agent's session, and the connection for grading its submissions."""

_NOT_GRADED: Info = {"graded": False, "solved": False, "tests_passed": 0, "tests_total": 0}


class CodingTaskEnv(CodingEnv):
    """``CodingEnv`` with a task: actions run in one interpreter, and those that are submissions are graded.

    A submission is an action that defines the task's entry point at its top level; if the task is a program, every action is a
    submission. It is graded while it runs in the agent's session, which never receives the tests: they run in other processes
    of its sandbox. The graded program consists of the definitions from earlier actions that the submission uses, followed by
    the submission: see ``coding_gym.tasks.dependencies.DefinitionTracker``. Only actions with outcome ``ok`` contribute
    definitions.

    If its tests are ``RepositoryTests``, the agent works in a session of its image, and the action ``submit``, which is not
    run, submits what it has changed, as the last turn does. The tests run where ``Task.grading`` says, and the episode ends
    with them. Actions are Python or, with ``backend="bash"``, shell commands.

    If the task is a program, the observation shows the run of the graded program on the task's sample, ``Task.sample_input``.
    Without a sample, the verdict decides: ``outcome`` is ``ok``, and the exit code 0, if all tests pass, and the output is that
    of the action if it ends without input. With one, they are those of this run, unless the tests ended otherwise.

    An episode is ``terminated`` when all tests have passed, or changes to a repository have been graded, and ``truncated``
    after ``max_turns`` steps.

    Observation:
        ``CodingEnv``'s dict, plus ``prompt``: ``CodeText``, the task description.

    Reward:
        The increase of the score, the fraction of passed tests, over the best previous submission of the episode; 0 for other
        steps. The return is therefore the best score, 0 to 1.

    Info:
        ``CodingEnv``'s, plus ``task_id``; ``graded``, whether the step was graded; ``solved``; ``tests_passed`` and
        ``tests_total``, 0 if the step was not graded. In the faithful mode, ``tests_passed`` is 0 unless all tests passed:
        which of its answers were right would help a program that guesses. An infrastructure error during grading is not a
        score: it truncates the episode with ``outcome`` ``infrastructure``, as an infrastructure error during execution does.

    Args:
        suite: The tasks, or an argument of ``load_suite``: ``basics``, ``humaneval``, the path of a file ... Only the latter
            can be saved with the environment's spec. Required.
        max_turns: Number of steps after which an episode is truncated.
        grading_network: Docker network of the tests of repositories, in sandboxes of their own; that of the agent if None.
        pool: Pool to lease a sandbox from. An environment occupies two slots; with tasks of repositories only, one.
        config: As for ``CodingEnv``.
        options: As for ``CodingEnv``.

    Attributes:
        suite: The tasks.

    Raises:
        ConfigurationError: If an option is invalid, or the suite does not exist or is empty.

    Example:
        >>> env = gym.make("CodingTask-v0", suite="basics", provider="auto")  # doctest: +SKIP
        >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
        >>> print(observation["prompt"])  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step("def bill(prices, rate): ...")  # doctest: +SKIP
    """

    _episode: _TaskEpisode

    def __init__(
        self,
        *,
        suite: TaskSuite | str | Path | None = None,
        max_turns: int = 10,
        grading_network: str | None = None,
        pool: SandboxPool | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        self.suite = as_suite(suite)
        self._max_turns = check_count("max_turns", max_turns, 1)
        self._grading_network = grading_network
        super().__init__(pool=pool, config=config, **options)
        check_repositories(self.suite, self.config, grading_network)
        has_programs = any(task.image is None for task in self.suite)
        if pool is None:
            self.config = replace(self.config, sessions=max(self.config.sessions, SESSIONS_PER_ENV if has_programs else 1))
        elif has_programs and pool.capacity < SESSIONS_PER_ENV:
            message = (
                f"A task environment occupies {SESSIONS_PER_ENV} slots of a pool, this one has 1: pass sessions= to SandboxPool"
            )
            raise ConfigurationError(message)
        self._grading: BackgroundGrading | None = None
        self._last_verdict: Verdict | None = None
        self._settled: Future[StepResult] | None = None

    def _make_episode(self, options: EnvOptions) -> _TaskEpisode:
        return _TaskEpisode(options, self.suite, self._max_turns)

    @property
    def task(self) -> Task | None:
        """The task of the episode, with its tests and reference solution: not for the agent. None before the first."""
        return self._episode.task

    @property
    def last_verdict(self) -> Verdict | None:
        """The verdict on the last step, None if it was not graded. Its messages may quote tests."""
        return self._last_verdict

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, Info]:
        """Begin an episode: draw a task, start a new interpreter, and fill the workspace with the task's files.

        Args:
            seed: As for ``CodingEnv``. The task is also drawn from ``np_random``.
            options: As for ``CodingEnv.reset``, plus ``task_id``: the id of the task.

        Raises:
            ConfigurationError: If the task does not exist.
            ProviderError: If no sandbox is available; with a pool, within its timeout.
            CapacityError: If the server has no free session.
        """
        return super().reset(seed=seed, options=options)

    def _leave_sandbox(self) -> None:
        if self._grading is not None:
            self._grading.close()
            self._grading = None
        super()._leave_sandbox()

    def begin_reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self._episode.check_reset(options)
        if self._grading is not None:
            self._grading.cancel()
        self._last_verdict = None
        super().begin_reset(seed=seed, options=options)

    def _load(self, episode: Mapping[str, Any]) -> None:
        if self._grading is not None:
            self._grading.cancel()
        self._last_verdict = None
        super()._load(episode)

    def finish_reset(self) -> tuple[Obs, Info]:
        result = super().finish_reset()
        if self._episode.repository is not None:
            prepare_session(self, self._episode.repository)
        return result

    def _wanted_config(self) -> SandboxConfig:
        config, tests = super()._wanted_config(), self._episode.repository
        if tests is None or self._pool is not None:
            return config
        return config_for(config, tests, config.network or ("none" if tests.network else None))

    def begin_step(self, action: str) -> None:
        # Of a step that was interrupted before its end.
        self._settled = None
        super().begin_step(action)
        program = self._episode.submission()
        if program is not None and self._session is not None:
            assert self.task is not None
            sample = sample_run(self.task, max_output_chars=self._episode.settings.max_output_chars)
            self._grader().begin([self.task] if sample is None else [self.task, sample], program)

    def settle_step(self, canceled: threading.Event | None = None) -> None:
        """Wait for the response to ``begin_step``, and begin to grade changes; ``finish_step`` returns the result."""
        settled: Future[StepResult] = Future()
        try:
            result = super().finish_step(canceled)
            if self._episode.submits_changes and self._session is not None:
                assert self.task is not None
                self._grader().begin([self.task], self)
            settled.set_result(result)
        except BaseException as error:  # noqa: BLE001 - finish_step raises it
            settled.set_exception(error)
        self._settled = settled

    def finish_step(self, canceled: threading.Event | None = None) -> StepResult:
        try:
            if self._settled is None:
                self.settle_step(canceled)
            settled, self._settled = self._settled, None
            assert settled is not None
            result = settled.result()
            verdicts = self._grading.finish() if self._grading is not None else []
            verdict, sample, *_ = *verdicts, None, None
            self._last_verdict = verdict
        except BaseException:
            if self._grading is not None:
                self._grading.cancel()
            raise
        return self._episode.graded(result, verdict, sample)

    def abort(self) -> None:
        grading = self._grading
        if grading is not None:
            grading.cancel()
        super().abort()

    def _grader(self) -> BackgroundGrading:
        if self._grading is None:
            assert self._slot is not None
            assert self._session is not None
            if self._is_fork:
                slot: ManagedSandbox = BorrowedSandbox(self._slot, fork_of=self._session.id)
            else:
                slot = BorrowedSandbox(self._slot) if self._pool is None else managed_sandbox(self._pool, self.config)
            self._grading = BackgroundGrading(slot, network=self._grading_network)
        return self._grading


class _TaskEpisode(EpisodeState):
    """An episode with a task.

    Args:
        settings: Options of the environment.
        suite: The tasks.
        max_turns: Maximum number of steps of an episode.
    """

    env_id = "CodingTask-v0"
    RESET_OPTIONS = (*EpisodeState.RESET_OPTIONS, "task_id")
    _SAVED = (*EpisodeState._SAVED, "task", "_turns_taken", "_best", "_definitions")

    def __init__(self, settings: EnvOptions, suite: TaskSuite, max_turns: int) -> None:
        super().__init__(settings)
        self.task: Task | None = None
        self._suite = suite
        self._max_turns = max_turns
        self._turns_taken = 0
        self._best = 0.0
        self._definitions = DefinitionTracker()
        longest = max(len(prompt_of(task)) for task in suite)
        self.observation_space = spaces.Dict({**self.observation_space.spaces, "prompt": CodeText(max(longest, 1))})

    @property
    def header(self) -> str:
        return super().header if self.task is None else f"{super().header}, task {self.task.id}"

    def check_reset(self, options: Mapping[str, Any] | None) -> None:
        super().check_reset(options)
        task_id = (options or {}).get("task_id")
        if task_id is not None and task_id not in self._suite.ids:
            known = ", ".join(self._suite.ids[:3])
            message = (
                f"Expected options['task_id'] to be the id of a task of the suite, such as {known}; got {task_id!r:.200}"
                f"{hint(task_id, self._suite.ids)}"
            )
            raise ConfigurationError(message)

    def begin(
        self, *, seed: int | None, np_random: np.random.Generator, options: Mapping[str, Any] | None = None
    ) -> ResetOptions:
        options = dict(options or {})
        task_id = options.pop("task_id", None)
        task = self._suite[int(np_random.integers(len(self._suite))) if task_id is None else str(task_id)]
        if task.image is not None:
            options["image"] = task.image
        options["files"] = {**task.files, **(options.get("files") or {})}
        request = super().begin(seed=seed, np_random=np_random, options=options)
        self.task = task
        self._turns_taken = 0
        self._best = 0.0
        self._definitions.clear()
        return request

    def submission(self) -> str | None:
        """Return the program to grade, None if the action of this step is not a submission."""
        assert self.task is not None
        if self.repository is not None:
            return None
        if self._is_whole_program:
            return self._code
        entry_point = self.task.entry_point
        if entry_point is not None:
            module = parse(self._code) if entry_point in self._code else None
            if module is None or entry_point not in defined_names(module):
                return None
        return self._definitions.program(self._code)

    @property
    def repository(self) -> RepositoryTests | None:
        """The tests of the task, if they are those of a repository."""
        tests = None if self.task is None else self.task.tests
        return tests if isinstance(tests, RepositoryTests) else None

    @property
    def _is_whole_program(self) -> bool:
        """Whether each action is a program in another language than that of the interpreter, which does not run it."""
        assert self.task is not None
        return isinstance(self.task.tests, Programs) and self.task.tests.language != PYTHON

    @property
    def submits_changes(self) -> bool:
        """Whether the last action submits the changes to a repository: because it says so, or as the last turn."""
        return self.repository is not None and (self._is_submit(self._code) or self._turns_taken >= self._max_turns)

    def begin_step(self, action: Any) -> StepAction:
        request = super().begin_step(action)
        if self._is_whole_program or (self.repository is not None and self._is_submit(request.code)):
            # Nothing is run here; the transcript has the action.
            self._request = StepAction(code="")
        return self._request

    @staticmethod
    def _is_submit(action: str) -> bool:
        return action.strip() == SUBMIT

    def finish_step(self, data: ObservationData) -> StepResult:
        self._turns_taken += 1
        metadata = data.observation.metadata
        if metadata.state_lost:
            self._definitions.clear()
        elif metadata.outcome is Outcome.OK and not self._is_whole_program:
            self._definitions.add(self._code)
        return super().finish_step(data)

    def graded(self, result: StepResult, verdict: Verdict | None, sample: Verdict | None) -> StepResult:
        """Add a verdict, and that of the run on the task's sample, to the result of ``step``."""
        assert self.task is not None
        obs, reward, terminated, truncated, info = result
        if any(found is not None and found.is_infrastructure for found in (verdict, sample)):
            info["outcome"] = Outcome.INFRASTRUCTURE.value
            truncated = True
            if self.reports_loss:
                info["lost"] = True
        elif verdict is not None and not truncated:
            score = verdict.score or 0.0
            reward = max(score - self._best, 0.0)
            self._best = max(score, self._best)
            terminated = verdict.solved or self.repository is not None
            # Agents are told these numbers: in the faithful mode, the number of passed tests would be a partial credit.
            is_partial = verdict.tamper_resistant or verdict.solved
            passed = verdict.passed if is_partial else 0
            info.update(graded=True, solved=verdict.solved, tests_passed=passed, tests_total=verdict.total)
            if isinstance(self.task.tests, Programs):
                self._show_program(obs, info, verdict, sample)
        truncated = truncated or (self._turns_taken >= self._max_turns and not terminated)
        graded = obs, reward, terminated, truncated, info
        super()._report(graded)
        return graded

    def _show_program(self, obs: Obs, info: Info, verdict: Verdict, sample: Verdict | None) -> None:
        """Replace what the interpreter, in which the program has no input, has reported of it."""
        has_ended = info["outcome"] == Outcome.OK
        shown = shown_run(verdict, sample, stdout=obs["stdout"] if has_ended else "", stderr=obs["stderr"] if has_ended else "")
        stderr = shown.stderr[-self.settings.max_output_chars :]
        obs.update(stdout=shown.stdout, stderr=stderr, exit_code=np.int64(shown.exit_code))
        info["outcome"] = shown.outcome.value
        if self._turns:
            self._turns[-1] = replace(self._turns[-1], stdout=shown.stdout, stderr=stderr, exit_code=shown.exit_code)

    def _report(self, result: StepResult) -> None:
        """Report nothing yet: the step continues until it is graded."""

    def _observe(self, observation: Observation) -> Obs:
        assert self.task is not None
        return {**super()._observe(observation), "prompt": prompt_of(self.task)}

    def _info(self, observation: Observation) -> Info:
        assert self.task is not None
        return {**super()._info(observation), "task_id": self.task.id, **_NOT_GRADED}


def as_suite(suite: TaskSuite | str | Path | None) -> TaskSuite:
    """Return a suite of at least one task, loaded if necessary.

    Raises:
        ConfigurationError: If there is none, or the suite does not exist or is empty.
    """
    if suite is None:
        message = "Expected suite=, a TaskSuite or an argument of load_suite, such as 'basics', 'humaneval' or 'my.jsonl'"
        raise ConfigurationError(message)
    tasks = suite if isinstance(suite, TaskSuite) else load_suite(suite)
    if not tasks:
        message = f"Expected a suite with at least one task, got {tasks}"
        raise ConfigurationError(message)
    return tasks


def check_repositories(suite: TaskSuite, config: SandboxConfig, grading_network: str | None) -> None:
    """Raise if tasks of repositories cannot be run in sandboxes of a configuration, or not be graded.

    Raises:
        ConfigurationError: If that is so.
    """
    for task in suite:
        if isinstance(task.tests, RepositoryTests):
            check_provider(config)
            config_for(config, task.tests, grading_network or config.network)


class CodingTaskVectorEnv(CodingVectorEnv):
    """The vector form of ``CodingTask-v0``, step by step equal to a ``SyncVectorEnv`` of it, except for timing.

    Args:
        num_envs: Number of environments.
        suite: The tasks, or an argument of ``load_suite``. Required.
        max_turns: Number of steps after which an episode is truncated.
        grading_network: As for ``CodingTaskEnv``.
        options: Options of ``CodingVectorEnv``. An environment occupies two sessions of a sandbox, or two slots of a pool.

    Attributes:
        suite: The tasks.

    Raises:
        ConfigurationError: If an option is invalid, or the suite does not exist or is empty.
    """

    _sessions_per_env = SESSIONS_PER_ENV

    def __init__(
        self,
        num_envs: int = 1,
        *,
        suite: TaskSuite | str | Path | None = None,
        max_turns: int = 10,
        grading_network: str | None = None,
        pool: SandboxPool | None = None,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        sessions_per_sandbox: int | None = None,
        config: SandboxConfig | Mapping[str, Any] | None = None,
        **options: Unpack[CodingEnvKwargs],
    ) -> None:
        self.suite = as_suite(suite)
        self._max_turns = max_turns
        self._grading_network = grading_network
        self._has_images = any(task.image is not None for task in self.suite)
        super().__init__(
            num_envs,
            max_episode_steps=max_episode_steps,
            autoreset_mode=autoreset_mode,
            sessions_per_sandbox=sessions_per_sandbox,
            pool=pool,
            config=config,
            **options,
        )

    def _make_env(self, **settings: Any) -> CodingEnv:
        if self._pool is not None:
            # Submissions are graded in a second slot.
            settings = {**settings, "config": None, "pool": self._pool}
        return CodingTaskEnv(suite=self.suite, max_turns=self._max_turns, grading_network=self._grading_network, **settings)

    def _may_change_images(self, options: Mapping[str, Any] | None) -> bool:
        return self._has_images or super()._may_change_images(options)

    def _finish_steps(self, indices: list[int]) -> dict[int, StepResult]:
        # Repositories are graded at the same time.
        for index in indices:
            env = self._coding_envs[index]
            assert isinstance(env, CodingTaskEnv)
            env.settle_step()
        return super()._finish_steps(indices)

    def _batch(self, observations: list[Obs]) -> Obs:
        return {**super()._batch(observations), "prompt": tuple(obs["prompt"] for obs in observations)}
