"""Package name tables from ``names.toml``, which documents each of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

__all__ = ["ALIASES", "AMBIGUOUS_ALIASES", "FORMER_NAMES", "LOOKALIKES", "NAMESPACES", "POPULAR"]

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

ALIASES: dict[str, str] = _TABLES["aliases"]
AMBIGUOUS_ALIASES: dict[str, str] = _TABLES["ambiguous"]
FORMER_NAMES: dict[str, str] = _TABLES["former"]
NAMESPACES = frozenset[str](_TABLES["distributions"]["namespaces"])
POPULAR = frozenset[str](_TABLES["distributions"]["popular"])
LOOKALIKES = frozenset[str](_TABLES["distributions"]["lookalikes"])
