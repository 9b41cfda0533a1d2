"""Suggestions for package names that look like misspellings of well-known names."""

from __future__ import annotations

import functools
import sys
from collections import defaultdict
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from coding_gym_server.packages.names import ALIASES, AMBIGUOUS_ALIASES, FORMER_NAMES, LOOKALIKES, NAMESPACES, POPULAR

__all__ = ["suggest"]

_MIN_LENGTH = 5
"""Minimum length of a suspicious name: many shorter names differ from others by a single typo."""


def suggest(name: str) -> tuple[str, ...]:
    """Return the suggestions for a suspicious name, sorted; empty if the name is not suspicious.

    A name is suspicious if it is the former name of a standard library module, or differs from a well-known name only by its
    case or by a single typo: one letter after the first is missing or added, two adjacent letters are swapped, or a plural
    ending is missing.

    Args:
        name: Name without a version, an extra or a URL.

    Example:
        >>> suggest("reqeusts"), suggest("numpy"), suggest("Tkinter")
        (('requests',), (), ('tkinter',))
    """
    if name in FORMER_NAMES:
        return (FORMER_NAMES[name],)
    top, dot, rest = name.partition(".")
    if _is_known(top) or canonicalize_name(name) in POPULAR | LOOKALIKES:
        return ()
    same = sorted({known for known in (*sys.stdlib_module_names, *ALIASES, *AMBIGUOUS_ALIASES) if known.lower() == top.lower()})
    found = same[:1] or sorted(_similar_names(canonicalize_name(top)))
    return tuple(f"{known}{dot}{rest}" for known in found)


def _is_known(top: str) -> bool:
    return top in sys.stdlib_module_names or top in ALIASES or top in AMBIGUOUS_ALIASES or top in NAMESPACES


def _well_known() -> Iterator[str]:
    yield from (name for name in sys.stdlib_module_names if not name.startswith("_"))
    yield from (name for name in (*ALIASES, *AMBIGUOUS_ALIASES) if "." not in name)
    yield from POPULAR


def _similar_names(name: str) -> set[str]:
    """Return the well-known names that differ from a canonical name by a single typo."""
    if len(name) < _MIN_LENGTH:
        return set()
    typos, names = _index()
    return typos.get(name, set()).union(*(names.get(shorter, ()) for shorter in _with_one_letter_removed(name)))


@functools.cache
def _index() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the well-known names by misspelling (except added letters), and by canonical name."""
    typos: defaultdict[str, set[str]] = defaultdict(set)
    names: defaultdict[str, set[str]] = defaultdict(set)
    for known in _well_known():
        canonical = canonicalize_name(known)
        names[canonical].add(known)
        for typo in _with_one_letter_removed(canonical) | _with_two_letters_swapped(canonical):
            typos[typo].add(known)
        if canonical.endswith("es"):
            typos[canonical.removesuffix("es")].add(known)
    return dict(typos), dict(names)


def _with_one_letter_removed(word: str) -> set[str]:
    return {word[:index] + word[index + 1 :] for index in range(1, len(word)) if word[index].isalpha()}


def _with_two_letters_swapped(word: str) -> set[str]:
    return {word[:index] + word[index + 1] + word[index] + word[index + 2 :] for index in range(1, len(word) - 1)}
