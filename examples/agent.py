"""Let a chat model solve programming tasks in several turns, and record the episodes.

The model is at any endpoint that speaks the protocol of OpenAI's chat completions: OpenAI, vLLM, SGLang, llama.cpp, Ollama ...
Each of its answers is a block of Python, which a sandbox runs. The model sees the output, and learns of each answer that
defines what the task asks for how many hidden tests pass.

Run it with ``python examples/agent.py --model gpt-5-mini`` and the key in ``OPENAI_API_KEY``, or with
``--base-url http://127.0.0.1:8000/v1`` for a server of your own, which seldom requires a key. The episodes are in ``--out``: as
a dataset, which ``coding-gym replay`` and ``export`` read, and as conversations. After Ctrl-C, the same command continues.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from coding_gym.datasets import ChatPolicy, Dataset, Episode, collect, export_chat, load
from coding_gym.errors import CodingGymError, PolicyError
from coding_gym.tasks import load_suite
from coding_gym.wrappers.actions import extract_code, fenced_blocks

OPENAI = "https://api.openai.com/v1"
SYSTEM = (
    "You solve a programming task with a persistent Python interpreter. Answer with one block of code between ```python and "
    "```. It is run, and you are shown what it printed; what it defined stays defined. An answer that defines what the task "
    "asks for is a submission: hidden tests grade it, and you are told how many of them pass. You have {turns} answers."
)
NO_CODE = 'raise SystemExit("Your answer has no block of Python: write one between ```python and ```.")'


def to_action(answer: str) -> str:
    """Return the code of an answer; if it has none, code that tells the model so."""
    return (extract_code(answer) if fenced_blocks(answer) else "") or NO_CODE


def tokens(episode: Episode) -> tuple[int, int]:
    """Return the numbers of tokens that the model has read and written; 0 if the endpoint does not count them."""
    usages = [(step.decision or {}).get("usage") or {} for step in episode.steps]
    read, written = (sum(usage.get(name) or 0 for usage in usages) for name in ("prompt_tokens", "completion_tokens"))
    return read, written


def show_conversations(dataset: Dataset, console: Console) -> None:
    """Print what the model was told, and what it answered."""
    for episode in dataset:
        console.rule(episode.task_id or "")
        for step in episode.steps[1:]:
            assert step.decision is not None
            for message in step.decision["messages"]:
                console.print(Panel(Text(message["content"].rstrip()), title=message["role"], title_align="left", style="dim"))
            console.print(Panel(Markdown(step.decision["content"]), title="assistant", title_align="left"))


def show_results(dataset: Dataset, console: Console) -> None:
    """Print a table of the episodes, and how many tasks were solved after how many answers."""
    table = Table(title=f"{dataset.manifest.arguments.policy['model']} on {len(dataset)} tasks")
    table.add_column("task", no_wrap=True)
    for column in ("answers", "tests", "tokens in", "tokens out"):
        table.add_column(column, justify="right")
    table.add_column("solved", justify="center")
    solved_at: list[int] = []
    for episode in dataset:
        graded = [step.info for step in episode.steps if step.info["graded"]]
        best = max(graded, key=lambda info: info["tests_passed"], default=None)
        passed = f"{best['tests_passed']} of {best['tests_total']}" if best else "none"
        table.add_row(
            Text(episode.task_id or ""),
            str(len(episode.actions)),
            passed,
            *map(str, tokens(episode)),
            "[green]yes" if episode.solved else "[red]no",
        )
        solved_at += [len(episode.actions)] if episode.solved else []
    console.print(table)
    for turns in range(1, max(solved_at, default=1) + 1):
        count = sum(at <= turns for at in solved_at)
        console.print(f"solved with {turns} answer{'s' if turns > 1 else ''}: {count} of {len(dataset)}", highlight=False)


def parse_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the options of the endpoint and of the episodes, and return the values of all."""
    url = os.environ.get("OPENAI_BASE_URL") or OPENAI
    parser.add_argument("--model", required=True, help="name of the model at the endpoint")
    parser.add_argument("--base-url", default=url, help="base URL of the endpoint (default: OPENAI_BASE_URL, or %(default)s)")
    parser.add_argument("--api-key", help="API key (default: OPENAI_API_KEY, which other users of the machine cannot see)")
    parser.add_argument("--turns", type=int, default=6, help="answers per episode (default: %(default)s)")
    parser.add_argument("--sessions", type=int, default=8, help="number of concurrent episodes (default: %(default)s)")
    parser.add_argument("--provider", default="auto", help="sandbox provider: auto, docker or local (default: %(default)s)")
    arguments = parser.parse_args()
    if arguments.api_key:
        os.environ["OPENAI_API_KEY"] = arguments.api_key
    if arguments.base_url == OPENAI and not os.environ.get("OPENAI_API_KEY"):
        parser.error("OpenAI requires an API key: set OPENAI_API_KEY, or pass --base-url with the URL of another endpoint")
    return arguments


def record(env: str, policy: ChatPolicy, episodes: int, arguments: argparse.Namespace, **options: Any) -> tuple[Dataset, str]:
    """Collect episodes; return those that there are, also if not all could be collected, and what prevented the others."""
    try:
        try:
            common = {"max_steps": arguments.turns, "sessions": arguments.sessions}
            return collect(env, policy, episodes, seed=1, path=arguments.out, **common, **options), ""
        except (PolicyError, KeyboardInterrupt) as error:
            return load(arguments.out), str(error) or "Interrupted: the same command continues."
    except CodingGymError as error:
        sys.exit(str(error))


def main() -> None:
    """Let the model work on the tasks, and print its results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="basics", help="suite of tasks, as for load_suite (default: %(default)s)")
    parser.add_argument("--limit", type=int, help="number of tasks (default: all)")
    parser.add_argument("--out", type=Path, default=Path("agent-episodes"), help="output directory (default: %(default)s)")
    parser.add_argument("--show", action="store_true", help="print the conversations")
    arguments, console = parse_arguments(parser), Console()
    try:
        suite = load_suite(arguments.suite)
        system = SYSTEM.format(turns=arguments.turns)
        policy = ChatPolicy(arguments.model, base_url=arguments.base_url, system=system, to_action=to_action)
    except CodingGymError as error:
        sys.exit(str(error))
    env_options = {
        "suite": arguments.suite,
        "max_turns": arguments.turns,
        "provider": arguments.provider,
        "screen": None,
    }
    episodes = min(arguments.limit or len(suite), len(suite))
    dataset, problem = record("CodingTask-v0", policy, episodes, arguments, env_options=env_options, tasks=suite)
    if len(dataset):
        if arguments.show:
            show_conversations(dataset, console)
        show_results(dataset, console)
        conversations = arguments.out / "conversations.jsonl"
        export_chat(dataset, conversations, metadata=True)
        print(f"episodes: {arguments.out}, conversations: {conversations}")
    sys.exit(problem or None)


if __name__ == "__main__":
    main()
