"""Train PPO of RLlib to choose lines of a program until the output is right.

An action runs one of six lines in the interpreter of its episode, and prints the list that the line has changed. The reward of
a step is 1 if the output is the squares of the even numbers, largest first. That takes the first line, then three of the
others, then the line that changes nothing: an episode of eight steps returns at most 5.
Each env runner of RLlib is an actor with a ``CodingVectorEnv``, whose environments share a sandbox on its node.

Install RLlib in its own virtual environment, from a checkout of this package, because releases of Ray pin their releases of
gymnasium:

    python -m venv ../rllib-venv
    ../rllib-venv/bin/pip install -e . "ray[rllib]==2.60.0" torch
    ../rllib-venv/bin/python examples/rllib_ppo.py

Tried with Python 3.11, Ray 2.60.0, gymnasium 1.2.2 and a CPU build of torch 2.13.0. Other releases are untried.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import gymnasium as gym
import numpy as np

import coding_gym  # noqa: F401 - registers the environments
from coding_gym.wrappers.terms import OutputMatch
from coding_gym.wrappers.vector import BytesObservation, RewardSum, SnippetActions

try:
    import ray
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune import register_env
except ImportError as error:
    sys.exit(f"{error}: this example requires RLlib, as follows.\n\n{__doc__}")

LINES = (
    "numbers = [1, 2, 3, 4, 5, 6]",
    "numbers = [n for n in numbers if n % 2 == 0]",
    "numbers = [n * n for n in numbers]",
    "numbers = [n + 1 for n in numbers]",
    "numbers = numbers[::-1]",
    "pass",
)
GOAL = "[36, 16, 4]\n"
LENGTH = 24


def make_envs(context: dict[str, Any]) -> gym.vector.VectorEnv:
    """Return the environments of an env runner: actions are numbers of lines, observations the bits of the output."""
    options = {"provider": context["provider"], "preload": (), "screen": None}
    envs = gym.make_vec("CodingEnv-v0", context["num_envs"], max_episode_steps=8, **options)
    envs = SnippetActions(RewardSum(envs, {OutputMatch(GOAL): 1.0}), [f"{line}\nprint(numbers)" for line in LINES])
    return gym.wrappers.vector.TransformObservation(
        BytesObservation(envs, length=LENGTH),
        lambda seen: np.unpackbits(seen["stdout"], axis=1).astype(np.float32),
        single_observation_space=gym.spaces.Box(0, 1, (8 * LENGTH,), np.float32),
    )


def main() -> None:
    """Train, and print how it goes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", help="address of the cluster; by default, one is started here")
    parser.add_argument("--env-runners", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--num-envs", type=int, default=8, help="environments of each env runner")
    parser.add_argument("--provider", default="auto", help="auto, docker or local")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    # Threads do not pay off for a network of this size.
    torch.set_num_threads(1)
    register_env("lines", make_envs)
    config = PPOConfig().environment("lines", env_config={"provider": options.provider}).debugging(seed=options.seed)
    config.env_runners(
        num_env_runners=options.env_runners,
        num_envs_per_env_runner=options.num_envs,
        gym_env_vectorize_mode="vector_entry_point",
    )
    # Raise the exceptions of env runners, such as that of a missing engine, instead of restarting them.
    config.fault_tolerance(restart_failed_env_runners=False)
    config.training(train_batch_size=1024, minibatch_size=256, num_epochs=8, lr=1e-3, entropy_coeff=0.02)
    algorithm = None
    ray.init(address=options.address, include_dashboard=False)
    try:
        algorithm = config.build_algo()
        for _ in range(options.iterations):
            seen = algorithm.train()["env_runners"]
            steps, mean_return = seen["num_env_steps_sampled_lifetime"], seen["episode_return_mean"]
            print(f"{steps:6.0f} steps: mean return {mean_return:.2f}", flush=True)
    finally:
        if algorithm:
            algorithm.stop()
        ray.shutdown()


if __name__ == "__main__":
    main()
