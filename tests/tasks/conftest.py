"""Suites of real problems, and a grader shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from coding_gym.tasks import Grader, TaskSuite, load_suite


@pytest.fixture(scope="session")
def humaneval() -> TaskSuite:
    return load_suite("humaneval")


@pytest.fixture(scope="session")
def mbpp() -> TaskSuite:
    path = os.environ.get("CODING_GYM_MBPP", "")
    if not Path(path).is_file():
        pytest.skip("requires MBPP: set CODING_GYM_MBPP to the path of mbpp.jsonl")
    return load_suite(f"mbpp:{path}")


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    # The idle timeout is long, so that the sandbox does not end while other tests run.
    with Grader(provider="local", idle_timeout=3600) as grader:
        yield grader
