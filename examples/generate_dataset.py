"""Collect episodes in parallel, export them, and replay them.

Run it with ``python examples/generate_dataset.py``; after Ctrl-C, run the same command again to resume. With
``--base-url`` a chat model at an OpenAI-compatible endpoint writes the code, otherwise a small scripted policy does.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from coding_gym.datasets import ChatPolicy, collect, export_chat, export_parquet, replay

OPERATORS = ("+", "-", "*", "//", "%")


def explore(observation: dict[str, Any], info: dict[str, Any], rng: np.random.Generator) -> str | None:
    """Continue with the last result; end the episode after an exception, or at random."""
    if observation["exit_code"] or rng.random() < 0.1:
        return None
    value = observation["stdout"].strip() or "1"
    return f"({value}) {rng.choice(OPERATORS)} {rng.integers(0, 10)}"


def main() -> None:
    """Collect, export and replay a dataset."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dataset"), help="output directory (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=500, help="number of episodes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the dataset (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=16, help="number of concurrent episodes (default: %(default)s)")
    parser.add_argument("--provider", default="auto", help="sandbox provider: auto, docker or local (default: %(default)s)")
    parser.add_argument("--base-url", help="base URL of a chat endpoint, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="default", help="model name at the endpoint (default: %(default)s)")
    arguments = parser.parse_args()

    policy = ChatPolicy(arguments.model, base_url=arguments.base_url) if arguments.base_url else explore
    started = time.perf_counter()
    dataset = collect(
        "CodingEnv-v0",
        policy,
        arguments.episodes,
        seed=arguments.seed,
        path=arguments.out / "episodes",
        env_options={"provider": arguments.provider, "screen": None},
        max_steps=10,
        sessions=arguments.sessions,
    )
    seconds = time.perf_counter() - started
    print(f"{len(dataset)} episodes in {seconds:.1f} s, {len(dataset) / seconds:.0f} per second, SHA-256 {dataset.sha256}")
    longest = max(dataset, key=lambda episode: len(episode.steps))
    print("longest:", *(f"  {step.action} = {step.observation['stdout'].strip()}" for step in longest.steps[1:]), sep="\n")

    print(f"wrote {export_parquet(dataset, arguments.out / 'parquet')}, for datasets.load_dataset and polars.read_parquet")
    conversations = arguments.out / "chat.jsonl"
    print(f"wrote {conversations}: {export_chat(dataset, conversations)} conversations")

    differences = replay(dataset, dataset.indices[:20])
    print("replayed 20 episodes:", *(differences or ["no difference"]))


if __name__ == "__main__":
    main()
