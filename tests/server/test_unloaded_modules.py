"""Modules that are not imported in advance."""

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
