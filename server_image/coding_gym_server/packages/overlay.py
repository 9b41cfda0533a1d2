"""Overlay: a directory of additional packages in the layout of ``pip install --prefix``."""

from __future__ import annotations

import os
import site
import sysconfig
from pathlib import Path

__all__ = ["python_path", "use"]


def python_path(overlay: Path) -> list[str]:
    """Return the package directories of an overlay for this interpreter."""
    base = {"base": str(overlay), "platbase": str(overlay)}
    paths = sysconfig.get_paths(sysconfig.get_preferred_scheme("prefix"), vars=base)
    return list(dict.fromkeys((paths["purelib"], paths["platlib"])))


def use(overlay: Path) -> None:
    """Add an overlay to the module and program search paths of this process and its children, after the existing ones."""
    directories = python_path(overlay)
    for directory in directories:
        site.addsitedir(directory)
    os.environ["PYTHONPATH"] = os.pathsep.join(directories)
    os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], str(overlay / "bin")])
