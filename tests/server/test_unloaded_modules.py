"""Libraries that are imported in advance, or by programs."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.every_provider


def test_matplotlib_is_imported_silently(provider, sandbox_of, connect):
    session = connect(sandbox_of(provider=provider))
    session.reset()
    plotted = session.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.savefig('plot.png')")
    assert (plotted.stdout, plotted.stderr, plotted.exit_code) == ("", "", 0)
    session.reset()
    assert session.run("import os; print(os.path.exists(os.environ['MPLCONFIGDIR']))").stdout == "False\n"


def test_fonts_are_not_looked_for_at_the_start_of_a_sandbox(provider, sandbox_of, connect):
    session = connect(sandbox_of(provider=provider, preload=("matplotlib.pyplot",)))
    session.reset()
    listings = "import matplotlib.font_manager as fonts; print(fonts._get_fontconfig_fonts.cache_info().currsize)"
    assert session.run(listings).stdout == "0\n"
