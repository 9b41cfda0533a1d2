"""Plug-ins: packages that add to this one by entry points, and what they share with it.

The entry points of a plug-in, in its ``pyproject.toml``, are its only connection to this package, which imports none of them
before it needs what they name:

==========================  =====================  =====================================================================
group                       name                   object
==========================  =====================  =====================================================================
``coding_gym.commands``     of the command         Typer function, or ``Typer`` of sub-commands, of ``coding-gym NAME``
``coding_gym.backends``     of the backend         subclass of ``ExecutorBackend``, for ``backend=``; the sandbox needs the
                                                   package, too
``coding_gym.providers``    of the provider        function that returns the ``Sandbox`` of a ``SandboxConfig``, for
                                                   ``provider=``
``coding_gym.pools``        of the pool            class or function that accepts fields of ``SandboxConfig`` and returns a
                                                   ``SandboxPool``, for ``--pool``
``coding_gym.suites``       of the suite           function of the text after ``NAME:`` and of options, that returns a
                                                   ``TaskSuite`` or tasks, for ``load_suite``
``coding_gym.reward_terms`` of the term            subclass of ``RewardTerm``, or function of a ``Step``, for ``RewardSum``
``coding_gym.verifiers``    of the form            function of the text after ``NAME:``, that returns a function of a
                                                   ``Task`` and a submission that returns a reward, for
                                                   ``coding-gym audit --verifier``
``coding_gym.observers``    any                    function without arguments, called if ``CODING_GYM_WATCH`` is set
==========================  =====================  =====================================================================
"""

from __future__ import annotations

import functools
import logging
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from coding_gym._html import Html, caption, clip, colored, document, element, png
from coding_gym._listening import listen
from coding_gym._named import import_named
from coding_gym._optional import import_extra
from coding_gym._text import printable, without_surrogates
from coding_gym._validation import check_count, hint, parameter_names
from coding_gym.errors import ConfigurationError

__all__ = [
    "Html",
    "caption",
    "check_count",
    "clip",
    "colored",
    "document",
    "element",
    "hint",
    "import_extra",
    "import_named",
    "listen",
    "load",
    "load_all",
    "names",
    "parameter_names",
    "png",
    "printable",
    "without_surrogates",
]

_log = logging.getLogger("coding_gym")


def names(kind: str) -> list[str]:
    """Return the names of what plug-ins add, sorted.

    Args:
        kind: What they add: the last part of a group of entry points, such as ``pools``.
    """
    return sorted(_entry_points(kind))


def load(kind: str, name: str) -> Any:
    """Return what a plug-in adds under a name.

    Args:
        kind: What it adds, such as ``pools``.
        name: The name.

    Raises:
        ConfigurationError: If no plug-in adds that name, or it cannot be imported.
    """
    found = _entry_points(kind).get(name)
    if found is None:
        known = names(kind)
        installed = f"expected one of {', '.join(known)}" if known else "no installed package adds one"
        message = f"There is no {name!r} among the {kind}{hint(name, known)}: {installed}"
        raise ConfigurationError(message)
    try:
        return found.load()
    except (ImportError, AttributeError) as error:
        message = f"{name!r} of the {kind} is {found.value}, which cannot be imported: {error}"
        raise ConfigurationError(message) from error


def load_all(kind: str) -> dict[str, Any]:
    """Return what all plug-ins add, by name. What cannot be imported is logged and left out.

    Args:
        kind: What they add, such as ``commands``.
    """
    loaded = {}
    for name in names(kind):
        try:
            loaded[name] = load(kind, name)
        except ConfigurationError as error:
            _log.warning("%s", error)
    return loaded


@functools.cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"coding_gym.{kind}")}
