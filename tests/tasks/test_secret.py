"""The secret of a user, from which questions are drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coding_gym.tasks import Asserts, Task
from coding_gym.tasks import secret as secrets
from coding_gym.tasks.secret import task_secret

TASK = Task(id="add", prompt="", tests=Asserts(cases=("assert add(1, 2) == 3",)), reference="def add(a, b): return a + b")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CODING_GYM_SECRET", raising=False)
    secrets._kept_secret.cache_clear()
    yield tmp_path
    secrets._kept_secret.cache_clear()


def test_variable_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODING_GYM_SECRET", "one")
    one = task_secret(TASK)
    monkeypatch.setenv("CODING_GYM_SECRET", "two")
    assert task_secret(TASK) != one
    monkeypatch.setenv("CODING_GYM_SECRET", "one")
    assert task_secret(TASK) == one
    assert "one" not in one


def test_tasks_have_secrets_of_their_own() -> None:
    assert task_secret(TASK) == task_secret(replace(TASK, prompt="Add."))
    assert task_secret(TASK) != task_secret(replace(TASK, tests=Asserts(cases=("assert add(1, 3) == 4",))))


def test_generated_secret_is_kept(cache: Path) -> None:
    found = task_secret(TASK)
    assert [(path.name, path.stat().st_mode & 0o777) for path in (cache / "coding_gym").iterdir()] == [("secret", 0o600)]
    secrets._kept_secret.cache_clear()
    assert task_secret(TASK) == found


def test_secret_that_cannot_be_kept_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/x")
    assert task_secret(TASK) == task_secret(TASK)
    assert "set CODING_GYM_SECRET" in caplog.text
