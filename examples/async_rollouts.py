"""Train on steps as they come: no environment waits for the slowest one.

A policy learns which expression answers each of 16 questions: a softmax over all expressions for each question, trained with
REINFORCE in a few lines of numpy. A step runs the chosen expression in a sandbox; the reward is 1 for the right output. The
programs of one question wait a second, as programs wait for tests, downloads or compilers.

The same loop runs for the same time in two ways:

* lock-step: ``step`` returns when the slowest environment has answered
* first-come: ``recv`` returns what has arrived, the policy learns from it, and ``send`` lets these environments continue

Run it in a checkout, with ``pip install -e .`` and ``python examples/async_rollouts.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator

import gymnasium as gym
import numpy as np

import coding_gym  # noqa: F401 - registers the environments

TEXT = "Sandbox 42 runs Python"
EXPRESSIONS = (
    "text.upper()",
    "text.lower()",
    "text.title()",
    "text.swapcase()",
    "text[::-1]",
    "text.split()",
    "len(text)",
    "text.count('n')",
    "sorted(text)[-1]",
    "text.isascii()",
    "text.find('Python')",
    "text.replace(' ', '')",
    "text.partition(' ')[0]",
    "text.encode().hex()",
    "max(text.split(), key=len)",
    "sum(map(ord, text))",
)
SLOW = 0
PREPARE = "import time\ntext = {text!r}\ntime.sleep({seconds})\n"


class Policy:
    """A softmax over the expressions for each question, trained with REINFORCE.

    Args:
        rng: Random number generator.
        learning_rate: Size of a step along the gradient.
    """

    def __init__(self, rng: np.random.Generator, learning_rate: float) -> None:
        self.rng = rng
        self.learning_rate = learning_rate
        self.logits = np.zeros((len(EXPRESSIONS), len(EXPRESSIONS)))
        self.baseline = np.zeros(len(EXPRESSIONS))

    def choose(self, question: int) -> int:
        """Draw an expression."""
        return int(self.rng.choice(len(EXPRESSIONS), p=self._probabilities(question)))

    def learn(self, question: int, choice: int, reward: float) -> None:
        """Move along the gradient of the expected reward."""
        gradient = -self._probabilities(question)
        gradient[choice] += 1
        self.logits[question] += self.learning_rate * (reward - self.baseline[question]) * gradient
        self.baseline[question] += 0.05 * (reward - self.baseline[question])

    def _probabilities(self, question: int) -> np.ndarray:
        weights = np.exp(self.logits[question] - self.logits[question].max())
        return weights / weights.sum()


class Trainer:
    """The policy, the questions that the environments work on, and the rewards so far.

    Args:
        envs: The environments.
        answers: The right output for each question.
        seed: Seed of the questions and the policy.
    """

    def __init__(self, envs: gym.vector.VectorEnv, answers: list[str], *, seed: int) -> None:
        self.envs = envs
        self.answers = answers
        self.rng = np.random.default_rng(seed)
        self.policy = Policy(self.rng, learning_rate=1.0)
        self.asked = [(0, 0)] * envs.num_envs
        self.rewards: list[float] = []

    def act(self, index: int) -> str:
        """Return the program for the next step of an environment."""
        question = int(self.rng.integers(len(EXPRESSIONS)))
        choice = self.policy.choose(question)
        self.asked[index] = question, choice
        return PREPARE.format(text=TEXT, seconds=1 if question == SLOW else 0) + f"print({EXPRESSIONS[choice]})"

    def learn(self, index: int, output: str) -> None:
        """Learn from the output of the last program of an environment."""
        question, choice = self.asked[index]
        reward = float(output == self.answers[question])
        self.policy.learn(question, choice, reward)
        self.rewards.append(reward)


def lock_step(trainer: Trainer) -> Iterator[None]:
    """Step all environments together."""
    envs = trainer.envs
    while True:
        observations, *_ = envs.step([trainer.act(index) for index in range(envs.num_envs)])
        for index, output in enumerate(observations["stdout"]):
            trainer.learn(index, output)
        yield


def first_come(trainer: Trainer) -> Iterator[None]:
    """Let each environment continue as soon as it has answered."""
    envs = trainer.envs.unwrapped
    envs.send([trainer.act(index) for index in range(envs.num_envs)])
    while True:
        observations, *_, infos = envs.recv(min_ready=1)
        ids = infos["env_id"].tolist()
        for index, output in zip(ids, observations["stdout"], strict=True):
            trainer.learn(index, output)
        envs.send([trainer.act(index) for index in ids], ids)
        yield


LOOPS: dict[str, Callable[[Trainer], Iterator[None]]] = {"lock-step": lock_step, "first-come": first_come}


def right_answers(envs: gym.vector.VectorEnv) -> list[str]:
    """Return the output of each expression, as the sandbox prints it."""
    envs.reset()
    outputs: list[str] = []
    while len(outputs) < len(EXPRESSIONS):
        chosen = EXPRESSIONS[len(outputs) : len(outputs) + envs.num_envs]
        codes = [PREPARE.format(text=TEXT, seconds=0) + f"print({expression})" for expression in chosen]
        observations, *_ = envs.step(codes + [""] * (envs.num_envs - len(codes)))
        outputs += observations["stdout"][: len(chosen)]
    return outputs


def main() -> None:
    """Train in both ways, with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=16, help="number of environments (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="time of training in each way (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default: %(default)s)")
    parser.add_argument("--provider", default="auto", help="sandbox provider: auto, docker or local (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{'':<12}{'steps':>8}{'steps/s':>10}{'right at first':>17}{'at last':>10}")
    for name, loop in LOOPS.items():
        options = {"num_envs": arguments.num_envs, "sessions_per_sandbox": 16, "screen": None, "preload": ()}
        envs = gym.make_vec("CodingEnv-v0", provider=arguments.provider, **options)
        try:
            trainer = Trainer(envs, right_answers(envs), seed=arguments.seed)
            envs.reset(seed=arguments.seed)
            started = time.perf_counter()
            for _ in loop(trainer):
                if (seconds := time.perf_counter() - started) >= arguments.seconds:
                    break
        finally:
            # Programs that still run are canceled.
            envs.close()
        count = max(len(trainer.rewards) // 10, 1)
        at_first, at_last = np.mean(trainer.rewards[:count]), np.mean(trainer.rewards[-count:])
        rate = len(trainer.rewards) / seconds
        print(f"{name:<12}{len(trainer.rewards):>8}{rate:>10.0f}{at_first:>17.0%}{at_last:>10.0%}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
