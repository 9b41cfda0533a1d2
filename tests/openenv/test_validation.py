"""OpenEnv's own checks of servers: the criteria of its command line, and the graders of its validation."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from tests.support.requirements import import_extra

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

GRADERS = ["RewardWellFormedGrader", "ObservationSchemaGrader", "StateContractGrader"]


def test_openenv_validate_passes(plain):
    app = import_extra("openenv.cli.__main__").app
    result = import_extra("typer.testing").CliRunner().invoke(app, ["validate", plain.url, "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["passed"] is True
    assert [criterion["passed"] for criterion in report["criteria"]] == [True] * 6


@pytest.fixture(scope="module")
def evidence(plain):
    collect = import_extra("openenv.validation.runtime.collector").collect_runtime_evidence
    contracts = import_extra("openenv.validation.runtime.contracts")
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
        rewards: collect(
            plain.url,
            contracts.RuntimePlan(
                plan_schema_version="1",
                reset=contracts.RuntimeReset(episode_id="graded", seed=2**32 - 1, options={"rewards": rewards.split()}),
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
    graders = import_extra("openenv.validation.graders.runtime")
    result = getattr(graders, grader)().run(SimpleNamespace(runtime_evidence=evidence[rewards], manifest=manifest))
    assert result.status.value == "pass", result.evidence
