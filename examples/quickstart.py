"""Run code in an environment step by step, then in many sessions at once.

Run it with ``python examples/quickstart.py``. The code runs in a container if a Docker engine is
available, otherwise in a local sandbox.
"""

from __future__ import annotations

import argparse
import logging
import time

import gymnasium as gym

import coding_gym  # noqa: F401 - registers the environments

STEPS = (
    "import numpy as np\nx = np.arange(5)",
    "x.sum()",
    "def mean(values):\n    return sum(values) / len(values)\n\nmean([])",
    "while True:\n    pass",
    "print('still here, x is', x)",
)


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--provider", default="auto", help="sandbox provider: auto, docker or local (default: %(default)s)")
    parser.add_argument("--num-envs", type=int, default=8, help="number of sessions of the rollout (default: %(default)s)")
    arguments = parser.parse_args()
    provider, num_envs = arguments.provider, arguments.num_envs
    logging.basicConfig(level=logging.WARNING, format="%(message)s")

    env = gym.make("CodingEnv-v0", provider=provider, step_timeout=1.0, render_mode="ansi")
    env.reset(seed=1)
    print(f"sandbox: {env.get_wrapper_attr('sandbox').description}\n")
    outcomes = [env.step(action)[-1]["outcome"] for action in STEPS]
    print(env.render())
    print(f"\noutcomes: {', '.join(outcomes)}")
    env.close()

    envs = gym.make_vec("CodingEnv-v0", num_envs=num_envs, provider=provider, screen=None)
    observations, _ = envs.reset(seed=1)
    steps = 100
    started = time.perf_counter()
    for step in range(steps):
        observations, *_ = envs.step([f"print({env_number} * {step})" for env_number in range(num_envs)])
    seconds = time.perf_counter() - started
    envs.close()
    print(f"\n{num_envs} sessions x {steps} steps: {num_envs * steps / seconds:.0f} steps/s; outputs: {observations['stdout']}")


if __name__ == "__main__":
    main()
