"""Modules that are not imported in advance."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.every_provider

PLOT = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.savefig('plot.png')"
CHANGE = """
import matplotlib, os
directory = matplotlib.get_cachedir()
print(directory == os.environ["MPLCONFIGDIR"])
for name in ["new", *os.listdir(directory)]:
    for change in (lambda path: open(path, "a"), os.unlink, lambda path: os.rename("plot.png", path)):
        try:
            change(f"{directory}/{name}")
        except OSError:
            print(False)
        else:
            print("changed")
"""


def test_matplotlib_uses_cache_that_sessions_cannot_change(provider, sandbox_of, connect):
    session = connect(sandbox_of(provider=provider))
    session.reset()
    plotted = session.run(PLOT)
    assert (plotted.stdout, plotted.stderr, plotted.exit_code) == ("", "", 0)
    changed = session.run(CHANGE).stdout.splitlines()
    assert changed[0] == "True"
    assert set(changed[1:]) == {"False"}
