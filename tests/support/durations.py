"""Measured durations of tests, which decide what is slow: ``tests/durations.json``.

    pytest --full --record-durations

records them, of the tests that it runs: those of half a second and more, on a quiet machine. A duration is that of the test and
of the fixtures that are made for it alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["SLOW_SECONDS", "duration_of", "is_slow"]

SLOW_SECONDS = 1.0
"""Tests that take as long, or longer, do not run by default."""

_FILE = Path(__file__).parents[1] / "durations.json"
_RECORDED_SECONDS = 0.5
_PROPERTY = "duration"
_FIXTURES = pytest.StashKey[float]()
_KNOWN: dict[str, float] = json.loads(_FILE.read_text(encoding="utf-8")) if _FILE.exists() else {}


def duration_of(item: pytest.Item) -> float:
    """Return the recorded seconds of a test; 0 if it is new, or quick."""
    return _KNOWN.get(item.nodeid, 0.0)


def is_slow(item: pytest.Item) -> bool:
    """Return whether a test does not run by default."""
    return duration_of(item) >= SLOW_SECONDS


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coding_gym")
    group.addoption("--record-durations", action="store_true", help=f"record how long tests take in {_FILE.name}")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record_durations"):
        config.pluginmanager.register(_Recorder(), "durations")


class _Recorder:
    """Records durations: measured where a test runs, and written by the process that reports."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
        began = time.perf_counter()
        try:
            return (yield)
        finally:
            if fixturedef.scope == "function":
                stash = request.node.stash
                stash[_FIXTURES] = stash.get(_FIXTURES, 0.0) + time.perf_counter() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        if call.when == "call":
            item.user_properties.append((_PROPERTY, item.stash.get(_FIXTURES, 0.0) + call.duration))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._seconds[report.nodeid] = dict(report.user_properties)[_PROPERTY]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            found = {**_KNOWN, **self._seconds}
            kept = {test: round(seconds, 1) for test, seconds in sorted(found.items()) if seconds >= _RECORDED_SECONDS}
            _FILE.write_text(json.dumps(kept, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
