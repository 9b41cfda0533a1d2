"""An overlay: a directory of packages beyond those that the interpreter has, laid out as pip does below a ``--prefix``."""

from __future__ import annotations

import os
import site
import sysconfig
from pathlib import Path

__all__ = ["python_path", "use"]


def python_path(overlay: Path) -> list[str]:
    """Return where this interpreter's packages are in an overlay."""
    base = {"base": str(overlay), "platbase": str(overlay)}
    paths = sysconfig.get_paths(sysconfig.get_preferred_scheme("prefix"), vars=base)
    return list(dict.fromkeys((paths["purelib"], paths["platlib"])))


def use(overlay: Path) -> None:
    """Have the calling process, and the interpreters that it will start, find an overlay's packages after its own."""
    directories = python_path(overlay)
    for directory in directories:
        site.addsitedir(directory)
    os.environ["PYTHONPATH"] = os.pathsep.join(directories)
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], str(overlay / "bin")])
