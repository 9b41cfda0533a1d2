"""Rewards equal to those of OpenEnv's coding environment, value by value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings

import httpx
import pytest
from websockets.sync.client import connect

from coding_gym_server.protocol import REWARDS
from coding_gym_server.server.command_line import parse_arguments
from coding_gym_server.server.sessions.openenv_rewards import Score, score
from tests.support.running_server import RunningServer

LONG = "\n" + "# " + "x" * 100


@pytest.mark.parametrize(
    ("code", "reward"),
    [
        ("print(1)", 0.1),
        ("print(1)" + LONG, 0.0),
        ("import os", -0.9),
        ("import os" + LONG, -1.0),
        ("print(", -0.1),
        ("print(" + LONG, -0.2),
        ("1 / 0", 0.1),
        ("", 0.1),
        ("x" * 100, 0.1),
        ("x" * 101, 0.0),
        ("  " + "x" * 100 + "\n\n", -0.1),
        ("x" * 100 + "\n" * 50, 0.1),
        ("import os\n(", -1.1),
        ("import os\n(" + LONG, -1.2),
    ],
)
def test_rewards_match_openenv_table(code, reward):
    assert score(code, REWARDS).reward == pytest.approx(reward)


@pytest.mark.parametrize(
    ("code", "pattern"),
    [
        ("import os", r"import\s+os"),
        ("import \t\n os", r"import\s+os"),
        ("import ossification", r"import\s+os"),
        ("# import os", r"import\s+os"),
        ("import subprocess", r"import\s+subprocess"),
        ("eval('1')", r"eval\("),
        ("retrieval(1)", r"eval\("),
        ("exec('1')", r"exec\("),
        ("__import__('os')", "__import__"),
        ("open('a')", r"open\("),
        ("urlopen('a')", r"open\("),
        ("open('a'); import os", r"import\s+os"),
        ("exec(eval('1'))", r"eval\("),
        ("from os import system", None),
        ("import sys, os", None),
        ("open ('a')", None),
        ("print('hi')", None),
    ],
)
def test_unsafe_patterns_are_detected(code, pattern):
    assert score(code, ["safety"]) == Score(0.0 if pattern is None else -1.0, pattern)
    assert score(code, ["quality"]).safety_violation is None


def test_scores_sum_over_selected_rewards():
    assert score("import os", []) == Score()
    assert score("import os", ["quality"]) == Score(0.1)
    assert score("import os", ["safety", "safety"]).reward == -1.0
    assert score("import os", ["quality", "safety"]) == score("import os", ["safety", "quality"])


@pytest.mark.parametrize("code", ["(" * 40_000, "-" * 40_000 + "1", "a" + ".b" * 20_000, "a\0b", "'\ud800'", "f'{" * 300])
def test_unparsable_code_has_negative_quality(code):
    assert score(code, ["quality"]).reward < 0


def test_megabytes_of_code_are_scored_quickly():
    started = time.process_time()
    assert score("x = (1, 2, 3)\n" * 1_000_000, REWARDS) == Score()
    assert time.process_time() - started < 10


def test_invalid_escape_sequences_emit_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score("'\\d'", ["quality"]).reward == 0.1


# Rewards in the server


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("plain"), "--rewards", "") as server:
        yield server


@pytest.fixture(scope="module")
def rewarding(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("rewarding")) as server:
        yield server


@pytest.fixture
def ask(request):
    with connect(request.getfixturevalue(request.param).ws_url) as client:

        def ask(kind, data):
            client.send(json.dumps({"type": kind, "data": data}))
            return json.loads(client.recv(timeout=20))

        yield ask


def reward_of(answer):
    return answer["data"]["reward"], answer["data"]["observation"]["metadata"].get("safety_violation")


@pytest.mark.parametrize("ask", ["plain"], indirect=True)
def test_reset_selects_rewards_of_episode(ask):
    assert reward_of(ask("step", {"code": "import os"})) == (0.0, None)
    assert reward_of(ask("reset", {"rewards": ["safety", "quality"]})) == (0.0, None)
    unsafe = ask("step", {"code": "import os"})
    assert reward_of(unsafe) == (-0.9, r"import\s+os")
    assert unsafe["data"]["metadata"] == unsafe["data"]["observation"]["metadata"]
    assert unsafe["data"]["observation"]["exit_code"] == 0
    assert reward_of(ask("step", {"code": "1 / 0"})) == (0.1, None)
    ask("reset", {"rewards": ["safety"]})
    assert reward_of(ask("step", {"code": "1 / 0"})) == (0.0, None)
    ask("reset", {})
    assert reward_of(ask("step", {"code": "import os"})) == (0.0, None)


@pytest.mark.parametrize("ask", ["rewarding"], indirect=True)
def test_server_rewards_apply_unless_reset_overrides(ask, rewarding):
    assert reward_of(ask("step", {"code": "import os"})) == (-0.9, r"import\s+os")
    assert reward_of(ask("reset", {})) == (0.0, None)
    assert reward_of(ask("step", {"code": "print("})) == (-0.1, None)
    ask("reset", {"rewards": []})
    assert reward_of(ask("step", {"code": "import os"})) == (0.0, None)
    answer = httpx.post(f"{rewarding.url}/step", json={"action": {"code": "eval('1')"}}).json()
    assert (answer["reward"], answer["metadata"]["safety_violation"]) == (-0.9, r"eval\(")


@pytest.mark.parametrize("ask", ["plain"], indirect=True)
@pytest.mark.parametrize("rewards", [["safety", "speed"], ["Safety"], [""], "safety", [5], {"safety": 1}])
def test_unknown_reward_is_refused_without_effect(ask, rewards):
    ask("reset", {"episode_id": "first", "rewards": ["safety"]})
    answer = ask("reset", {"rewards": rewards})["data"]
    assert answer["code"] == "VALIDATION_ERROR"
    if rewards == ["safety", "speed"]:
        assert "unknown rewards: 'speed'; known are safety, quality" in answer["message"]
    assert reward_of(ask("step", {"code": "import os"})) == (-1.0, r"import\s+os")


def test_server_rewards_come_from_arguments_or_environment(monkeypatch):
    monkeypatch.delenv("REWARDS", raising=False)
    assert parse_arguments([]).rewards == ("safety", "quality")
    assert parse_arguments(["--rewards", "quality"]).rewards == ("quality",)
    monkeypatch.setenv("REWARDS", "safety")
    assert parse_arguments([]).rewards == ("safety",)
    assert parse_arguments(["--rewards", ""]).rewards == ()


def test_server_with_unknown_reward_fails_to_start():
    environment = {**os.environ, "REWARDS": "safety,speed"}
    command = [sys.executable, "-m", "coding_gym_server"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)
    assert result.returncode == 2
    assert "unknown rewards: 'speed'; known are safety, quality" in result.stderr
