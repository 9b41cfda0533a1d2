"""Audits of reward functions of trainers."""

from __future__ import annotations

import pytest

from coding_gym.audit import AuditReport, audit, load_verifier, own_hacks
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Task, TaskSuite

HOLE = "operators of the submission decide"
REWARD = """
def completions(prompts, completions, tests, **columns):
    rewards = []
    for completion, asserted in zip(completions, tests, strict=True):
        code = completion.removeprefix("```python\\n").removesuffix("\\n```")
        try:
            exec(f"{code}\\n{asserted}", {})
            rewards.append(1.0)
        except Exception:
            rewards.append(0.0)
    return rewards
"""
SUITE = TaskSuite(
    "suite",
    [
        Task(
            id="double",
            prompt="Double a number.",
            entry_point="double",
            tests=Asserts(cases=("assert double(2) == 4", "assert double(-3) == -6")),
            reference="def double(x):\n    return 2 * x\n",
        )
    ],
)


def audit_of(verifier: str) -> AuditReport:
    with load_verifier(verifier, timeout=20) as loaded:
        return audit(SUITE, loaded, hacks=[hack for hack in own_hacks() if hack.hole == HOLE], most_mutants=1)


def holes(report: AuditReport) -> set[str]:
    """Return the holes that an audit names, which found nothing else."""
    checks = {check.title: check for check in report.checks}
    assert not checks["references pass"].findings
    assert not checks["stubs fail"].findings
    return {name.partition(": ")[0] for name in checks["hacks earn nothing"].holes}


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    (tmp_path / "reward_functions.py").write_text(REWARD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_holes_of_reward_functions_are_named() -> None:
    assert holes(audit_of("trl:reward_functions:completions")) == {HOLE}


def test_missing_reward_function_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Expected a reward function as MODULE:NAME"):
        load_verifier("trl:reward_functions:none")
