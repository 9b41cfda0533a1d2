from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Task, TaskSuite, load_suite


def make(count: int, name: str = "s") -> TaskSuite:
    tests = Asserts(cases=("assert f() == 1",))
    return TaskSuite(
        name, [Task(id=f"{name}/{n}", prompt="", tests=tests, metadata={"tags": ["odd"] * (n % 2)}) for n in range(count)]
    )


def test_suite_is_sequence() -> None:
    suite = make(5)
    assert isinstance(suite, Sequence)
    assert [task.id for task in suite] == list(suite.ids) == [f"s/{n}" for n in range(5)]
    assert suite[-1] is suite["s/4"]
    assert suite[1:3].ids == ("s/1", "s/2")
    assert "s/1" in suite
    assert suite[0] in suite
    assert 7 not in suite
    assert repr(suite) == "TaskSuite('s', 5 tasks)"
    assert suite == make(5) != make(4)
    with pytest.raises(KeyError, match=r"no task 's/9' .*; it has 5: s/0, s/1, s/2"):
        suite["s/9"]
    with pytest.raises(IndexError):
        suite[5]


def test_duplicate_ids_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="Two tasks of the suite 's' have the id 's/0'"):
        TaskSuite("s", [*make(2), *make(1)])


def test_samples_are_reproducible() -> None:
    suite = make(100)
    assert suite.sample(10, seed=3) == suite.sample(10, seed=3) != suite.sample(10, seed=4)
    assert sorted(suite.sample(100, seed=3).ids) == sorted(suite.ids)
    assert len(suite.sample(0, seed=3)) == 0
    with pytest.raises(ConfigurationError, match="0 to 100 tasks"):
        suite.sample(101, seed=0)


def test_split_parts_are_disjoint() -> None:
    suite = make(101)
    parts = suite.split({"train": 0.7, "dev": 0.1, "test": 0.2}, seed=1)
    assert {name: len(part) for name, part in parts.items()} == {"train": 71, "dev": 10, "test": 20}
    assert sorted(task for part in parts.values() for task in part.ids) == sorted(suite.ids)
    assert parts == suite.split({"train": 0.7, "dev": 0.1, "test": 0.2}, seed=1)
    assert parts["train"].name == "s/train"
    assert list(parts["train"].ids) == [task for task in suite.ids if task in parts["train"]]
    assert [len(part) for part in suite.split(0.5, seed=2).values()] == [50, 51]
    assert [len(part) for part in suite.split({"few": 0.1}, seed=2).values()] == [10]
    for wrong in (1.5, -0.1, {"a": 0.6, "b": 0.6}):
        with pytest.raises(ConfigurationError, match="parts between 0 and 1"):
            suite.split(wrong, seed=0)


def test_filter_and_merge_return_new_suites() -> None:
    suite = make(6)
    assert suite.filter(["odd"]).ids == suite.filter("odd").ids == ("s/1", "s/3", "s/5")
    assert suite.filter(lambda task: task.id > "s/3").ids == ("s/4", "s/5")
    both = suite.merge(make(2, "t"))
    assert both.name == "s+t"
    assert len(both) == 8
    assert suite.merge(make(2, "t"), name="all").name == "all"
    with pytest.raises(ConfigurationError, match="have the id"):
        suite.merge(make(1))


def test_suite_round_trips_through_file(tmp_path: Path) -> None:
    suite = make(3)
    suite.save(tmp_path / "s.jsonl")
    assert load_suite(tmp_path / "s.jsonl") == suite
