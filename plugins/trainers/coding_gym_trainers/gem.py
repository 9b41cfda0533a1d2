"""``CodingGymEnv``: environment for GEM, with tasks whose hidden tests give the reward, and copies of running episodes.

Register it once, then make it by its id::

    gem.register("coding:HumanEval", "coding_gym_trainers.gem:CodingGymEnv", suite="humaneval")
    env = gem.make("coding:HumanEval", max_turns=4)
"""

from __future__ import annotations

from typing import Any, Self

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Task, TaskSuite
from coding_gym_trainers._episodes import HOW_TO_ANSWER, TextEpisodes
from coding_gym_trainers._sharing import close_sandboxes, shared_suite

try:
    from gem.core import Env
except ImportError as error:
    message = "coding_gym_trainers.gem requires GEM: pip install 'coding-gym[gem]'"
    raise ImportError(message) from error

__all__ = ["CodingGymEnv", "close_sandboxes"]


class CodingGymEnv(Env):
    """Environment whose actions are replies of a language model: it runs their last Python block, and returns its output.

    All replies of an episode run in one interpreter. The first observation is the text of the task, after how to answer. The
    reward, the end of an episode and the info are those of ``CodingTask-v0``: the increase of the best score, which is the
    fraction of hidden tests that pass; ``terminated`` if all pass; ``truncated`` after ``max_turns`` replies.

    After an infrastructure error, the episode is replayed in another sandbox. If all retries fail, it is truncated with
    ``info["outcome"] == "infrastructure"`` and reward 0, which is not a score: leave the episode out.

    The environments of a process share sandboxes, which are removed when it exits. Close environments that are not used any
    more, so that others get their places.

    Args:
        suite: Task suite, or an argument of ``load_suite``.
        seed: Seed of the first ``reset`` without one; ``gem.make_vec`` passes a different one to each environment.
        max_turns: Number of replies after which an episode is truncated.
        system: What the first observation begins with; None for nothing.
        episodes: Maximum number of environments in this process at a time, without those that ``spawn`` copied.
        retries: Maximum number of retries of a reply after an infrastructure error.
        options: Fields of ``EnvOptions``, such as ``step_timeout``, and of ``SandboxConfig``, such as ``provider="docker"``.

    Raises:
        ConfigurationError: If an option is invalid, or the suite does not exist.
    """

    def __init__(
        self,
        *,
        suite: TaskSuite | str | None = None,
        seed: int | None = None,
        max_turns: int = 4,
        system: str | None = HOW_TO_ANSWER,
        episodes: int = 64,
        retries: int = 2,
        **options: Any,
    ) -> None:
        super().__init__()
        self._arguments: dict[str, Any] = {
            "suite": shared_suite(suite),
            "max_turns": max_turns,
            "system": system,
            "episodes": episodes,
            "retries": retries,
            **options,
        }
        self._seed = seed
        self._system = system
        self._episode = TextEpisodes.make(
            CodingGymEnv,
            suite=shared_suite(suite),
            max_turns=max_turns,
            episodes=episodes,
            retries=retries,
            options=options,
        )

    @property
    def task(self) -> Task | None:
        """The task of the episode, with its tests and reference solution: not for the model. None before the first."""
        return self._episode.env.task

    def reset(self, seed: int | None = None, *, task_id: str | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed that the task is drawn with; None to continue from the previous one.
            task_id: The id of the task; None to draw one.

        Raises:
            ConfigurationError: If the task does not exist.
            ProviderError: If no sandbox is available.
        """
        if seed is None:
            seed, self._seed = self._seed, None
        prompt, info = self._episode.begin(task_id=task_id, seed=seed)
        return prompt if self._system is None else f"{self._system}\n\n{prompt}", info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Run a reply of the model; see ``CodingTask-v0``."""
        step = self._episode.reply(action)
        return step.text, step.reward, step.terminated, step.truncated, step.info

    def sample_random_action(self) -> str:
        """Return a reply with a random snippet of Python."""
        return f"```python\n{self._episode.env.action_space.sample()}\n```"

    def spawn(self, same_state: bool = False, **kwargs: Any) -> Self:
        """Return another environment.

        Args:
            same_state: Whether it continues from the present state of the episode: with a copy of the interpreter, its files
                and its random number generators. Both then continue independently. Without it, the environment has the same
                arguments, before its first ``reset``.
            kwargs: Arguments to replace, of an environment that does not continue from this state.

        Raises:
            ConfigurationError: If there are both ``same_state`` and arguments, or one is invalid.
            SnapshotError: If a copy would not be faithful: because of threads, child processes, sockets ...
            gymnasium.error.ResetNeeded: If there is no episode to copy.
        """
        if not same_state:
            return type(self)(**{**self._arguments, **kwargs})
        if kwargs:
            message = f"A copy of an episode has its arguments: pass {', '.join(kwargs)} to spawn without same_state"
            raise ConfigurationError(message)
        twin = type(self)(**self._arguments)
        twin._episode = self._episode.copy()
        return twin

    def close(self) -> None:
        """End the episode, and return the sandbox to those that the environments share. Idempotent."""
        self._episode.close()
