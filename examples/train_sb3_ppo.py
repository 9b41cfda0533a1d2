"""Train PPO to compose a program from snippets until hidden tests pass.

The task: ``largest_even_squares(numbers)`` returns the squares of the even numbers, of the largest number first. An action adds
one of twelve lines to the body of the function, for at most six turns; after each turn the function runs in the sandbox and is
graded there. The policy has to find the lines and their order; a random policy solves two episodes of a thousand.

Run it with ``pip install 'coding-gym[sb3]' matplotlib`` and ``python examples/train_sb3_ppo.py --output curve.png``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib as mpl
import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

import coding_gym  # noqa: F401 - registers the environments
from coding_gym.tasks import Asserts, Task, TaskSuite
from coding_gym_trainers.sb3 import SB3VecEnv

mpl.use("Agg")
from matplotlib import pyplot as plt

MAX_LINES = 6
HEAD = "def largest_even_squares(numbers):\n"
LINES = (
    "numbers = [n for n in numbers if n % 2 == 0]",
    "numbers = [n for n in numbers if n % 2]",
    "numbers = [n for n in numbers if n > 0]",
    "numbers = sorted(numbers)",
    "numbers = sorted(numbers, reverse=True)",
    "numbers = numbers[:3]",
    "numbers = numbers[1:]",
    "numbers = [n * n for n in numbers]",
    "numbers = [n + 1 for n in numbers]",
    "numbers = [-n for n in numbers]",
    "numbers = [2 * n for n in numbers]",
    "numbers = list(dict.fromkeys(numbers))",
)
# The tests range from those that a single line passes to those that require the complete program, to reward progress.
ANSWERS = {
    (): [],
    (7, 5): [],
    (0, 0): [0, 0],
    (1, 0, 3): [0],
    (2,): [4],
    (4, 3): [16],
    (0, 2): [4, 0],
    (2, 4): [16, 4],
    (2, 9, 6, 2): [36, 4, 4],
    (1, 2, 3, 4, 5, 6): [36, 16, 4],
    (-2, 4, -6, 1): [16, 4, 36],
    (12, 5, 0, 8, -2, 3): [144, 64, 0, 4],
}
TASK = Task(
    id="largest_even_squares",
    prompt="Write largest_even_squares(numbers): the squares of the even numbers, of the largest number first.",
    entry_point="largest_even_squares",
    tests=Asserts(cases=tuple(f"assert largest_even_squares({list(given)}) == {answer}" for given, answer in ANSWERS.items())),
)


@dataclass(frozen=True)
class Settings:
    """Options of the command line.

    Attributes:
        provider: Sandbox provider: auto, docker or local.
        timesteps: Number of training actions.
        num_envs: Number of environments.
        n_steps: Number of actions per environment between two updates.
        episodes: Number of episodes for measuring a success rate.
        seed: Random seed.
        output: File of the learning curve.
    """

    provider: str = "auto"
    timesteps: int = 20_480
    num_envs: int = 16
    n_steps: int = 64
    episodes: int = 200
    seed: int = 1
    output: Path = Path("learning_curve.png")


class ComposedPrograms(VectorWrapper):  # type: ignore[type-arg] # not generic before Gymnasium 1.4
    """Adds a line to each program per action, and runs the programs.

    Action:
        The number of a line: ``MultiDiscrete`` of shape (num_envs,).

    Observation:
        The program as one-hot encoded line numbers per position; float32 of shape (num_envs, positions * (lines + 1)).

    A full program is a terminal state, because the observation includes its length. The turn limit is therefore a termination;
    otherwise learners would bootstrap from the value of a state that never occurs.

    Args:
        env: A vector environment that runs text, and resets in the same step.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.single_action_space = gym.spaces.Discrete(len(LINES))
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.single_observation_space = gym.spaces.Box(0, 1, (MAX_LINES * (len(LINES) + 1),), np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self._programs: list[list[int]] = [[] for _ in range(self.num_envs)]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        _, infos = self.env.reset(seed=seed, options=options)
        self._programs = [[] for _ in range(self.num_envs)]
        return self._observe(), infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        for program, action in zip(self._programs, actions, strict=True):
            program.append(int(action))
        _, rewards, terminations, truncations, infos = self.env.step([source_of(program) for program in self._programs])
        ended = terminations | truncations
        full = truncations & [len(program) == MAX_LINES for program in self._programs] & (final_outcomes(infos, ended) == "ok")
        if ended.any():
            infos["final_obs"] = self._observe()
        self._programs = [[] if end else program for program, end in zip(self._programs, ended, strict=True)]
        return self._observe(), rewards, terminations | full, truncations & ~full, infos

    def _observe(self) -> Any:
        places = np.full((self.num_envs, MAX_LINES), len(LINES))
        for index, program in enumerate(self._programs):
            places[index, : len(program)] = program
        return np.eye(len(LINES) + 1, dtype=np.float32)[places].reshape(self.num_envs, -1)


class LearningCurve(BaseCallback):
    """Records the outcomes of training episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []
        self.successes: list[bool] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "is_success" in info:
                self.steps.append(self.num_timesteps)
                self.successes.append(info["is_success"])
        return True


def source_of(program: list[int]) -> str:
    """Return the function whose body has these lines."""
    return HEAD + "".join(f"    {LINES[number]}\n" for number in program) + "    return numbers\n"


def final_outcomes(infos: dict[str, Any], ended: Any) -> Any:
    """Return the outcomes of the last steps of episodes, with all outcomes except ``infrastructure`` as ``ok``."""
    if not ended.any():
        return np.full(len(ended), "")
    return np.where(infos["final_info"]["outcome"] == "infrastructure", "infrastructure", "ok")


def success_rate(envs: VecEnv, policy: Callable[[Any], Any], *, episodes: int) -> float:
    """Return the fraction of episodes in which all hidden tests passed."""
    # The same number per environment: episodes that end early are the successful ones.
    episodes_per_env = -(-episodes // envs.num_envs)
    counts = np.zeros(envs.num_envs, int)
    successes = 0
    observations = envs.reset()
    while (counts < episodes_per_env).any():
        observations, _, _, infos = envs.step(policy(observations))
        for index, info in enumerate(infos):
            if "is_success" in info and counts[index] < episodes_per_env:
                counts[index] += 1
                successes += info["is_success"]
    return successes / counts.sum()


def draw(curve: LearningCurve, settings: Settings, before: float, after: float) -> None:
    """Save a plot of the success rate over time, as a moving average of 200 episodes."""
    window = min(200, max(len(curve.successes), 1))
    padded = np.concatenate([np.zeros(window), np.array(curve.successes, float)])
    rates = np.convolve(padded, np.ones(window) / window, "valid")[1:]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    axes.plot(curve.steps, rates, label=f"training (mean of {window} episodes)")
    axes.axhline(before, color="tab:red", linestyle=":", label=f"random policy: {before:.3f}")
    axes.axhline(after, color="tab:green", linestyle="--", label=f"trained policy: {after:.3f}")
    axes.set(xlabel="actions", ylabel="success rate", ylim=(-0.02, 1.05), title=f"PPO on {TASK.id}, seed {settings.seed}")
    axes.legend(loc="center left")
    axes.grid(alpha=0.3)
    figure.savefig(settings.output, dpi=120)


def train(settings: Settings) -> tuple[float, float]:
    """Train a policy and return the success rates of a random policy and of the trained one."""
    # Threads do not pay off for a network of this size.
    torch.set_num_threads(1)
    envs = gym.make_vec(
        "CodingTask-v0",
        num_envs=settings.num_envs,
        suite=TaskSuite("composition", [TASK]),
        max_turns=MAX_LINES,
        autoreset_mode="SameStep",
        provider=settings.provider,
        preload=(),
        screen=None,
    )
    adapted = SB3VecEnv(ComposedPrograms(envs))
    try:
        adapted.seed(settings.seed)
        rng = np.random.default_rng(settings.seed)
        before = success_rate(adapted, lambda _: rng.integers(len(LINES), size=settings.num_envs), episodes=settings.episodes)
        print(f"success rate of the random policy:  {before:.3f}", flush=True)

        model = PPO(
            "MlpPolicy",
            VecMonitor(adapted),
            n_steps=settings.n_steps,
            batch_size=min(256, settings.n_steps * settings.num_envs),
            learning_rate=1e-3,
            ent_coef=0.02,
            gamma=1.0,
            seed=settings.seed,
            policy_kwargs={"net_arch": [128, 128]},
            device="cpu",
        )
        curve = LearningCurve()
        started = time.perf_counter()
        model.learn(settings.timesteps, callback=curve)
        seconds = time.perf_counter() - started
        print(f"{model.num_timesteps} actions in {seconds:.0f} s, {model.num_timesteps / seconds:.0f} per second")

        after = success_rate(adapted, lambda seen: model.predict(seen)[0], episodes=settings.episodes)
        print(f"success rate of the trained policy: {after:.3f}")
        if adapted.infrastructure_failures:
            print(f"{adapted.infrastructure_failures} episodes were lost to infrastructure errors")
    finally:
        adapted.close()
    draw(curve, settings, before, after)
    print(f"learning curve: {settings.output}")
    return before, after


def main() -> None:
    """Train with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Settings):
        kind = type(field.default)
        parser.add_argument(
            f"--{field.name.replace('_', '-')}", type=kind, default=field.default, help="(default: %(default)s)"
        )
    train(Settings(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
