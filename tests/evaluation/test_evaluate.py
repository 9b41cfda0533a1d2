"""Evaluations of models behind an endpoint that answers by a script."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coding_gym.cli import main as cli
from coding_gym.datasets import load
from coding_gym.errors import ConfigurationError, DatasetError
from coding_gym.evaluation import Prices, evaluate, score_of
from coding_gym.tasks import RepositoryCommand, RepositoryTests, Task, TaskSuite, load_suite
from tests.support.chat_endpoint import ChatEndpoint, completion

OPTIONS = {"provider": "local", "preload": ()}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "small.jsonl"
    load_suite("basics")[:4].save(path)
    return path


@pytest.fixture
def solver(suite: Path):
    """An endpoint that solves the first two tasks, and the third one every other time; the last answer has no code."""
    tasks = list(load_suite(suite))

    def answer(body, count):
        prompt = body["messages"][-1]["content"]
        number = next(index for index, task in enumerate(tasks) if task.prompt.strip() == prompt.strip())
        if number == 3:
            return completion("I do not know.")
        code = tasks[number].reference if number < 2 or body["seed"] % 2 else "raise ValueError"
        return completion(f"So:\n```python\n{code}\n```")

    with ChatEndpoint(answer) as endpoint:
        yield endpoint


def test_scores(suite: Path, solver: ChatEndpoint, tmp_path: Path) -> None:
    settings = {"base_url": solver.url, "samples": 4, "ks": (1, 2, 8), "env_options": OPTIONS, "sessions": 4}
    prices = Prices(prompt=1e6, completion=2e6)
    evaluation = evaluate("tiny", [str(suite)], tmp_path / "out", prices=prices, parameters={"temperature": 0.5}, **settings)
    (score,) = evaluation.scores
    assert (score.tasks, score.samples, score.unanswered >= 4) == (4, 16, True)
    assert 8 <= score.solved <= 12
    assert score.pass_at.keys() == {1, 2}
    rate, low, high = score.pass_at[1]
    assert rate == score.solved / 16
    assert 0 <= low < rate < high <= 1
    assert (score.prompt_tokens, score.completion_tokens, score.cost) == (16 * 3, 16 * 5, 16 * 3 + 2 * 16 * 5)
    assert len(solver.requests) == 16
    assert {body["temperature"] for body in solver.requests} == {0.5}
    (dataset,) = (load(path.parent) for path in (tmp_path / "out").glob("*/manifest.json"))
    assert len(dataset) == 16
    page = evaluation.to_page()
    assert "tiny" in page
    assert re.search(r"pass@2", page)
    assert json.loads(json.dumps(evaluation.to_dict()))["scores"][0]["samples"] == 16


def test_evaluation_is_continued(suite: Path, solver: ChatEndpoint, tmp_path: Path) -> None:
    settings = {"base_url": solver.url, "env_options": OPTIONS}
    first = evaluate("tiny", [str(suite)], tmp_path / "out", **settings).scores[0]
    assert len(solver.requests) == first.samples == 4
    again = evaluate("tiny", [str(suite)], tmp_path / "out", **settings).scores[0]
    assert len(solver.requests) == 4
    assert (again.solved, again.pass_at) == (first.solved, first.pass_at)
    assert again.seconds > first.seconds
    more = evaluate("tiny", [str(suite)], tmp_path / "out", samples=2, **settings).scores[0]
    assert len(solver.requests) == more.samples == 8
    with pytest.raises(DatasetError):
        evaluate("other", [str(suite)], tmp_path / "out", samples=3, **settings)


def test_turns_show_what_failed(suite: Path, tmp_path: Path) -> None:
    task = load_suite(suite)[0]

    def answer(body, count):
        code = task.reference if len(body["messages"]) > 3 else task.reference.replace("return", "return None #")
        return completion(f"```python\n{code}\n```")

    path = tmp_path / "one.jsonl"
    load_suite(suite)[:1].save(path)
    with ChatEndpoint(answer) as endpoint:
        settings = {"base_url": endpoint.url, "env_options": OPTIONS}
        assert evaluate("tiny", [str(path)], tmp_path / "once", **settings).scores[0].solved == 0
        assert evaluate("tiny", [str(path)], tmp_path / "twice", turns=2, **settings).scores[0].solved == 1
        assert len(endpoint.requests) == 3


@pytest.mark.docker
def test_repositories_are_repaired_with_commands(tmp_path: Path) -> None:
    """A model writes shell commands, sees what they print, and submits what it has changed: once, right or wrong."""
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "Dockerfile").write_text(
        "FROM debian:trixie-slim\nRUN mkdir /code && echo wrong > /code/word\nWORKDIR /code\n"
    )
    command = RepositoryCommand(
        command="grep -x right word", must_pass=("grep -x right word",), timeout=30, results="exit code"
    )
    tests = RepositoryTests(image=str(tmp_path / "image"), directory="/code", commands=(command,))
    TaskSuite("words", [Task(id="word", prompt="Make it right.", tests=tests)]).save(tmp_path / "words.jsonl")

    def answer(body, count):
        turn = len(body["messages"]) // 2 - 1
        command = ("cat word", f"echo {words.pop()} > word" if turn == 1 else "", "submit")[turn]
        return completion(f"Now:\n```bash\n{command}\n```")

    words = ["right", "left"]
    with ChatEndpoint(answer) as endpoint:
        options = {"provider": "docker", "preload": ()}
        (score,) = evaluate(
            "tiny", [str(tmp_path / "words.jsonl")], tmp_path / "out", base_url=endpoint.url, samples=2, env_options=options
        ).scores
    assert (score.samples, score.solved, score.unanswered) == (2, 1, 0)
    assert sum("wrong" in body["messages"][-1]["content"] for body in endpoint.requests) == 2
    assert len(endpoint.requests) == 6


def test_nothing_to_evaluate() -> None:
    with pytest.raises(ConfigurationError, match="got none"):
        evaluate("tiny", [], "nowhere", base_url="http://127.0.0.1:9/v1")
    score = score_of("empty", [], (1,))
    assert (score.tasks, score.samples, dict(score.pass_at)) == (0, 0, {})


def test_command(suite: Path, solver: ChatEndpoint, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = [
        "--base-url",
        solver.url,
        "--option",
        "provider=local",
        "--option",
        "preload=[]",
        "--completion-price",
        "1000000",
    ]
    arguments = ["evaluate", "--model", "tiny", "--suite", f"{suite}, basics", "--out", str(out), "--k", "1", *options]
    with ChatEndpoint(lambda body, count: completion("```python\npass\n```")) as endpoint:
        arguments[arguments.index(solver.url)] = endpoint.url
        result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "basics: 16 tasks, 16 samples, 0 solved" in result.output
    assert "pass@1: 0.0% (0.0% to 0.0%)" in result.output
    assert "tokens: 48 of prompts, 80 written, cost 80" in result.output
    assert [score["samples"] for score in json.loads((out / "evaluation.json").read_text())["scores"]] == [4, 16]
    assert (out / "evaluation.html").read_text().startswith("<!doctype html>")
