"""The figures of README and documentation are those that ``python -m benchmarks --write`` has measured."""

from __future__ import annotations

import re

import pytest

from benchmarks import figures
from benchmarks.plan import BenchPlan
from benchmarks.report import Row
from coding_gym.errors import ConfigurationError

STEP = Row(what="env.step(1)", unit="ms", median=0.412, low=0.4, high=0.5, p95=0.9)
SKIPPED = Row(what="  another project", unit="ms", median=None, note="skipped")
REPORT = figures.record(
    {"step": [STEP, SKIPPED], "vector": [Row(what="16 sessions", unit="steps/s", median=2800)]},
    BenchPlan(provider="local", quick=True),
)


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_pages_have_the_recorded_figures(page):
    text = page.read_text(encoding="utf-8")
    assert figures.rewrite(text, figures.read_figures(), page.name) == text


def test_markers_get_figures():
    text = (
        "A step takes **<!-- figure: step, env.step(1) -->9 s<!-- end -->**, <!-- figure: vector, 16 sessions --><!-- end -->."
    )
    written = figures.rewrite(text, REPORT, "page")
    assert re.sub("<!--.*?-->", "", written) == "A step takes **0.412 ms**, 2,800 steps/s."
    assert figures.rewrite(written, REPORT, "page") == written


def test_markers_get_tables_and_the_machine():
    text = "<!-- figures: step, vector -->\nold\n<!-- end -->\n\n<!-- machine --><!-- end -->\n"
    written = figures.rewrite(text, REPORT, "page")
    assert "| `env.step(1)` | 0.412 ms | 0.400 to 0.500 | 0.900 ms |\n| 16 sessions | 2,800 steps/s |  |  |" in written
    assert "another project" not in written
    assert re.search(r"Measured on 20\d\d-\d\d-\d\d, with the provider `local`, on \d+ cores", written)
    assert figures.rewrite(written, REPORT, "page") == written


@pytest.mark.parametrize(
    "marker", ["figure: step, another project", "figure: step, nothing", "figure: no, a", "figures: step, no"]
)
def test_unknown_figures_are_refused(marker):
    with pytest.raises(ConfigurationError, match=r"page: expected .* got"):
        figures.rewrite(f"<!-- {marker} -->1 ms<!-- end -->", REPORT, "page")
