"""Installed distributions and their top-level modules.

Read from the names and ``RECORD`` files of the metadata directories: ``importlib.metadata`` parses all metadata files, and
importing it alone would add a tenth to the start time of a sandbox.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

__all__ = ["Distribution", "installed", "missing", "modules_of"]

_METADATA = (".dist-info", ".egg-info")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!+]*")


@dataclass(frozen=True)
class Distribution:
    """Installed distribution.

    Attributes:
        name: Its canonical name.
        version: Its version, empty if the metadata is a link to a project directory.
        metadata: Path of its metadata directory or file.
    """

    name: str
    version: str
    metadata: Path

    @property
    def pin(self) -> str | None:
        """Requirement of exactly this version, None if the version is unknown."""
        return f"{self.name}=={self.version}" if _VERSION.fullmatch(self.version) else None

    def modules(self) -> set[str]:
        """Return the names of its top-level modules."""
        with contextlib.suppress(OSError):
            return set(filter(str.isidentifier, (self.metadata / "top_level.txt").read_text().split()))
        with contextlib.suppress(OSError):
            lines = (self.metadata / "RECORD").read_text().splitlines()
            return {name for line in lines if (name := _module_of(line.partition(",")[0].strip('"')))}
        return set()


def installed() -> dict[str, Distribution]:
    """Return all distributions on ``sys.path`` by canonical name."""
    found: dict[str, Distribution] = {}
    for directory in filter(os.path.isabs, sys.path):
        for distribution in _distributions_in(directory):
            found.setdefault(distribution.name, distribution)
    return found


def missing(requirements: Iterable[str]) -> list[str]:
    """Return the requirements that are not known to be satisfied: all except bare names of installed distributions."""
    present = installed()
    return [requirement for requirement in requirements if requirement not in present]


def modules_of(names: Iterable[str]) -> set[str]:
    """Return the top-level modules of distributions, given by canonical name. Missing distributions are ignored."""
    present = installed()
    return {module for name in names if name in present for module in present[name].modules()}


def _distributions_in(directory: str) -> Iterator[Distribution]:
    # Entries of sys.path may be files or missing.
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            stem, extension = os.path.splitext(entry.name)
            if extension in _METADATA:
                name, _, rest = stem.partition("-")
                yield Distribution(canonicalize_name(name), rest.partition("-")[0], Path(entry.path))


def _module_of(path: str) -> str | None:
    """Return the top-level module that a file of a distribution belongs to."""
    top, slash, _ = path.partition("/")
    name, _, extension = top.partition(".")
    if not slash and extension.rpartition(".")[2] not in ("py", "so"):
        return None
    return name if name.isidentifier() and name != "__pycache__" and (not slash or top == name) else None
