"""OpenEnv's own checks of servers: the criteria of its command line, and the graders of its validation."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace

import pytest

import tests.openenv.coding_env  # noqa: F401 - skips this module without openenv

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from openenv.cli.__main__ import app
    from openenv.validation.graders.runtime import ObservationSchemaGrader, RewardWellFormedGrader, StateContractGrader
    from openenv.validation.runtime.collector import collect_runtime_evidence
    from openenv.validation.runtime.contracts import RuntimePlan, RuntimeReset
    from typer.testing import CliRunner

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

GRADERS = [RewardWellFormedGrader, ObservationSchemaGrader, StateContractGrader]


def test_openenv_validate_passes(plain):
    result = CliRunner().invoke(app, ["validate", plain.url, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["passed"] is True
    assert [criterion["passed"] for criterion in report["criteria"]] == [True] * 6


@pytest.fixture(scope="module")
def evidence(plain):
    actions = [
        {"code": "print('hi')"},
        {"code": "1 / 0"},
        {"code": "import os"},
        {"code": "print('\\ud800')"},
        {"code": "while True: pass", "timeout_s": 0.2},
        {"code": "for _ in range(9): print('x' * 1_000_000)"},
        {"code": "import os; os.kill(os.getpid(), 9)", "metadata": {"note": 1}},
    ]
    return {
        rewards: collect_runtime_evidence(
            plain.url,
            RuntimePlan(
                plan_schema_version="1",
                reset=RuntimeReset(episode_id="graded", seed=2**32 - 1, options={"rewards": rewards.split()}),
                actions=actions,
            ),
            episode_timeout_s=30,
        )
        for rewards in ("", "safety quality")
    }


@pytest.mark.parametrize("rewards", ["", "safety quality"])
@pytest.mark.parametrize("grader", GRADERS)
def test_runtime_graders_pass(evidence, grader, rewards):
    assert evidence[rewards].failure_reason is None
    assert len(evidence[rewards].exchanges) == 2 + 2 * 7
    manifest = SimpleNamespace(reward=SimpleNamespace(range=(-1.2, 0.1)))
    result = grader().run(SimpleNamespace(runtime_evidence=evidence[rewards], manifest=manifest))
    assert result.status.value == "pass", result.evidence
