"""Sources of reward: the hidden tests of coding_gym, rewards of the usual kind, and the truth, which no run learns from."""

from __future__ import annotations

import ast
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import gymnasium as gym
from language import Chain, answer, fresh_inputs, make_task

import coding_gym  # noqa: F401 - registers the environments
from coding_gym.tasks import Asserts, Grader

__all__ = ["GradedReward", "Reward", "Score", "Truth", "UsualReward"]

_FRESH = 20
"""Number of inputs that the truth is found out with."""


class Score(NamedTuple):
    """Result of a program.

    Attributes:
        solved: Whether it passed.
        fraction: Fraction of the tests that it passed, as far as the source knows.
        is_repeat: Whether an equal program had been graded before.
    """

    solved: bool
    fraction: float
    is_repeat: bool = False


class Reward:
    """A source of reward: a context manager, to be called with programs."""

    def __call__(self, programs: Sequence[tuple[Chain, str]]) -> list[Score]:
        """Return the scores of programs, each with the chain that it is for."""
        raise NotImplementedError

    def __enter__(self) -> Reward:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Remove the sandbox."""


class GradedReward(Reward):
    """Verdicts of hidden tests.

    Args:
        provider: Provider of the sandbox.
        grading: Where the tests run; the default of the tasks if None.
    """

    def __init__(self, provider: str, grading: str | None = None) -> None:
        self._task = functools.cache(functools.partial(make_task, grading=grading))
        # A policy repeats itself: two thirds of the programs have been graded before.
        self._grader = Grader(provider=provider, cache=500_000)
        self._grader.start()

    def __call__(self, programs: Sequence[tuple[Chain, str]]) -> list[Score]:
        verdicts = self._grader.grade_many([(self._task(chain), code) for chain, code in programs])
        return [Score(verdict.solved, verdict.score or 0.0, verdict.is_repeat) for verdict in verdicts]

    def close(self) -> None:
        self._grader.close()


class _Programs:
    """Programs that run with ``usual_rewards.py`` in a sandbox, whose results are kept."""

    def __init__(self, provider: str) -> None:
        self._env = gym.make("CodingEnv-v0", provider=provider, screen=None).unwrapped
        self._env.reset(seed=1)
        self._env.files.write("usual_rewards.py", Path(__file__).with_name("usual_rewards.py").read_text())
        self._known: dict[str, object] = {}

    def run(self, jobs: Sequence[tuple[str, str, Sequence[object]]]) -> list[object]:
        keys = [json.dumps(job) for job in jobs]
        new = [key for key in dict.fromkeys(keys) if key not in self._known]
        ended = self._env.exec(["python3", "usual_rewards.py"], stdin=f"[{','.join(new)}]")
        if ended.exit_code:
            raise RuntimeError(ended.stderr_text)
        self._known.update(zip(new, json.loads(ended.stdout), strict=True))
        return [self._known[key] for key in keys]

    def close(self) -> None:
        self._env.close()


class UsualReward(Reward):
    """Rewards of the usual kind, see ``usual_rewards.py``.

    Args:
        provider: Provider of the sandbox in which the programs run.
        how: ``exit`` or ``exec``.
    """

    def __init__(self, provider: str, how: str) -> None:
        self._how = how
        self._programs = _Programs(provider)

    def __call__(self, programs: Sequence[tuple[Chain, str]]) -> list[Score]:
        jobs = [(self._how, code, _asserts(chain)) for chain, code in programs]
        return [Score(bool(passed), float(bool(passed))) for passed in self._programs.run(jobs)]

    def close(self) -> None:
        self._programs.close()


class Truth(Reward):
    """Whether functions return the right values for fresh inputs, which are compared outside of the sandbox.

    Args:
        provider: Provider of the sandbox in which the programs run.
    """

    def __init__(self, provider: str) -> None:
        self._programs = _Programs(provider)

    def __call__(self, programs: Sequence[tuple[Chain, str]]) -> list[Score]:
        results = self._programs.run([("values", code, fresh_inputs(chain, _FRESH)) for chain, code in programs])
        return [_compared(chain, values) for (chain, _), values in zip(programs, results, strict=True)]

    def close(self) -> None:
        self._programs.close()


def _compared(chain: Chain, values: object) -> Score:
    expected = [answer(chain, inputs) for inputs in fresh_inputs(chain, _FRESH)]
    if not isinstance(values, list) or len(values) != len(expected):
        return Score(solved=False, fraction=0.0)
    same = sum(_is_same(value, right) for value, right in zip(values, expected, strict=True))
    return Score(solved=same == len(expected), fraction=same / len(expected))


def _is_same(value: object, right: object) -> bool:
    try:
        # True == 1, for an assertion, too.
        return isinstance(value, str) and ast.literal_eval(value) == right
    except (ValueError, SyntaxError):
        return False


@functools.cache
def _asserts(chain: Chain) -> tuple[str, ...]:
    tests = make_task(chain).tests
    assert isinstance(tests, Asserts)
    return tests.cases
