from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from coding_gym_server.isolation.probe import probe

pytest.importorskip("matplotlib")

EXAMPLE = Path(__file__).parents[3] / "examples" / "tree_search.py"


def run(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "--provider", "local", *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")


@pytest.mark.skipif(bool(probe().missing_filter), reason="the local provider needs seccomp")
def test_branching_solves_more_at_equal_steps(monkeypatch, capsys, tmp_path):
    picture = tmp_path / "search.png"
    run(monkeypatch, "--tasks", "ring_log", "temperature", "--budget", "60", "--seed", "2", "--output", str(picture))
    rows = re.findall(
        r"^(search with branching|search with replay|independent rollouts)((?: +\d+)+)$", capsys.readouterr().out, re.M
    )
    figures = {method: [int(figure) for figure in row.split()] for method, row in rows}
    assert list(figures) == ["search with branching", "search with replay", "independent rollouts"]
    for *each, solved, steps, _ in figures.values():
        assert sum(each) == solved <= figures["search with branching"][-3]
        assert steps <= 2 * 60
    assert figures["search with branching"][-3] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_search_example_explains_its_options(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="0"):
        run(monkeypatch, "--help")
    assert "hidden tests" in capsys.readouterr().out
