from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import branching, display, latency, scaling
from benchmarks.__main__ import app
from benchmarks.baselines import BaselineError, bare_worker
from benchmarks.branching import prefix_of_equal_cost
from benchmarks.plan import BenchPlan
from benchmarks.processes import NotMeasurableError, RssPeak, find_server, pss, rss
from benchmarks.report import Row
from coding_gym_server.isolation.probe import probe

needs_landlock = pytest.mark.skipif(bool(probe().missing_filter), reason="the local provider needs seccomp")


@needs_landlock
def test_quick_run_prints_and_writes_figures(tmp_path: Path):
    path = tmp_path / "figures.json"
    result = CliRunner().invoke(
        app, ["--quick", "--provider", "local", "--only", "deadline", "--json", str(path)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "provider local, quick" in result.output
    assert "must reach" in result.output
    assert "endless loop" in result.output
    report = json.loads(path.read_text())
    assert report["provider"] == "local"
    (row,) = report["groups"]["deadline"]
    assert row["median"] > 0
    assert report["machine"]["cores"] > 0


def test_rounds_have_a_median_and_a_range(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    medians = iter([1.0, 5.0, 2.0])

    def measure(plan: BenchPlan) -> list[Row]:
        return [Row(what="a", unit="ms", median=next(medians), p95=7.0), Row(what="not measured", unit="", median=None)]

    monkeypatch.setattr(display, "measure_display", measure)
    command = ["--only", "display", "--provider", "local", "--rounds", "3", "--json", str(tmp_path / "figures.json")]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "1.00 to 5.00" in result.output
    first, second = json.loads((tmp_path / "figures.json").read_text())["groups"]["display"]
    assert (first["median"], first["low"], first["high"], first["p95"]) == (2.0, 1.0, 5.0, 7.0)
    assert second["median"] is None


@needs_landlock
def test_first_come_is_measured_beside_lock_step():
    rows = list(latency.measure_first_come(BenchPlan(provider="local", quick=True)))
    assert [row.unit for row in rows] == ["steps/s", "steps/s", "x"] * 2
    assert rows[2].met


@needs_landlock
def test_baseline_worker_executes_code():
    with bare_worker() as execute:
        for number in range(3):
            execute(f"print('x' * 10_000, {number})")


def test_unknown_group_and_invalid_path_are_refused_early(tmp_path: Path):
    assert CliRunner().invoke(app, ["--only", "nonsense"]).exit_code == 2
    assert CliRunner().invoke(app, ["--json", str(tmp_path / "missing" / "figures.json")]).exit_code == 2


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


def test_chosen_group_runs_alone(monkeypatch: pytest.MonkeyPatch):
    measured = [Row(what="nothing but the option", unit="ms", median=1.0)]
    monkeypatch.setattr(display, "measure_display", lambda plan: measured)
    result = CliRunner().invoke(app, ["--only", "display", "--provider", "local"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "nothing but the option" in result.output
    assert "endless loop" not in result.output


def test_prefix_of_equal_cost_is_interpolated():
    assert prefix_of_equal_cost([0, 10, 20], [12, 12, 12], [3, 13, 23]) == 9
    assert prefix_of_equal_cost([0, 10], [2, 2], [3, 13]) == 0
    assert prefix_of_equal_cost([0, 10], [20, 20], [3, 13]) is None


@needs_landlock
def test_expansions_are_measured_in_turns(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(branching, "_PREFIXES", (0, 5))
    *rows, equal = branching.measure_branching(BenchPlan(provider="local", quick=True))
    assert len(rows) == 6
    for branched, replayed, ratio in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert ratio.median == pytest.approx(branched.median / replayed.median)
    assert equal.unit == "ms"


@needs_landlock
def test_cpu_time_of_a_step_is_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scaling, "_SANDBOXES", (2,))
    monkeypatch.setattr(scaling, "_WORKERS", ())
    rate, client, busiest = scaling.measure_scaling(BenchPlan(provider="local", quick=True))
    assert rate.what == "64 environments in 2 sandboxes"
    assert client.median > 0
    # One of the two servers does half of the work, and never takes more than one processor.
    assert 0 < busiest.median <= 1.1e6 / rate.median


@needs_landlock
def test_dead_baseline_worker_is_reported(monkeypatch: pytest.MonkeyPatch):
    with bare_worker() as execute, pytest.raises(BaselineError, match="the bare worker failed"):
        execute("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    # A worker whose sockets are closed breaks the pipe, which click takes for a closed terminal.
    monkeypatch.setattr(latency, "bare_worker", lambda: (_ for _ in ()).throw(BaselineError("the bare worker failed: pipe")))
    monkeypatch.setattr(BenchPlan, "times", lambda self, full, *, least=3: 10)
    result = CliRunner().invoke(app, ["--provider", "local", "--only", "step"], catch_exceptions=False)
    assert result.exit_code == 1
    assert "env.step(" in result.output
    assert "the bare worker failed" in result.output.replace("\n", " ")


def test_failed_group_neither_ends_the_run_nor_is_silent(monkeypatch: pytest.MonkeyPatch):
    def fail(plan: BenchPlan) -> list[Row]:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe [/pipe]")

    monkeypatch.setattr(latency, "measure_step", fail)
    monkeypatch.setattr(display, "measure_display", lambda plan: [Row(what="the other group", unit="ms", median=1.0)])
    command = ["--only", "step", "--only", "display", "--provider", "local"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 1
    assert "step: failed" in result.output
    assert "BrokenPipeError: [Errno 32] Broken pipe [/pipe]" in result.output
    assert "the other group" in result.output


def test_missing_engine_is_reported(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    result = CliRunner().invoke(app, ["--provider", "docker"])
    assert result.exit_code == 1
    assert "The docker provider is not available" in result.stderr
