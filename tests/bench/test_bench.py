from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from coding_gym.bench import display
from coding_gym.bench.baselines import bare_worker
from coding_gym.bench.processes import NotMeasurableError, RssPeak, find_server, pss, rss
from coding_gym.bench.report import Row
from coding_gym.cli.main import app
from coding_gym_server.isolation.probe import probe

needs_landlock = pytest.mark.skipif(bool(probe().missing), reason="the local provider needs Linux 6.12's Landlock")


@pytest.mark.slow
@needs_landlock
def test_quick_run_prints_and_writes_figures(tmp_path: Path):
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


@needs_landlock
def test_baseline_worker_executes_code():
    with bare_worker() as execute:
        for number in range(3):
            execute(f"print('x' * 10_000, {number})")


def test_unknown_group_and_invalid_path_are_refused_early(tmp_path: Path):
    assert CliRunner().invoke(app, ["bench", "--only", "nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["bench", "--json", str(tmp_path / "missing" / "figures.json")]).exit_code == 2


def test_row_reports_whether_target_is_met():
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


def test_process_memory_is_measured():
    own = os.getpid()
    assert 0 < pss([own]) <= rss(own) * 1.1
    with RssPeak(own) as peak:
        before = peak.megabytes
        ballast = bytearray(os.urandom(1) * 64 * 1024 * 1024)
    assert peak.megabytes >= before
    assert len(ballast) == 64 * 1024 * 1024


def test_non_server_process_is_not_measurable():
    with pytest.raises(NotMeasurableError):
        find_server([os.getpid()])


def test_display_option_runs_only_display_benchmarks(monkeypatch: pytest.MonkeyPatch):
    measured = [Row(what="nothing but the option", unit="ms", median=1.0)]
    monkeypatch.setattr(display, "measure_display", lambda plan: measured)
    result = CliRunner().invoke(app, ["bench", "--display", "--provider", "local"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "nothing but the option" in result.output
    assert "endless loop" not in result.output
