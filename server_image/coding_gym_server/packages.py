"""What ``packages=`` means: modules of the standard library, import names, names of distributions, slips of the keyboard.

* A module of the standard library is only authorised.
* The import name of a distribution that is called otherwise stands for the distribution, whether or not it has a version.
* A name that carries nothing else may be corrected: what differs from one well-known name by a single slip (a letter left out
  or doubled, two exchanged, a missing plural) or by its case alone, and is no much used distribution itself.
* What carries a version, an extra or an address is taken literally: to have a distribution that looks like a slip, write
  ``name>=0``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coding_gym_server.package_names import DISTRIBUTIONS, FORMER_NAMES, NAMESPACES, OFTEN_USED, REAL_NAMES

__all__ = ["ResolvedPackages", "canonical_name", "resolve", "split_list"]

_REQUIREMENT = re.compile(
    r"""
    (?P<name> _* [a-z0-9] (?: [a-z0-9._-]* [a-z0-9] )? _* )
    [ ]* (?: \[ (?P<extras> [a-z0-9._, -]* ) \] )?
    [ ]* (?: (?P<versions> {clause} (?: [ ]*,[ ]* {clause} )* ) | @ [ ]* (?P<url> [a-z][a-z0-9+.-]*:// [!-~]+ ) )?
    """.replace("{clause}", r"(?: ===|~=|==|!=|<=|>=|<|> ) [ ]* [a-z0-9] [a-z0-9.*+!_-]*"),
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_BETWEEN_ENTRIES = re.compile(r",(?! *[<>=!~])(?![^\[\]]*\])|\n")
_SHORTEST_TO_CORRECT = 5


@dataclass(frozen=True, kw_only=True)
class ResolvedPackages:
    """What is to be installed and authorised.

    Attributes:
        requirements: What pip is to install, in a form of its own for each meaning, sorted.
        distributions: The names of those.
        modules: What was named by its import name, the standard library's modules included, sorted. What else a distribution
            brings is known when it is installed, see ``installation.modules_of``.
        corrections: What was corrected, in words.
    """

    requirements: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Entry:
    name: str
    extras: tuple[str, ...]
    versions: tuple[str, ...]
    url: str | None

    @property
    def is_bare(self) -> bool:
        return not (self.extras or self.versions or self.url)

    def requirement(self, distribution: str) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{canonical_name(distribution)}{extras}" + (f" @ {self.url}" if self.url else ",".join(self.versions))


def resolve(packages: Iterable[str]) -> ResolvedPackages:
    """Find out what names of packages mean.

    Args:
        packages: Names as pip or ``import`` know them: ``"toolz"``, ``"numpy>=2"``, ``"torch[extra]==2.1"``, ``"cv2"``,
            ``"google.protobuf"``, ``"math"``, ``"name @ https://..."``.

    Raises:
        ValueError: One of them is none of that, such as an option of pip's or a path.

    Example:
        >>> resolve(["math", "yaml"])
        ResolvedPackages(requirements=('pyyaml',), distributions=('pyyaml',), modules=('math', 'yaml'), corrections=())
    """
    requirements, distributions, modules, corrections = set(), set(), set(), []
    for text in packages:
        entry = _parse(text)
        name = _corrected(entry.name) if entry.is_bare else entry.name
        if name != entry.name:
            corrections.append(f"{entry.name!r} was taken for {name!r}")
        if entry.is_bare and _is_standard(name):
            modules.add(name)
            continue
        distribution = entry.name if entry.url else _distribution_of(name, is_bare=entry.is_bare)
        if canonical_name(distribution) != canonical_name(name) and name.replace(".", "").isidentifier():
            modules.add(name)
        requirements.add(entry.requirement(distribution))
        distributions.add(canonical_name(distribution))
    return ResolvedPackages(
        requirements=tuple(sorted(requirements)),
        distributions=tuple(sorted(distributions)),
        modules=tuple(sorted(modules)),
        corrections=tuple(dict.fromkeys(corrections)),
    )


def split_list(text: str) -> list[str]:
    """Return the entries of a list with commas between them, as ``ADDITIONAL_IMPORTS`` has it.

    Example:
        >>> split_list("yaml, numpy>=2,<3, torch[a,b]")
        ['yaml', 'numpy>=2,<3', 'torch[a,b]']
    """
    return [entry for part in _BETWEEN_ENTRIES.split(text) if (entry := part.strip())]


def canonical_name(distribution: str) -> str:
    """Return the one form of a distribution's name that all its spellings share (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def _parse(text: str) -> _Entry:
    match = _REQUIREMENT.fullmatch(text.strip())
    if match is None or (match["name"].strip("_") != match["name"] and not _is_standard(match["name"])):
        message = (
            f"Expected the name of a package, such as 'toolz', 'numpy>=2', 'torch[extra]==2.1', 'cv2' or 'name @ https://...', "
            f"got {text!r}"
        )
        raise ValueError(message)
    extras = {canonical_name(extra.strip()) for extra in (match["extras"] or "").split(",")} - {""}
    versions = {re.sub(" +", "", clause) for clause in (match["versions"] or "").split(",")} - {""}
    return _Entry(match["name"], tuple(sorted(extras)), tuple(sorted(versions)), match["url"])


def _distribution_of(name: str, *, is_bare: bool) -> str:
    """Return the distribution that is meant by a name that may be an import name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if (distribution := DISTRIBUTIONS.get(".".join(parts[:length]))) is not None:
            # ``ruamel`` alone is an import name, ``ruamel.yaml.clib`` is what it says.
            return name if parts[0] in NAMESPACES and length == 1 < len(parts) else distribution
    if is_bare and len(parts) > 1 and parts[0] not in NAMESPACES:
        return parts[0]
    return name


def _corrected(name: str) -> str:
    """Return what is meant by a name that carries nothing else."""
    if name in FORMER_NAMES:
        return FORMER_NAMES[name]
    top, dot, rest = name.partition(".")
    if _is_standard(top) or top in DISTRIBUTIONS or top in NAMESPACES or canonical_name(name) in OFTEN_USED | REAL_NAMES:
        return name
    for known in (*sorted(sys.stdlib_module_names), *DISTRIBUTIONS):
        if known.lower() == top.lower():
            return f"{known}{dot}{rest}"
    meant = {known for known in _well_known() if _is_slip(canonical_name(top), canonical_name(known))}
    return f"{meant.pop()}{dot}{rest}" if len(meant) == 1 else name


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names


def _well_known() -> Iterator[str]:
    yield from (name for name in sys.stdlib_module_names if not name.startswith("_"))
    yield from (name for name in DISTRIBUTIONS if "." not in name)
    yield from OFTEN_USED


def _is_slip(found: str, meant: str) -> bool:
    """Say whether a name is another one, mistyped: after the first letter one letter too few or too many, or two exchanged."""
    return len(found) >= _SHORTEST_TO_CORRECT and (
        found in _without_a_letter(meant)
        or meant in _without_a_letter(found)
        or found in _with_two_exchanged(meant)
        or found + "es" == meant
    )


def _without_a_letter(word: str) -> set[str]:
    return {word[:index] + word[index + 1 :] for index in range(1, len(word)) if word[index].isalpha()}


def _with_two_exchanged(word: str) -> set[str]:
    return {word[:index] + word[index + 1] + word[index] + word[index + 2 :] for index in range(1, len(word) - 1)}
