"""``examples/learn_to_code``: its language, its rewards, and that a run begins to learn."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from coding_gym.errors import PolicyError
from coding_gym.evaluation import evaluate
from coding_gym.tasks import load_suite
from tests.support.requirements import import_extra

EXAMPLE = Path(__file__).parents[3] / "examples" / "learn_to_code"


@pytest.fixture(scope="module", autouse=True)
def _modules():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        yield
    for name in ("language", "rewards"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def language():
    return importlib.import_module("language")


@pytest.fixture(scope="module")
def rewards():
    return importlib.import_module("rewards")


def programs_of(language, chain):
    """Return the solution of a task, and of others."""
    mutants = [other for other in language._mutants(chain) if other]
    return [language.program(language.encode(language.solution(other))) for other in (chain, *mutants)]


def test_programs_are_tokens(language):
    chain = ("sum of", "squares of", "evens of")
    body = language.solution(chain)
    assert body == "xs = [x for x in xs if x % 2 == 0]\nxs = [x * x for x in xs]\nreturn sum(xs)"
    tokens = language.encode(body)
    assert tokens[-1] == language.END
    assert max(tokens) < language.CLEAN_TOKENS
    indented = body.replace("\n", "\n    ")
    assert language.program([*tokens, 5, 6]) == f"def f(xs, k):\n    {indented}\n"
    assert language.answer(chain, ([1, 2, 3, 4], 0)) == 20
    for forgery in language.FORGERIES:
        assert max(language.encode(forgery)) < language.PROGRAM_TOKENS
    assert len(language.encode_prompt(chain, 3)) == len(language.encode_prompt(chain[:1], 3, 2)) == 4
    chance = random.Random(1)
    demonstrated = {language.demonstrate_operation(name, chance) for name in language.OPERATIONS for _ in range(20)}
    assert len(demonstrated) > 2 * len(language.OPERATIONS)
    assert all(language.encode(body) for body in demonstrated)


def test_chains_are_different_and_reproducible(language):
    chains = language.make_chains(3, 40, random.Random(1))
    assert len(set(chains)) == 40
    assert {len(chain) for chain in chains} == {3}
    assert chains == language.make_chains(3, 40, random.Random(1))
    assert language.make_chains(3, 40, random.Random(2)) != chains
    assert chains[0] not in language.make_chains(3, 40, random.Random(1), without=chains[:1])
    assert 10 <= sum(chain[0] in language.REDUCTIONS for chain in chains) <= 30


def test_hidden_tests_fail_all_mutants(language):
    chains = [(name,) for name in language.OPERATIONS] + language.make_chains(2, 20, random.Random(3))
    for chain in chains:
        cases = language._cases(chain)
        assert len(cases) >= 8
        answers = [repr(language.answer(chain, inputs)) for inputs in cases]
        if chain[0] == "whether k is in":
            assert set(answers) == {"True", "False"}
        for mutant in language._mutants(chain):
            different = [language.answer(mutant, inputs) != language.answer(chain, inputs) for inputs in cases]
            fresh = language.fresh_inputs(chain, 40)
            same = all(language.answer(mutant, inputs) == language.answer(chain, inputs) for inputs in fresh)
            assert any(different) or same, (chain, mutant)


@pytest.mark.parametrize("grading", [None, "faithful"])
def test_verdicts_agree_with_the_truth(language, rewards, grading):
    chains = [("whether k is in",), ("sum of", "evens of"), ("sorted", "tail of", "negations of")]
    programs = [(chain, code) for chain in chains for code in programs_of(language, chain)]
    programs += [(chains[1], language.program(language.encode(body))) for body in language.FORGERIES]
    with rewards.GradedReward("local", grading) as graded, rewards.Truth("local") as truth:
        verdicts, right = graded(programs), truth(programs)
        assert [score.solved for score in graded(programs)] == [score.solved for score in verdicts]
        assert all(score.is_repeat for score in graded(programs))
    wrong = [
        program for program, score, true in zip(programs, verdicts, right, strict=True) if score.solved and not true.solved
    ]
    assert not wrong
    assert sum(score.solved for score in verdicts) == sum(score.solved for score in right) >= 3


def test_usual_rewards_are_forged(language, rewards):
    chain = ("sum of", "evens of")
    forged = [(chain, language.program(language.encode(body))) for body in language.FORGERIES]
    own, other = programs_of(language, chain)[:2]
    for how, least in (("exit", 5), ("exec", 1)):
        with rewards.UsualReward("local", how) as usual:
            assert [score.solved for score in usual([(chain, own), (chain, other)])] == [True, False]
            assert sum(score.solved for score in usual(forged)) >= least


@pytest.mark.parametrize("options", [[], ["--reward", "exit", "--forgeries", "0.2", "--compare-every", "2", "--no-buffer"]])
def test_run_is_logged_and_drawn(tmp_path, options):
    import_extra("torch")
    small = ["--steps", "3", "--warm-steps", "20", "--prompts", "4", "--samples", "4", "--width", "32", "--layers", "1"]
    short = ["--operations", "2", "--evaluate-every", "2", "--provider", "local"]
    command = [sys.executable, EXAMPLE / "train.py", *small, *short, *options, "--log", "run.jsonl"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert ended.returncode == 0, ended.stderr
    log = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    kinds = [record["kind"] for record in log if record["kind"] != "comparison"]
    assert kinds == ["settings", "evaluation", "update", "update", "evaluation", "update", "evaluation", "end"]
    assert all(0 <= rate <= 1 for record in log if record["kind"] == "evaluation" for rate in record["true"].values())
    what = "rewards" if options else "learning"
    assert ("comparison" in {record["kind"] for record in log}) == (what == "rewards")
    drawn = subprocess.run(
        [sys.executable, EXAMPLE / "plot.py", what, "run.jsonl"], cwd=tmp_path, capture_output=True, text=True
    )
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / f"{what}.png").stat().st_size > 10_000
    assert len(drawn.stdout.splitlines()) == 3
    if not options:
        check_served(tmp_path)


def check_served(directory):
    """Check that the model of a run is evaluated behind an endpoint."""
    command = [sys.executable, EXAMPLE / "serve.py", "run.pt", "--port", "0", "--suite", "held_out.jsonl"]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().split()[-1]
            held_out = load_suite(directory / "held_out.jsonl")
            assert {len(task.id.split(", ")) for task in held_out} == {2}
            held_out[:3].save(directory / "some.jsonl")
            settings = {"base_url": url, "env_options": {"provider": "local", "preload": ()}, "ks": (1, 2)}
            evaluation = evaluate("learned", [str(directory / "some.jsonl")], directory / "scores", samples=2, **settings)
            (score,) = evaluation.scores
            assert (score.tasks, score.samples) == (3, 6)
            assert score.prompt_tokens == 6 * 3
            assert score.completion_tokens > 0
            body = {"messages": [{"role": "user", "content": held_out[0].prompt}], "seed": 0}
            first, second = (requests.post(f"{url}/chat/completions", json=body, timeout=60).json() for _ in range(2))
            assert first == second
            with pytest.raises(PolicyError, match="expected a prompt such as 'Write a function"):
                evaluate("learned", ["basics"], directory / "others", **settings)
        finally:
            server.kill()
