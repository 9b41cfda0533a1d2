from __future__ import annotations

from coding_gym.datasets import collect
from coding_gym.datasets.details import DetailsLog, EpisodeDetails, StepDetails, read_details
from coding_gym.envs.task_env import CodingTaskEnv
from coding_gym.tasks import Asserts, Task, TaskSuite


def entry(index: int, seconds: float = 0.0) -> EpisodeDetails:
    return EpisodeDetails(episode=index, started="2026-01-02T03:04:05+00:00", steps=(StepDetails(seconds=seconds),))


def test_details_survive_a_torn_line(tmp_path):
    with DetailsLog(tmp_path) as log:
        log.append(entry(0))
        log.append(entry(1))
    path = tmp_path / "details.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert [found.episode for found in read_details(tmp_path)] == [0]
    with DetailsLog(tmp_path) as log:
        log.append(entry(1, 2.0))
    assert [found.episode for found in read_details(tmp_path)] == [0, 1]


def test_damaged_lines_are_skipped(tmp_path):
    with DetailsLog(tmp_path) as log:
        log.append(entry(0))
        log.append(entry(1))
    path = tmp_path / "details.jsonl"
    first, second = path.read_bytes().splitlines(keepends=True)
    nested = b'{"episode":2,"started":"","steps":[{"verdict":' + b"[" * 5000 + b"]" * 5000 + b"}]}\n"
    path.write_bytes(first.replace(b"2026", b"\xff026") + nested + second)
    assert [found.episode for found in read_details(tmp_path)] == [1]


def test_dataset_without_details_has_none(tmp_path):
    assert list(read_details(tmp_path)) == []


def test_times_of_steps_are_recorded(collect_here):
    dataset = collect_here(["import time\ntime.sleep(0.3)", "1"], 2)
    found = {details.episode: details for details in read_details(dataset.path)}
    assert sorted(found) == [0, 1]
    assert [len(details.steps) for details in found.values()] == [3, 3]
    assert all(details.steps[1].seconds >= 0.3 for details in found.values())
    assert all(details.steps[1].verdict is None for details in found.values())


def test_verdicts_have_each_test(pool, tmp_path):
    tests = Asserts(cases=("assert double(1) == 2", "assert double(2) == 4"))
    suite = TaskSuite("doubles", [Task(id="doubles/one", prompt="Double.", entry_point="double", tests=tests)])
    wrong, right = "def double(n):\n    return n + 1", "def double(n):\n    return 2 * n"
    dataset = collect(lambda: _task_env(suite, pool), [wrong, right], 1, seed=1, path=tmp_path / "dataset", sessions=1)
    (details,) = read_details(dataset.path)
    outcomes = [step.verdict and [case["outcome"] for case in step.verdict["cases"]] for step in details.steps]
    assert outcomes == [None, ["passed", "failed"], ["passed", "passed"]]
    assert details.steps[1].verdict["outcome"] == "failed"
    # Hidden tests are not in the episodes.
    assert b"double(2)" not in (dataset.path / "episodes.log").read_bytes()


def _task_env(suite, pool):
    return CodingTaskEnv(suite=suite, pool=pool, screen=None)
