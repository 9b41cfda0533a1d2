"""Random programs that build up state of many kinds, one cell after another, and print what they see of it."""

from __future__ import annotations

import string
import tomllib
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

__all__ = ["Program", "programs", "vandalism"]

with open(Path(__file__).with_suffix(".toml"), "rb") as _file:
    _DECLARED = tomllib.load(_file)
_LANGUAGES = {
    "smolagents": ("permitted",),
    "restricted": ("permitted", "restricted"),
    "python": ("permitted", "restricted", "unrestricted"),
    "notebook": ("permitted", "restricted", "unrestricted"),
}
_VARIABLES = [f"v{letter}" for letter in string.ascii_lowercase[:10]]
_VANDALISM = [
    """
import gc, os, shutil, signal, sys, warnings
import numpy as np
np.random.seed(5); sys.setprofile(None)
for name in [name for name in globals() if name[:1] == 'v']: del globals()[name]
os.chdir('/tmp'); gc.collect()
""",
    """
for top in (os.environ['HOME'], os.environ['TMPDIR']):
    for entry in [entry for entry in os.scandir(top) if entry.name[0] != '.']:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            # Also the content, which open files may have.
            if not entry.is_symlink(): os.truncate(entry.path, 0)
            os.remove(entry.path)
""",
    """
os.umask(0); warnings.resetwarnings(); signal.signal(signal.SIGUSR2, signal.SIG_DFL); sys.path[:] = []
for name in [name for name in os.environ if name[0] == 'v']: del os.environ[name]
os.closerange(3, 100)
""",
]


class Program(NamedTuple):
    """Program, split into two parts.

    Attributes:
        prefix: The cells before the snapshot.
        suffix: The cells after it.
    """

    prefix: list[str]
    suffix: list[str]


@st.composite
def programs(draw: st.DrawFn, backend: str) -> Program:
    """Programs in the language of a backend."""
    kinds = {name: kind for part in _LANGUAGES[backend] for name, kind in _DECLARED[part].items()}
    names = sorted(kinds)
    variables: dict[str, str] = {}
    cells = []
    for _ in range(draw(st.integers(4, 12))):
        statements = []
        for _ in range(draw(st.integers(1, 4))):
            number = draw(st.integers(0, 60))
            if not variables or draw(st.integers(0, 3)) == 0:
                variable = draw(st.sampled_from(_VARIABLES))
                # A variable has one kind, because the cell that creates it may fail before.
                variables.setdefault(variable, draw(st.sampled_from(names)))
                template = kinds[variables[variable]]["create"]
            else:
                variable = draw(st.sampled_from(sorted(variables)))
                template = draw(st.sampled_from(kinds[variables[variable]]["use"]))
            statements.append(template.format(v=variable, n=number, n_octal=f"{number % 8}7"))
        cells.append("\n".join(statements))
    at = draw(st.integers(1, len(cells) - 1))
    return Program(cells[:at], cells[at:])


def vandalism(backend: str) -> list[str]:
    """Return cells that destroy what a program may have."""
    assignments = "; ".join(f"{name} = None" for name in _VARIABLES)
    cells = [assignments, "import random\nrandom.seed(99); x = [random.random() for n in range(5)]"]
    return cells + _VANDALISM if "unrestricted" in _LANGUAGES[backend] else cells
