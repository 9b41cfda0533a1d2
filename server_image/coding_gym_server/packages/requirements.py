"""Resolution of ``packages=``: requirements, import names, and standard library modules.

Only the named distributions are installed, with one exception, which is logged: exact import names of well-known distributions
(``cv2``). A suspicious or ambiguous name is an error with suggestions. A name with a version, an extra or a URL is taken
literally, so ``name>=0`` installs a distribution with a suspicious name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidName, canonicalize_name

from coding_gym_server.packages.names import ALIASES, AMBIGUOUS_ALIASES, NAMESPACES, POPULAR
from coding_gym_server.packages.typos import suggest

__all__ = ["ResolvedPackages", "resolve", "split_list"]

_ENTRY_SEPARATOR = re.compile(r",(?! *[<>=!~])(?![^\[\]]*\])|\n")


@dataclass(frozen=True, kw_only=True)
class ResolvedPackages:
    """Requirements to install and modules to authorize.

    Attributes:
        requirements: Normalized requirements for pip, sorted.
        distributions: Their canonical distribution names, sorted.
        modules: Modules given by import name, including standard library modules, sorted. Other modules of a distribution are
            known only when it is installed, see ``distributions.modules_of``.
        aliases: One sentence for each import name that differs from the name of its distribution.
        standard: Standard library modules, for which nothing is installed.
    """

    requirements: tuple[str, ...] = ()
    distributions: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    standard: tuple[str, ...] = ()


def resolve(packages: Iterable[str]) -> ResolvedPackages:
    """Resolve package names to requirements and modules, without network access.

    Args:
        packages: Requirements in pip's syntax, or import names: ``"toolz"``, ``"numpy>=2"``, ``"torch[extra]==2.1"``,
            ``"toolz; python_version < '3.13'"``, ``"name @ https://..."``, ``"cv2"``, ``"google.protobuf"``, ``"math"``.

    Raises:
        ValueError: If an entry is not a requirement, such as a pip option or a path, or its name is suspicious or ambiguous.

    Example:
        >>> resolve(["math", "yaml"]).requirements, resolve(["math", "yaml"]).modules
        (('pyyaml',), ('math', 'yaml'))
    """
    resolution = _Resolution()
    for text in packages:
        resolution.add(text)
    return resolution.result()


def split_list(text: str) -> list[str]:
    """Split a comma-separated list of requirements, such as ``ADDITIONAL_IMPORTS``.

    Example:
        >>> split_list("yaml, numpy>=2,<3, torch[a,b]")
        ['yaml', 'numpy>=2,<3', 'torch[a,b]']
    """
    return [entry for part in _ENTRY_SEPARATOR.split(text) if (entry := part.strip())]


class _Resolution:
    """Resolution of a list of entries."""

    def __init__(self) -> None:
        self._requirements: set[str] = set()
        self._distributions: set[str] = set()
        self._modules: set[str] = set()
        self._aliases: set[str] = set()
        self._standard: set[str] = set()

    def add(self, text: str) -> None:
        stripped = text.strip()
        if _is_standard(stripped):
            # Names such as ``__future__`` are not valid requirements.
            self._add_standard(stripped)
            return
        requirement = _parse(text)
        if requirement.extras or requirement.specifier or requirement.url:
            self._add_requirement(requirement, ALIASES.get(requirement.name) if requirement.url is None else None)
            return
        _check_spelling(requirement.name)
        self._add_requirement(requirement, _distribution_of(requirement.name))

    def result(self) -> ResolvedPackages:
        return ResolvedPackages(
            requirements=tuple(sorted(self._requirements)),
            distributions=tuple(sorted(self._distributions)),
            modules=tuple(sorted(self._modules)),
            aliases=tuple(sorted(self._aliases)),
            standard=tuple(sorted(self._standard)),
        )

    def _add_standard(self, name: str) -> None:
        self._modules.add(name)
        self._standard.add(name)

    def _add_requirement(self, requirement: Requirement, distribution: str | None) -> None:
        name = requirement.name
        canonical = canonicalize_name(distribution or name)
        if distribution is not None and canonical != canonicalize_name(name):
            self._aliases.add(f"{name!r} stands for the distribution {distribution!r}")
            self._modules.add(name)
        requirement.name = canonical
        requirement.extras = {canonicalize_name(extra) for extra in requirement.extras}
        self._requirements.add(str(requirement))
        self._distributions.add(canonical)


def _parse(text: str) -> Requirement:
    try:
        requirement = Requirement(text.strip())
        canonicalize_name(requirement.name, validate=True)
    except (InvalidRequirement, InvalidName) as error:
        raise ValueError(_syntax_message(text, str(error).partition("\n")[0])) from None
    if requirement.url is not None and not (urlsplit(requirement.url).scheme and "://" in requirement.url):
        raise ValueError(_syntax_message(text, "a URL must start with a scheme such as https://"))
    if not text.isascii() or not text.isprintable():
        raise ValueError(_syntax_message(text, "it contains characters other than printable ASCII"))
    return requirement


def _distribution_of(name: str) -> str | None:
    """Return the distribution for a bare import name, None if the name is that of a distribution."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        distribution = ALIASES.get(prefix) or AMBIGUOUS_ALIASES.get(prefix)
        if distribution is not None:
            # ``ruamel`` alone is an import name, ``ruamel.yaml.clib`` is a distribution.
            return None if parts[0] in NAMESPACES and length == 1 < len(parts) else distribution
    # A module of a popular distribution; other dotted names are names of distributions.
    return parts[0] if len(parts) > 1 and canonicalize_name(parts[0]) in POPULAR else None


def _is_standard(name: str) -> bool:
    return name.partition(".")[0] in sys.stdlib_module_names and all(part.isidentifier() for part in name.split("."))


def _syntax_message(text: str, reason: str) -> str:
    return (
        "Expected the name of a package, such as 'toolz', 'numpy>=2', 'torch[extra]==2.1', 'cv2' or 'name @ https://...', "
        f"got {text!r}: {reason}"
    )


def _check_spelling(name: str) -> None:
    """Check a bare name.

    Raises:
        ValueError: If it is suspicious or ambiguous.
    """
    top, _, _ = name.partition(".")
    if top in AMBIGUOUS_ALIASES and canonicalize_name(name) not in POPULAR:
        distribution = AMBIGUOUS_ALIASES[top]
        message = (
            f"{name!r} is ambiguous: {top!r} is the import name of the distribution {distribution!r} and the name of another "
            f"distribution. Pass {distribution!r} or '{top}>=0'"
        )
        raise ValueError(message)
    if suggestions := suggest(name):
        raise ValueError(_typo_message(name, suggestions))


def _typo_message(name: str, suggestions: Iterable[str]) -> str:
    alternatives = " or ".join(
        f"{found!r} of the standard library" if _is_standard(found) else repr(AMBIGUOUS_ALIASES.get(found, found))
        for found in suggestions
    )
    return f"{name!r} looks like a misspelling; did you mean {alternatives}? Pass '{name}>=0' to use this name"
