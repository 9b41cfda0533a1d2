"""Roll out a policy on all nodes of a Ray cluster, and continue when one of them dies.

Each node with the resource ``sandbox`` runs some sandboxes. The driver keeps as many episodes going as there are places, and
learns from each as it ends. An episode whose node is lost ends with ``info["lost"]``, is not learned from, and is rolled out
again elsewhere.

The policy is a softmax over candidate programs for each of four questions, trained with REINFORCE in a few lines of numpy.

Run it with ``pip install "coding-gym[ray]"`` and ``python examples/ray_rollouts.py``, which starts a cluster of one node on
this machine. On a running cluster, pass ``--address auto``; its nodes have ``ray start --resources '{"sandbox": 64}'``.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import numpy as np

from coding_gym import AsyncCodingEnv
from coding_gym_ray import RayPool

WORDS = "sandbox runs python"
CANDIDATES = ("text.upper()", "text.title()", "text[::-1]", "text.split()")


class Policy:
    """A softmax over the candidates for each question, trained with REINFORCE."""

    def __init__(self, seed: int, learning_rate: float = 0.5) -> None:
        self.rng = np.random.default_rng(seed)
        self.learning_rate = learning_rate
        self.logits = np.zeros((len(CANDIDATES), len(CANDIDATES)))

    def probabilities(self, question: int) -> np.ndarray:
        """Return the probability of each candidate for a question."""
        weights = np.exp(self.logits[question] - self.logits[question].max())
        return weights / weights.sum()

    def choose(self, question: int) -> int:
        """Return a random candidate for a question."""
        return int(self.rng.choice(len(CANDIDATES), p=self.probabilities(question)))

    def learn(self, question: int, choice: int, reward: float) -> None:
        """Follow the gradient of the log-probability of a choice, times its advantage over a mean reward of one in four."""
        gradient = -self.probabilities(question)
        gradient[choice] += 1
        self.logits[question] += self.learning_rate * (reward - 1 / len(CANDIDATES)) * gradient


async def roll_out(pool: RayPool, question: int, choice: int) -> float | None:
    """Run an episode, and return its reward, or None if its sandbox was lost."""
    expected = str(eval(CANDIDATES[question], {"text": WORDS}))  # noqa: S307 - our own text
    async with AsyncCodingEnv(pool=pool, screen=None) as env:
        await env.reset(seed=question)
        await env.step(f"text = {WORDS!r}")
        observation, _, _, _, info = await env.step(f"print({CANDIDATES[choice]})")
    return None if info.get("lost") else float(observation["stdout"].strip() == expected)


async def train(pool: RayPool, policy: Policy, episodes: int) -> tuple[list[float], int]:
    """Train on a number of episodes, as many at a time as there are places; return the rewards and the number of lost ones."""
    rewards: list[float] = []
    lost = 0
    questions = iter(range(episodes))

    async def worker() -> None:
        nonlocal lost
        for number in questions:
            question = number % len(CANDIDATES)
            reward = None
            while reward is None:
                choice = policy.choose(question)
                reward = await roll_out(pool, question, choice)
                lost += reward is None
            policy.learn(question, choice, reward)
            rewards.append(reward)

    await asyncio.gather(*(worker() for _ in range(pool.capacity)))
    return rewards, lost


def main() -> None:
    """Train, and print how it went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", help="address of the cluster; by default, one is started here")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--provider", default="auto", help="auto, docker or local")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    policy = Policy(options.seed)
    with RayPool(address=options.address, provider=options.provider, preload=()) as pool:
        print(f"{len(pool.hosts)} nodes with {pool.capacity} places")
        began = time.perf_counter()
        rewards, lost = asyncio.run(train(pool, policy, options.episodes))
        took = time.perf_counter() - began
    quarter = len(rewards) // 4
    print(f"{len(rewards)} episodes in {took:.1f} s, {len(rewards) / took:.0f} per second, {lost} lost and repeated")
    print(f"mean reward of the first quarter {np.mean(rewards[:quarter]):.2f}, of the last {np.mean(rewards[-quarter:]):.2f}")


if __name__ == "__main__":
    main()
