"""The evaluation of a model: episodes of each suite, in a directory, from which it continues after an interruption."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from coding_gym._version import __version__
from coding_gym.datasets import ChatPolicy, collect
from coding_gym.datasets.policies.chat import HOSTED_URL
from coding_gym.errors import ConfigurationError
from coding_gym.evaluation.scores import Evaluation, Prices, SuiteScore, score_of
from coding_gym.tasks import RepositoryTests, load_suite
from coding_gym.wrappers.actions import extract_code, fenced_blocks

__all__ = ["evaluate"]

_SYSTEM = "Solve the task. Answer with one block of code between ```python and ```, which is complete and can be run."
_SYSTEM_TURNS = (
    "Solve the task in a Python interpreter. Answer with one block of code between ```python and ```. It is run, and you are "
    "shown what it printed. A block that defines what the task asks for is also graded. Continue until all tests pass."
)
_SYSTEM_SHELL = (
    "Repair the repository in the current directory. Answer with one block of shell commands between ```bash and ```. They are "
    "run, and you are shown what they printed. When the repair is done, answer with a block that contains only the word submit."
)
_REPOSITORY_TURNS = 30
_SECONDS_FILE = "seconds.json"


def evaluate(
    model: str,
    suites: Sequence[str],
    path: Path | str,
    *,
    base_url: str = HOSTED_URL,
    samples: int = 1,
    ks: Sequence[int] = (1, 10, 100),
    turns: int | None = None,
    parameters: Mapping[str, Any] | None = None,
    env_options: Mapping[str, Any] | None = None,
    prices: Prices | None = None,
    sessions: int = 16,
    progress: bool | None = None,
) -> Evaluation:
    """Sample a model's answers to the tasks of suites, and return its scores.

    Each sample is an episode of ``CodingTask-v0``. The episodes of a suite are a dataset in a directory of its own: they can be
    read, viewed and exported, and the same call continues after an interruption, or adds samples.

    Args:
        model: Name of the model.
        suites: Arguments of ``load_suite``.
        path: Directory of the datasets.
        base_url: Base URL of an endpoint compatible with OpenAI's, such as ``http://127.0.0.1:8000/v1``.
        samples: Number of samples of each task.
        ks: Values of k of pass@k; those above ``samples`` are left out.
        turns: Maximum number of answers per sample; if None, 1, or 30 for tasks of repositories, where it writes commands.
        parameters: Further fields of requests, such as ``{"temperature": 0.8, "max_tokens": 1024}``.
        env_options: Options of the environment, such as ``{"provider": "docker"}``.
        prices: Prices of tokens; nothing if None.
        sessions: Maximum number of concurrent samples.
        progress: See ``collect``.

    Raises:
        ConfigurationError: If an argument is invalid.
        DatasetError: If the directory has episodes of another model, or with other settings.
        PolicyError: If the endpoint fails; what has been sampled is kept.
        ProviderError: If no sandbox is available.
    """
    if not suites:
        message = "Expected the names of suites, such as humaneval, got none"
        raise ConfigurationError(message)
    score = functools.partial(
        _evaluate,
        model=model,
        base_url=base_url,
        samples=samples,
        ks=ks,
        turns=turns,
        parameters=dict(parameters or {}),
        env_options=dict(env_options or {}),
        prices=prices,
        sessions=sessions,
        progress=progress,
    )
    scores = [score(suite, Path(path) / _directory_of(suite)) for suite in suites]
    return Evaluation(
        model=model,
        parameters=dict(parameters or {}),
        turns=turns,
        scores=scores,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
    )


def _evaluate(
    name: str,
    path: Path,
    *,
    model: str,
    base_url: str,
    samples: int,
    ks: Sequence[int],
    turns: int | None,
    parameters: dict[str, Any],
    env_options: dict[str, Any],
    prices: Prices | None,
    sessions: int,
    progress: bool | None,
) -> SuiteScore:
    """Evaluate the model with one suite, see ``evaluate``."""
    suite = load_suite(name)
    is_repository = any(isinstance(task.tests, RepositoryTests) for task in suite)
    turns = turns or (_REPOSITORY_TURNS if is_repository else 1)
    system = _SYSTEM_SHELL if is_repository else _SYSTEM if turns == 1 else _SYSTEM_TURNS
    policy = ChatPolicy(
        model,
        base_url=base_url,
        system=system,
        parameters=parameters,
        to_action=extract_commands if is_repository else extract_code,
    )
    options = {"suite": name, "max_turns": turns, "screen": None, **env_options}
    if is_repository:
        options.setdefault("backend", "bash")
    before, began = _read_seconds(path), time.monotonic()
    try:
        dataset = collect(
            "CodingTask-v0",
            policy,
            samples * len(suite),
            seed=1,
            path=path,
            env_options=options,
            tasks=suite.ids,
            max_steps=turns,
            sessions=sessions,
            progress=progress,
        )
    finally:
        seconds = before + time.monotonic() - began
        if path.exists():
            (path / _SECONDS_FILE).write_bytes(msgspec.json.encode(seconds))
    return score_of(name, dataset, ks, prices=prices, seconds=seconds)


def extract_commands(text: str) -> str:
    """Return the shell commands of a reply: its last block, or the whole text if it has no fence."""
    blocks = fenced_blocks(text)
    return blocks[-1][1] if blocks else text


def _read_seconds(path: Path) -> float:
    """Return how long earlier runs took."""
    try:
        return msgspec.json.decode((path / _SECONDS_FILE).read_bytes(), type=float)
    except (OSError, msgspec.DecodeError):
        return 0.0


def _directory_of(suite: str) -> str:
    """Return the name of the directory of a suite, which may be a path."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in suite).strip("-.") or "suite"
