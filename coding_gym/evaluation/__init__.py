"""Scores of models on suites of tasks: pass@k with intervals, tokens, cost and time, from episodes that are kept."""

from coding_gym.evaluation.evaluating import evaluate
from coding_gym.evaluation.scores import Evaluation, Prices, SuiteScore, score_of

__all__ = ["Evaluation", "Prices", "SuiteScore", "evaluate", "score_of"]
