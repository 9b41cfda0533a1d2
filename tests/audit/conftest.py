from __future__ import annotations

from collections.abc import Iterator

import pytest

from coding_gym.tasks import Grader


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(provider="local", preload=()) as shared:
        yield shared
