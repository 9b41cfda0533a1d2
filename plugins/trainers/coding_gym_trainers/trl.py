"""Reward functions and environments for TRL's GRPO and RLOO trainers. This module does not import TRL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from coding_gym.envs.task_env import CodingTaskEnv, as_suite
from coding_gym.errors import ConfigurationError
from coding_gym.plugins import check_count, parameter_names
from coding_gym.sandbox.config import SandboxKwargs
from coding_gym.tasks import Grader, TaskSuite
from coding_gym.wrappers.actions import extract_code
from coding_gym_trainers._episodes import NOT_RUN, describe_step
from coding_gym_trainers._sharing import episode_pool

__all__ = ["TaskEnvironment", "TaskEnvironments", "TaskReward", "prompt_rows"]

Completion = str | Sequence[Mapping[str, Any]]


class TaskReward:
    """Reward function for ``reward_funcs=``: the fraction of hidden tests that the code in a completion passes.

    The code is the last Python block of the completion, or the whole completion if it has no fence. Equal code for a task is
    graded once per call. The reward is None after an
    infrastructure error, so that TRL excludes the completion from its group. Use it as a context manager, or call ``close``.

    Args:
        suite: Task suite, or an argument of ``load_suite``. The column ``task_id`` of the training dataset names the task of
            each prompt.
        name: Name of the reward in TRL's logs.
        grader: Grader to use; a dedicated one if None.
        sandbox_options: Fields of ``SandboxConfig`` for the dedicated grader, such as ``provider="local"``.

    Raises:
        ConfigurationError: If the suite does not exist, a setting is invalid, or sandbox options are passed with ``grader``.

    Example:
        >>> with TaskReward("basics") as reward:  # doctest: +SKIP
        ...     trainer = GRPOTrainer(model, reward_funcs=reward, train_dataset=Dataset.from_list(prompt_rows("basics")))
        ...     trainer.train()
    """

    def __init__(
        self,
        suite: TaskSuite | str,
        *,
        name: str = "tests_passed",
        grader: Grader | None = None,
        **sandbox_options: Unpack[SandboxKwargs],
    ) -> None:
        if grader is not None and sandbox_options:
            message = f"The grader has sandboxes already: pass {', '.join(sandbox_options)} to Grader instead"
            raise ConfigurationError(message)
        self.suite = as_suite(suite)
        self.__name__ = name
        self._owns_grader = grader is None
        self._grader = Grader(**sandbox_options) if grader is None else grader

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Completion], *, task_id: Sequence[str], **columns: Any
    ) -> list[float | None]:
        """Return the rewards of completions, 0 to 1, or None after an infrastructure error.

        Args:
            prompts: Prompts of the completions; ignored.
            completions: Text, or lists of messages.
            task_id: Column ``task_id`` of the training dataset.
            columns: Further columns and arguments that TRL passes; ignored.

        Raises:
            ConfigurationError: If a task does not exist.
        """
        for name in task_id:
            if name not in self.suite.ids:
                message = f"Expected the column task_id to have ids of the suite {self.suite.name!r}, got {name!r}"
                raise ConfigurationError(message)
        codes = (extract_code(text_of(completion)) for completion in completions)
        submissions = [(self.suite[name], code) for name, code in zip(task_id, codes, strict=True)]
        return [verdict.score for verdict in self._grader.grade_many(submissions)]

    def close(self) -> None:
        """Close the grader, if it is a dedicated one. Idempotent."""
        if self._owns_grader:
            self._grader.close()

    def __enter__(self) -> TaskReward:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class TaskEnvironment:
    """Environment of one rollout in TRL's API: its public methods, except for ``reset`` and ``get_reward``, are tools.

    Args:
        env: Environment that runs the code.
    """

    def __init__(self, env: CodingTaskEnv) -> None:
        self._env = env
        self._best = 0.0
        self._is_over = True
        self._is_lost = False

    def reset(self, **columns: Any) -> str:
        """Begin an episode and return the text of its task, which TRL appends to the prompt.

        Args:
            columns: Row of the training dataset, with ``task_id``: it is the same for all rollouts of a group.

        Raises:
            ConfigurationError: If there is no column ``task_id``.
        """
        if "task_id" not in columns:
            message = "Expected a data set with a column task_id, as prompt_rows makes it"
            raise ConfigurationError(message)
        observation, _ = self._env.reset(options={"task_id": columns["task_id"]})
        self._best = 0.0
        self._is_over = self._is_lost = False
        return str(observation["prompt"])

    def python(self, code: str) -> str:
        """Runs Python code in an interpreter that keeps its state. Code that defines what the task asks for is tested.

        Args:
            code: The code to run.

        Returns:
            What the code printed, and how many tests passed.
        """
        if self._is_over:
            return "[the episode is over]"
        if code not in self._env.action_space:
            return NOT_RUN
        observation, reward, terminated, truncated, info = self._env.step(code)
        self._best += float(reward)
        self._is_over = terminated or truncated
        self._is_lost = info["outcome"] == "infrastructure"
        return describe_step(observation, info)

    def get_reward(self) -> float | None:
        """Return the best score of the episode, 0 to 1, or None after an infrastructure error, so that TRL excludes it."""
        return None if self._is_lost else self._best


class TaskEnvironments:
    """Environment factory for ``environment_factory=``; its environments share sandboxes.

    Use it as a context manager, or call ``close``.

    Args:
        suite: Task suite, or an argument of ``load_suite``.
        rollouts: Maximum number of environments: in TRL's trainers, the number of completions per generation step.
        max_turns: Maximum number of tool calls in an episode.
        sandbox_options: Fields of ``SandboxConfig``, such as ``provider="local"``.

    Raises:
        ConfigurationError: If the suite does not exist, or a setting is invalid.

    Example:
        >>> with TaskEnvironments("basics", rollouts=8) as environments:  # doctest: +SKIP
        ...     rows = Dataset.from_list(prompt_rows("basics", with_prompt=False))
        ...     GRPOTrainer(model, environment_factory=environments, train_dataset=rows).train()
    """

    def __init__(
        self, suite: TaskSuite | str, *, rollouts: int = 8, max_turns: int = 10, **sandbox_options: Unpack[SandboxKwargs]
    ) -> None:
        self.suite = as_suite(suite)
        self._max_turns = check_count("max_turns", max_turns, 1)
        check_count("rollouts", rollouts, 1)
        self._pool = episode_pool(rollouts, sandbox_options, parameter_names(TaskEnvironments))
        self._envs: list[CodingTaskEnv] = []

    def __call__(self) -> TaskEnvironment:
        """Return a new environment."""
        env = CodingTaskEnv(suite=self.suite, max_turns=self._max_turns, pool=self._pool, screen=None)
        self._envs.append(env)
        return TaskEnvironment(env)

    def close(self) -> None:
        """Close all environments and remove the sandboxes. Idempotent."""
        for env in self._envs:
            env.close()
        self._pool.close()

    def __enter__(self) -> TaskEnvironments:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def prompt_rows(suite: TaskSuite | str, *, conversational: bool = True, with_prompt: bool = True) -> list[dict[str, Any]]:
    """Return the rows of a training dataset for TRL: ``prompt`` and ``task_id``.

    Args:
        suite: Task suite, or an argument of ``load_suite``.
        conversational: Whether prompts are lists of messages rather than text.
        with_prompt: Whether prompts contain the text of the task; with ``TaskEnvironments``, ``reset`` returns it instead.
    """
    texts = [(task.prompt if with_prompt else "", task.id) for task in as_suite(suite)]
    return [
        {"prompt": [{"role": "user", "content": text}] if conversational else text, "task_id": task_id}
        for text, task_id in texts
    ]


def text_of(completion: Completion) -> str:
    """Return the text of the assistant's messages in a completion."""
    if isinstance(completion, str):
        return completion
    return "\n".join(_contents(completion))


def _contents(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        if message.get("role") == "assistant" and isinstance(content, str):
            yield content
