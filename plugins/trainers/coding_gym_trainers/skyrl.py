"""``CodingGymEnv``: environment for SkyRL, with tasks whose hidden tests give the reward.

Register it where the environments are made, which is the entry point task of a SkyRL training script::

    skyrl_gym.register(
        "coding_gym",
        entry_point="coding_gym_trainers.skyrl:CodingGymEnv",
        kwargs={"suite": "humaneval", "episodes": 512},
    )
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coding_gym.errors import ConfigurationError, TransportError
from coding_gym.plugins import check_count, hint
from coding_gym.tasks import TaskSuite
from coding_gym.tasks.loaders.formats import tasks_of_rows
from coding_gym.tasks.loaders.rows import LoadOptions
from coding_gym_trainers._episodes import HOW_TO_ANSWER, TextEpisodes
from coding_gym_trainers._sharing import close_sandboxes, shared_suite

try:
    from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
    from skyrl_gym.metrics import default_aggregate_metrics
except ImportError as error:
    message = "coding_gym_trainers.skyrl requires skyrl-gym: pip install 'coding-gym[skyrl]'"
    raise ImportError(message) from error

__all__ = ["CodingGymEnv", "close_sandboxes", "dataset_rows"]

_LOST = "infrastructure"


class CodingGymEnv(BaseTextEnv):
    """Environment of one trajectory: it runs the last Python block of each reply, and shows its output to the model.

    All replies of a trajectory run in one interpreter, which starts with the first of them. The task is named by the data row:
    ``reward_spec.ground_truth`` is the id of a task of the suite, or without a suite a row in a format that ``load_suite``
    reads, as a dict or as JSON. A column ``image`` of the row is the image of its sandbox, with the docker provider. SkyRL's
    ``generator.max_turns`` limits the replies.

    The reward of a reply is the increase of the best score, the fraction of hidden tests that pass: the sum over the trajectory
    is the best score.

    The environments of a process share sandboxes, which are removed when it exits.

    After an infrastructure error, the trajectory is replayed in another sandbox. If all retries fail, ``step`` raises, which
    ends the run of the trainer, because SkyRL cannot leave out a single trajectory; with ``lost_reward``, the trajectory ends
    with that reward instead. The metric ``infrastructure`` is the rate of such trajectories, which the other metrics leave out.

    Args:
        env_config: SkyRL's configuration of the environment, ``environment.skyrl_gym.<id>``: any of the options below.
        extras: The data row, with ``max_turns``.
        suite: Task suite, or an argument of ``load_suite``.
        episodes: Maximum number of trajectories in this process at a time; one beyond it waits for another to end. SkyRL plays
            all of a batch at a time (prompts times samples), and if they have several turns, all need a place.
        retries: Maximum number of retries of a reply after an infrastructure error.
        lost_reward: Reward of a reply whose retries failed; None to raise.
        options: Fields of ``EnvOptions``, such as ``step_timeout``, and of ``SandboxConfig``, such as ``provider="docker"``.

    Raises:
        ConfigurationError: If an option is invalid, the data row has no ground truth, or there is no such task.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any] | None = None,
        extras: Mapping[str, Any] | None = None,
        *,
        suite: TaskSuite | str | None = None,
        episodes: int = 64,
        retries: int = 2,
        lost_reward: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        given = {"suite": suite, "episodes": episodes, "retries": retries, "lost_reward": lost_reward, **options}
        given.update(env_config or {})
        row = extras or {}
        self.max_turns = check_count("max_turns", row.get("max_turns", 1), 1)
        self._lost_reward = given.pop("lost_reward")
        tasks, self._task_id = _task_of(row, given.pop("suite"))
        self._image = row.get("image")
        limits = {"episodes": given.pop("episodes"), "retries": given.pop("retries")}
        self._episode = TextEpisodes.make(CodingGymEnv, suite=tasks, max_turns=self.max_turns, options=given, **limits)
        self._metrics: dict[str, Any] = {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Run a reply of the model.

        Raises:
            ProviderError: If no sandbox is available.
            TransportError: If the retries after an infrastructure error failed, and there is no ``lost_reward``.
        """
        if self.turns == 0:
            self._episode.begin(task_id=self._task_id, image=self._image)
            self._metrics = {"solved": 0.0, "score": 0.0}
        self.turns += 1
        step = self._episode.reply(action)
        reward = step.reward
        self._metrics["solved"] = float(step.info["solved"])
        self._metrics["score"] += reward
        self._metrics["turns"] = self.turns
        self._metrics[_LOST] = float(step.is_lost)
        done = step.terminated or step.truncated
        if step.is_lost:
            if self._lost_reward is None:
                self.close()
                message = f"Task {self._task_id!r} was lost with its sandbox, and in all {self._episode.retries} retries"
                raise TransportError(message)
            reward = float(self._lost_reward)
        return BaseTextEnvStepOutput(
            observations=[] if done else [{"role": "user", "content": step.text}],
            reward=reward,
            done=done,
            metadata=dict(step.info),
            postprocessed_action=None,
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return ``solved``, ``score``, ``turns`` and ``infrastructure`` of the trajectory."""
        return dict(self._metrics)

    @staticmethod
    def aggregate_metrics(metrics: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the means of the metrics, without the trajectories that were lost; ``infrastructure`` is their rate."""
        kept = [{**each} for each in metrics if not each.get(_LOST)]
        means: dict[str, Any] = default_aggregate_metrics(kept)
        begun = [each[_LOST] for each in metrics if _LOST in each]
        return {**means, _LOST: sum(begun) / len(begun)} if begun else means

    def close(self) -> None:
        """Return the sandbox to those that the environments share. Idempotent."""
        self._episode.close()


def dataset_rows(
    suite: TaskSuite | str, *, env_class: str = "coding_gym", system: str | None = HOW_TO_ANSWER
) -> list[dict[str, Any]]:
    """Return the rows of a dataset for SkyRL: ``data_source``, ``prompt``, ``env_class``, ``reward_spec``.

    Args:
        suite: Task suite, or an argument of ``load_suite``.
        env_class: Id that the environment is registered with.
        system: System message; None for none.
    """
    tasks = shared_suite(suite)
    opening = [] if system is None else [{"role": "system", "content": system}]
    return [
        {
            "data_source": tasks.name,
            "prompt": [*opening, {"role": "user", "content": task.prompt}],
            "env_class": env_class,
            "reward_spec": {"method": "rule", "ground_truth": task.id},
        }
        for task in tasks
    ]


def _task_of(row: Mapping[str, Any], suite: TaskSuite | str | None) -> tuple[TaskSuite, str]:
    """Return a suite, and the id of the task in it that a data row names.

    Raises:
        ConfigurationError: If there is none.
    """
    spec = row.get("reward_spec")
    truth = spec.get("ground_truth") if isinstance(spec, Mapping) else None
    if truth is None:
        message = (
            "Expected a data row with reward_spec.ground_truth, the id of a task or a row with tests, as dataset_rows makes it"
        )
        raise ConfigurationError(message)
    if suite is not None:
        tasks = shared_suite(suite)
        if truth not in tasks.ids:
            message = (
                f"Expected reward_spec.ground_truth to be the id of a task of the suite {tasks.name!r}, got {truth!r:.200}"
                f"{hint(truth, tasks.ids)}"
            )
            raise ConfigurationError(message)
        return tasks, truth
    try:
        fields = json.loads(truth) if isinstance(truth, str) else truth
    except ValueError:
        fields = None
    if not isinstance(fields, Mapping):
        message = f"Expected reward_spec.ground_truth to be a row with tests, or suite= to be passed, got {truth!r:.200}"
        raise ConfigurationError(message)
    (task,) = tasks_of_rows([("reward_spec.ground_truth", fields)], source="row", options=LoadOptions())
    return TaskSuite("row", [task]), task.id
