"""Rewards and environments for TRL's GRPO and RLOO trainers. TRL itself is not needed to make them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from coding_gym.config import sandbox_config
from coding_gym.errors import ConfigurationError
from coding_gym.pool import SandboxPool
from coding_gym.settings import check_count
from coding_gym.task_env import SESSIONS_PER_ENV, CodingTaskEnv, as_suite
from coding_gym.tasks import Grader, TaskSuite
from coding_gym.wrappers.chat_observation import describe_output
from coding_gym.wrappers.fenced_code import extract_code

__all__ = ["TaskEnvironment", "TaskEnvironments", "TaskReward", "prompt_rows"]

_SESSIONS_PER_SANDBOX = 16

Completion = str | Sequence[Mapping[str, Any]]


class TaskReward:
    """A reward function for ``reward_funcs=``: the part of the hidden tests that the code of a completion passes.

    The code is the last Python block of the completion, or all of it if it has no fence. A fault of ours gets None, by which
    TRL leaves the completion out of its group. Use it as a context manager, or call ``close``.

    Args:
        suite: The tasks, or what ``load_suite`` takes. The data set's column ``task_id`` says which a prompt is of.
        name: What TRL logs it as.
        grader: What grades; one of its own if None.
        sandbox_options: Fields of ``SandboxConfig`` for that, such as ``provider="local"``.

    Raises:
        ConfigurationError: There is no such suite, or a setting cannot be.

    Example:
        >>> with TaskReward("basics") as reward:  # doctest: +SKIP
        ...     trainer = GRPOTrainer(model, reward_funcs=reward, train_dataset=Dataset.from_list(prompt_rows("basics")))
        ...     trainer.train()
    """

    def __init__(
        self, suite: TaskSuite | str, *, name: str = "tests_passed", grader: Grader | None = None, **sandbox_options: Any
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
        """Return the rewards of completions.

        Args:
            prompts: What they answer.
            completions: Text, or lists of messages.
            task_id: The column of the data set.
            columns: What else TRL tells.

        Raises:
            ConfigurationError: There is no such task.
        """
        for name in task_id:
            if name not in self.suite.ids:
                message = f"Expected the column task_id to have ids of the suite {self.suite.name!r}, got {name!r}"
                raise ConfigurationError(message)
        answers = [
            (self.suite[name], extract_code(text_of(completion))) for name, completion in zip(task_id, completions, strict=True)
        ]
        return [verdict.score for verdict in self._grader.grade_many(answers)]

    def close(self) -> None:
        """Remove the sandbox, if it is of its own; harmless when closed already."""
        if self._owns_grader:
            self._grader.close()

    def __enter__(self) -> TaskReward:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class TaskEnvironment:
    """One rollout's environment, as TRL has it: its public methods, but ``reset`` and ``get_reward``, are the model's tools.

    Args:
        env: What it runs in.
    """

    def __init__(self, env: CodingTaskEnv) -> None:
        self._env = env
        self._best = 0.0
        self._is_over = True
        self._is_lost = False

    def reset(self, **columns: Any) -> str:
        """Begin with a task; returns what it says, which TRL appends to the prompt.

        Args:
            columns: A row of the data set, with ``task_id``: all rollouts of a group have the same.
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
            return "[nothing was run: the code is too long, or not text]"
        observation, reward, terminated, truncated, info = self._env.step(code)
        self._best += float(reward)
        self._is_over = terminated or truncated
        self._is_lost = info["outcome"] == "infrastructure"
        tests = f"\n[{info['tests_passed']} of {info['tests_total']} tests passed]" if info["graded"] else ""
        return describe_output(observation) + tests

    def get_reward(self) -> float | None:
        """Return the best score of the episode, 0 to 1; None after a fault of ours, by which TRL leaves the rollout out."""
        return None if self._is_lost else self._best


class TaskEnvironments:
    """What ``environment_factory=`` takes: makes environments, which run in sandboxes that they share.

    Use it as a context manager, or call ``close``.

    Args:
        suite: The tasks, or what ``load_suite`` takes.
        rollouts: How many environments there are at most: of TRL's trainers, the completions of one generation.
        max_turns: Calls of the tool that an episode has at most.
        sandbox_options: Fields of ``SandboxConfig``, such as ``provider="local"``.

    Raises:
        ConfigurationError: There is no such suite, or a setting cannot be.

    Example:
        >>> with TaskEnvironments("basics", rollouts=8) as environments:  # doctest: +SKIP
        ...     rows = Dataset.from_list(prompt_rows("basics", with_prompt=False))
        ...     GRPOTrainer(model, environment_factory=environments, train_dataset=rows).train()
    """

    def __init__(self, suite: TaskSuite | str, *, rollouts: int = 8, max_turns: int = 10, **sandbox_options: Any) -> None:
        self.suite = as_suite(suite)
        self._max_turns = check_count("max_turns", max_turns, 1)
        places = check_count("rollouts", rollouts, 1) * SESSIONS_PER_ENV
        sessions = min(places, _SESSIONS_PER_SANDBOX)
        config = sandbox_config(None, {"sessions": sessions, **sandbox_options})
        self._pool = SandboxPool(-(-places // config.sessions), config=config)
        self._envs: list[CodingTaskEnv] = []

    def __call__(self) -> TaskEnvironment:
        """Return another environment."""
        env = CodingTaskEnv(suite=self.suite, max_turns=self._max_turns, pool=self._pool, screen=None)
        self._envs.append(env)
        return TaskEnvironment(env)

    def close(self) -> None:
        """End all environments, and remove the sandboxes; harmless when closed already."""
        for env in self._envs:
            env.close()
        self._pool.close()

    def __enter__(self) -> TaskEnvironments:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def prompt_rows(suite: TaskSuite | str, *, conversational: bool = True, with_prompt: bool = True) -> list[dict[str, Any]]:
    """Return the rows of a data set for TRL: ``prompt`` and ``task_id``.

    Args:
        suite: The tasks, or what ``load_suite`` takes.
        conversational: Whether prompts are lists of messages rather than text.
        with_prompt: Whether prompts say what the task is; an environment says it itself.
    """
    texts = [(task.prompt if with_prompt else "", task.id) for task in as_suite(suite)]
    return [
        {"prompt": [{"role": "user", "content": text}] if conversational else text, "task_id": task_id}
        for text, task_id in texts
    ]


def text_of(completion: Completion) -> str:
    """Return what the assistant says in a completion."""
    if isinstance(completion, str):
        return completion
    return "\n".join(_contents(completion))


def _contents(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        if message.get("role") == "assistant" and isinstance(content, str):
            yield content
