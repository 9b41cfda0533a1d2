from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coding_gym_server.isolation.probe import probe

CHECKOUT = Path(__file__).parents[2]


def compare(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks", "--provider", "local", "--quick", *arguments]
    return subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True, timeout=100).stdout


def test_unmeasurable_peer_is_skipped_with_reason(tmp_path: Path):
    compare("--only", "openenv", "--json", str(tmp_path / "figures.json"))
    (row,) = json.loads((tmp_path / "figures.json").read_text())["groups"]["openenv"]
    assert row["median"] is None
    assert row["note"] == "skipped: OpenEnv's client requires TCP, so provider docker"


@pytest.mark.skipif(bool(probe().missing_filter), reason="the local provider needs seccomp")
def test_jupyter_comparison_writes_both_figures(tmp_path: Path):
    pytest.importorskip("ipykernel")
    assert "ipykernel" in compare("--only", "jupyter", "--json", str(tmp_path / "figures.json"))
    step, peer, ratio = json.loads((tmp_path / "figures.json").read_text())["groups"]["jupyter"]
    assert ratio["median"] == pytest.approx(peer["median"] / step["median"])
