"""Fixtures of locks and trees over their states."""

from __future__ import annotations

import pytest

from coding_gym_search import BranchTree
from tests.support.lock import CombinationLock


@pytest.fixture
def lock():
    lock = CombinationLock()
    lock.reset(seed=1)
    return lock


@pytest.fixture
def tree(lock):
    with BranchTree(lock) as tree:
        yield tree
