"""Order of the tests, in which the processes of pytest-xdist finish together.

Each process begins with an equal number of successive tests; one that has finished takes over the last half of another's.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

import pytest

from tests.support.durations import duration_of


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin the share of each process with the files that take long, so that quick ones are left for the end."""
    shares = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if shares > 1:
        items[:] = _dealt(items, shares)


def _dealt(items: Sequence[pytest.Item], shares: int) -> list[pytest.Item]:
    # The tests of a file, with one provider, share fixtures and stay together.
    files = [tuple(tests) for _, tests in itertools.groupby(items, key=_file_and_provider)]
    dealt: list[list[pytest.Item]] = [[] for _ in range(shares)]
    for file in sorted(filter(_seconds, files), key=_seconds, reverse=True):
        min(dealt, key=_seconds).extend(file)
    quick = itertools.chain.from_iterable(file for file in files if not _seconds(file))
    for number, share in enumerate(dealt):
        end = len(items) * (number + 1) // shares
        share.extend(itertools.islice(quick, max(0, end - sum(map(len, dealt[:number])) - len(share))))
    return [*itertools.chain.from_iterable(dealt), *quick]


def _file_and_provider(item: pytest.Item) -> tuple[str, str]:
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return str(item.path), str(parameters.get("provider"))


def _seconds(items: Sequence[pytest.Item]) -> float:
    return sum(map(duration_of, items))
