"""``TextEpisodes``: episodes of ``CodingTask-v0`` that language models play in text."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from coding_gym.branching import fork
from coding_gym.envs.episode import Info
from coding_gym.envs.options import split_options
from coding_gym.envs.task_env import CodingTaskEnv
from coding_gym.errors import CodingGymError
from coding_gym.plugins import check_count
from coding_gym.tasks import TaskSuite
from coding_gym.wrappers.actions import extract_code, fenced_blocks
from coding_gym.wrappers.observations import describe_output
from coding_gym_server.protocol import Outcome
from coding_gym_trainers._sharing import EpisodePool, shared_pool

__all__ = ["HOW_TO_ANSWER", "NOT_RUN", "TextEpisodes", "TextStep", "describe_step"]

HOW_TO_ANSWER = (
    "Put the code into one fenced block: ```python ... ```. It runs in an interpreter that keeps its state from turn to turn. "
    "You see its output, and once it defines what the task asks for, how many hidden tests pass."
)
"""System message for models that answer in text."""

NOT_RUN = "[nothing was run: the code is too long, or not text]"
NO_FENCE = "[the reply has no fenced block, so all of it was run: put the code between ```python and ```]"
_PATIENCE = 120.0
"""Seconds after which an episode that waits for another to end gives up: the others may wait, too, or be forgotten."""


class TextStep(NamedTuple):
    """Result of a reply.

    Attributes:
        text: What the model reads next: the output of its code, and how many tests passed.
        reward: As for ``CodingTask-v0``.
        terminated: Whether all tests passed.
        truncated: Whether the turns are used up, or an infrastructure error ended the episode.
        info: As for ``CodingTask-v0``.
    """

    text: str
    reward: float
    terminated: bool
    truncated: bool
    info: Info

    @property
    def is_lost(self) -> bool:
        """Whether an infrastructure error ended the episode, which says nothing about the model."""
        return bool(self.info["outcome"] == Outcome.INFRASTRUCTURE)


class TextEpisodes:
    """Episodes whose actions are replies of a language model.

    After an infrastructure error, the episode is replayed in another sandbox, and the reply runs again.

    Args:
        env: The environment.
        retries: Maximum number of retries of a reply.
        pool: What counts the episodes, if something does.
    """

    def __init__(self, env: CodingTaskEnv, *, retries: int, pool: EpisodePool | None = None) -> None:
        self.env = env
        self.retries = retries
        self._pool = pool
        self._has_place = False

    @classmethod
    def make(
        cls, kind: type, *, suite: TaskSuite, max_turns: int, episodes: int, retries: int, options: Mapping[str, Any]
    ) -> TextEpisodes:
        """Return episodes in the sandboxes of this process.

        Args:
            kind: Class with the options, for the message about an unknown one.
            suite: The tasks.
            max_turns: As for ``CodingTaskEnv``.
            episodes: As for ``shared_pool``.
            retries: As for the class.
            options: Fields of ``EnvOptions`` and ``SandboxConfig``.

        Raises:
            ConfigurationError: If an option is invalid.
        """
        check_count("retries", retries, 0)
        env_options, sandbox_options = split_options(options, kind, kind)
        pool = shared_pool(episodes, sandbox_options)
        env = CodingTaskEnv(suite=suite, max_turns=max_turns, pool=pool.sandboxes, **{"screen": None, **env_options})
        return cls(env, retries=retries, pool=pool)

    def begin(
        self,
        *,
        task_id: str | None = None,
        seed: int | None = None,
        image: str | None = None,
        patience: float | None = _PATIENCE,
    ) -> tuple[str, Info]:
        """Begin an episode; return the text of its task, and the info.

        Args:
            task_id: The id of the task; None to draw one.
            seed: Seed that it is drawn with.
            image: Image of the sandbox; None for that of the task or of the options.
            patience: Maximum number of seconds to wait for another episode to end, if too many are running; None for no limit.

        Raises:
            ConfigurationError: If the task does not exist.
            ProviderError: If no sandbox is available, or too many other episodes are running.
        """
        if self._pool is not None and not self._has_place:
            self._pool.enter(patience)
            self._has_place = True
        observation, info = self.env.reset(seed=seed, options={"task_id": task_id, "image": image})
        return str(observation["prompt"]), info

    def reply(self, text: str) -> TextStep:
        """Run the last Python block of a reply, or all of it if it has no fence."""
        code = extract_code(text)
        is_code = code in self.env.action_space
        record = self.env.clone_state(replay=True)
        step = self.env.step(code if is_code else "")
        for _ in range(self.retries):
            if step[-1]["outcome"] != Outcome.INFRASTRUCTURE:
                break
            try:
                self.env.restore_state(record, replay=True)
            except CodingGymError:
                continue
            step = self.env.step(code if is_code else "")
        observation, reward, terminated, truncated, info = step
        shown = describe_step(observation, info) if is_code else NOT_RUN
        if is_code and observation["exit_code"] and not fenced_blocks(text):
            shown += f"\n{NO_FENCE}"
        return TextStep(shown, float(reward), terminated, truncated, info)

    def copy(self) -> TextEpisodes:
        """Return an episode that continues from the present state of this one. It takes no place of its own.

        Raises:
            SnapshotError: If the copy would not be faithful.
            gymnasium.error.ResetNeeded: If there is no episode.
        """
        (env,) = fork(self.env, 1, [None])
        assert isinstance(env, CodingTaskEnv)
        return TextEpisodes(env, retries=self.retries)

    def close(self) -> None:
        """End the episode, and return its place in a sandbox. Idempotent."""
        self.env.close()
        if self._pool is not None and self._has_place:
            self._has_place = False
            self._pool.leave()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()


def describe_step(observation: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """Format the output of a step of ``CodingTask-v0``, with the number of passed tests if it was graded."""
    tests = f"\n[{info['tests_passed']} of {info['tests_total']} tests passed]" if info["graded"] else ""
    return describe_output(observation) + tests
