"""``Evaluation``: the scores of a model, as a table, JSON and HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from coding_gym._html import Html, caption, document, element, page, table
from coding_gym.datasets import Episode
from coding_gym.tasks import estimate_pass_at_k

__all__ = ["Evaluation", "Prices", "SuiteScore", "score_of"]

_RESAMPLES = 10_000
_MILLION = 1e6


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices per million tokens.

    Attributes:
        prompt: Price of tokens of prompts.
        completion: Price of tokens that the model writes.
    """

    prompt: float = 0.0
    completion: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SuiteScore:
    """Score of a model on a suite.

    Attributes:
        suite: The suite.
        tasks: Number of tasks with samples.
        samples: Number of samples.
        solved: Number of samples that solved their task.
        pass_at: pass@k by k, each with the bounds of its interval at 95 %, by resampling tasks.
        unanswered: Number of samples without a submission, such as an answer without code.
        prompt_tokens: Tokens of prompts, as far as the endpoint says.
        completion_tokens: Tokens that the model wrote, as far as the endpoint says.
        cost: What they cost.
        seconds: Wall-clock time of the evaluation, over all its runs.
    """

    suite: str
    tasks: int
    samples: int
    solved: int
    pass_at: Mapping[int, tuple[float, float, float]]
    unanswered: int
    prompt_tokens: int
    completion_tokens: int
    cost: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Scores of a model.

    Attributes:
        model: Name of the model.
        parameters: Parameters of the requests.
        turns: Maximum number of answers per sample.
        scores: One per suite.
        date: When it ended.
        version: Version of this package.
    """

    model: str
    parameters: Mapping[str, Any]
    turns: int | None
    scores: Sequence[SuiteScore]
    date: str
    version: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values of JSON."""
        return asdict(self)

    def to_page(self) -> str:
        """Return a page of HTML."""
        return page(f"Scores of {self.model}", Html(self._repr_html_()))

    def _repr_html_(self) -> str:
        ks = sorted({k for score in self.scores for k in score.pass_at})
        rows = [
            (
                score.suite,
                str(score.tasks),
                str(score.samples),
                *(_rate(score.pass_at.get(k)) for k in ks),
                f"{score.unanswered / score.samples:.1%}" if score.samples else "-",
                f"{score.prompt_tokens:,} + {score.completion_tokens:,}",
                f"{score.cost:.4g}",
                f"{score.seconds:.0f} s",
            )
            for score in self.scores
        ]
        header = ("suite", "tasks", "samples", *(f"pass@{k}" for k in ks), "without a submission", "tokens", "cost", "time")
        parameters = ", ".join(f"{name}={value}" for name, value in self.parameters.items()) or "default parameters"
        return document(
            caption(element("b", self.model), f": {parameters}"),
            table(header, rows, total=len(rows)),
            caption(f"{self.date}, coding_gym {self.version}; intervals at 95 %, by resampling tasks"),
        )


def score_of(
    suite: str, episodes: Iterable[Episode], ks: Sequence[int], *, prices: Prices | None = None, seconds: float = 0.0
) -> SuiteScore:
    """Return the score of episodes, each of which is a sample.

    Args:
        suite: Name of the suite.
        episodes: The episodes, which have task ids.
        ks: Values of k, of which those are left out for which a task has too few samples.
        prices: Prices of tokens; nothing if None.
        seconds: Time that they took.
    """
    prices = prices or Prices()
    samples: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    unanswered = prompt = completion = 0
    for episode in episodes:
        name = episode.task_id or ""
        samples[name] += 1
        correct[name] += bool(episode.solved)
        unanswered += not any(step.info.get("graded") for step in episode.steps)
        for step in episode.steps:
            usage = (step.decision or {}).get("usage") or {}
            prompt += usage.get("prompt_tokens") or 0
            completion += usage.get("completion_tokens") or 0
    counts = list(samples.values())
    right = [correct[name] for name in samples]
    return SuiteScore(
        suite=suite,
        tasks=len(samples),
        samples=sum(counts),
        solved=sum(right),
        pass_at={k: _with_interval(estimate_pass_at_k(counts, right, k)) for k in ks if counts and k <= min(counts)},
        unanswered=unanswered,
        prompt_tokens=prompt,
        completion_tokens=completion,
        cost=(prompt * prices.prompt + completion * prices.completion) / _MILLION,
        seconds=seconds,
    )


def _with_interval(rates: np.ndarray[Any, np.dtype[np.float64]]) -> tuple[float, float, float]:
    """Return the mean of the tasks' rates, with the bounds of a bootstrap's percentiles."""
    chance = np.random.default_rng(1)
    means = rates[chance.integers(len(rates), size=(_RESAMPLES, len(rates)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(rates.mean()), float(low), float(high)


def _rate(value: tuple[float, float, float] | None) -> str:
    return "-" if value is None else "{:.1%} ({:.1%} to {:.1%})".format(*value)
