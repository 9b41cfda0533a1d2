from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coding_gym.bench import display
from coding_gym.bench.processes import NotMeasurableError, RssPeak, find_server, pss, rss
from coding_gym.bench.report import Row
from coding_gym.cli import app
from coding_gym_server.isolation.probe import probe

needs_landlock = pytest.mark.skipif(bool(probe().missing), reason="the local provider needs Linux 6.12's Landlock")


@needs_landlock
def test_a_quick_run_of_one_group_prints_and_writes_its_figures(tmp_path: Path):
    path = tmp_path / "figures.json"
    result = CliRunner().invoke(
        app, ["bench", "--quick", "--provider", "local", "--only", "deadline", "--json", str(path)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "provider local, quick" in result.output
    assert "must reach" in result.output
    assert "endless loop" in result.output
    report = json.loads(path.read_text())
    assert report["provider"] == "local"
    assert len(report["rows"]) == 1
    assert report["rows"][0]["median"] > 0


def test_a_peer_that_cannot_be_measured_is_skipped_with_a_reason():
    result = CliRunner().invoke(app, ["bench", "--quick", "--provider", "local", "--only", "openenv"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "skipped: OpenEnv's client wants TCP" in result.output


def test_an_unknown_group_and_an_impossible_path_are_refused_before_anything_starts(tmp_path: Path):
    assert CliRunner().invoke(app, ["bench", "--only", "nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["bench", "--json", str(tmp_path / "missing" / "figures.json")]).exit_code == 2


def test_a_row_says_whether_its_bar_is_reached():
    assert Row(what="", unit="ms", median=1.0).met is None
    assert Row(what="", unit="ms", median=None, at_most=1).met is None
    assert Row(what="", unit="ms", median=1.0, at_most=1).met is True
    assert Row(what="", unit="ms", median=1.1, at_most=1).met is False
    assert Row(what="", unit="x", median=10.0, at_least=10).met is True
    assert Row(what="", unit="x", median=9.9, at_least=10).met is False


def test_samples_are_summarised_by_median_and_p95():
    row = Row.of_samples("", "ms", [float(value) for value in range(101)])
    assert (row.median, row.p95) == (50, 95)
    assert Row.of_samples("", "s", [3.0, 1.0, 2.0]).p95 is None


def test_memory_of_a_process():
    own = os.getpid()
    assert 0 < pss([own]) <= rss(own) * 1.1
    with RssPeak(own) as peak:
        before = peak.megabytes
        ballast = bytearray(os.urandom(1) * 64 * 1024 * 1024)
    assert peak.megabytes >= before
    assert len(ballast) == 64 * 1024 * 1024


def test_a_process_that_is_no_server_is_not_measured():
    with pytest.raises(NotMeasurableError):
        find_server([os.getpid()])


def test_the_screen_has_an_option_of_its_own(monkeypatch: pytest.MonkeyPatch):
    measured = [Row(what="nothing but the option", unit="ms", median=1.0)]
    monkeypatch.setattr(display, "measure_display", lambda plan: measured)
    result = CliRunner().invoke(app, ["bench", "--display", "--provider", "local"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "nothing but the option" in result.output
    assert "endless loop" not in result.output
