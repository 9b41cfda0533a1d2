"""pass@k: the probability that at least one of k samples of a task passes (Chen et al. 2021, arXiv 2107.03374)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from coding_gym.errors import ConfigurationError
from coding_gym.tasks.verdict import Verdict

__all__ = ["estimate_pass_at_k", "pass_at_k"]


def estimate_pass_at_k(samples: ArrayLike, correct: ArrayLike, k: int) -> NDArray[np.float64]:
    """Return the unbiased estimate of pass@k of each task: ``1 - C(n - c, k) / C(n, k)``.

    Args:
        samples: n: number of samples of each task, at least k; a single number if it is the same for all.
        correct: c: number of samples that pass.
        k: Number of samples drawn.

    Raises:
        ConfigurationError: If a task has fewer than k samples, or more correct ones than samples.

    Example:
        >>> estimate_pass_at_k([10, 10, 2], [10, 1, 0], 2).round(3).tolist()
        [1.0, 0.2, 0.0]
    """
    n, c = np.broadcast_arrays(np.asarray(samples, dtype=np.int64), np.asarray(correct, dtype=np.int64))
    if k < 1 or (n < k).any() or (c < 0).any() or (c > n).any():
        message = f"Expected at least k={k} samples of each task, k >= 1, and 0 to n of them correct"
        raise ConfigurationError(message)
    return np.array([_estimate(int(each), int(right), k) for each, right in zip(n.flat, c.flat, strict=True)]).reshape(n.shape)


def pass_at_k(verdicts: Iterable[Verdict], ks: Sequence[int] = (1, 10, 100)) -> dict[int, float]:
    """Return the mean pass@k over the tasks of some verdicts, for each k for which every task has enough samples.

    Verdicts with the outcome ``infrastructure`` are not counted as samples.
    """
    samples: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for verdict in verdicts:
        if not verdict.is_infrastructure:
            samples[verdict.task_id] += 1
            correct[verdict.task_id] += verdict.solved
    counts = list(samples.values())
    right = [correct[task] for task in samples]
    return {k: float(estimate_pass_at_k(counts, right, k).mean()) for k in ks if counts and k <= min(counts)}


def _estimate(samples: int, correct: int, k: int) -> float:
    # The product form from the paper, which does not overflow as binomial coefficients do.
    if samples - correct < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(samples - correct + 1, samples + 1)))
