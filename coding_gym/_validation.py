"""Checks of options, with one wording for their errors."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from coding_gym.errors import ConfigurationError
from coding_gym_server.protocol import backends

__all__ = [
    "CLOSED_ENVIRONMENT",
    "check_backend",
    "check_choice",
    "check_count",
    "check_mapping",
    "check_names",
    "check_one_of",
    "check_seconds",
    "hint",
    "parameter_names",
]

_Choice = TypeVar("_Choice", bound=StrEnum)

CLOSED_ENVIRONMENT = "The environment is closed. Make a new one."
"""Message about the use of a closed environment."""

_SHORTEST_ABBREVIATION = 3


def hint(found: object, known: Iterable[str]) -> str:
    """Return `` (did you mean NAME?)`` for a misspelled name, empty if nothing is similar.

    Example:
        >>> hint("step_timout", ["step_timeout", "mem"]), hint("memory", ["step_timeout", "mem"]), hint("x", ["mem"])
        (" (did you mean 'step_timeout'?)", " (did you mean 'mem'?)", '')
    """
    if not isinstance(found, str):
        return ""
    name = found.strip().casefold().replace("-", "_")
    names = {str(entry).casefold().replace("-", "_"): str(entry) for entry in known}
    related = [entry for entry in names if _is_abbreviation(name, entry)]
    similar = difflib.get_close_matches(name, related, n=1, cutoff=0) or difflib.get_close_matches(name, names, n=1)
    return f" (did you mean {names[similar[0]]!r}?)" if similar else ""


def _is_abbreviation(name: str, entry: str) -> bool:
    return min(len(name), len(entry)) >= _SHORTEST_ABBREVIATION and (name.startswith(entry) or entry.startswith(name))


def check_names(found: Iterable[Any], known: Iterable[str], kind: str = "option") -> None:
    """Check that all names are known.

    Args:
        found: The names.
        known: The valid ones.
        kind: Noun for a name.

    Raises:
        ConfigurationError: If one is not; the message has suggestions and all valid names.
    """
    valid = sorted(known)
    unknown = [name for name in found if name not in valid]
    if unknown:
        described = ", ".join(f"{name!r}{hint(name, valid)}" for name in unknown)
        message = f"Unknown {kind}{'s' if len(unknown) > 1 else ''} {described}. Valid {kind}s: {', '.join(valid)}"
        raise ConfigurationError(message)


def check_mapping(name: str, value: Any) -> None:
    """Check that ``value`` is a mapping or None.

    Raises:
        ConfigurationError: If it is neither.
    """
    if value is not None and not isinstance(value, Mapping):
        message = f"Expected {name}= to be a dict or None, got {value!r:.200}"
        raise ConfigurationError(message)


def parameter_names(function: Callable[..., Any], base: type | None = None) -> set[str]:
    """Return the names of the arguments that a function, or the constructor of a class, accepts by name.

    Args:
        function: The function or class.
        base: For a class, the base class whose constructor is the last to receive ``**options`` from derived ones.
    """
    functions = [function]
    if isinstance(function, type) and base is not None:
        classes = function.__mro__[: function.__mro__.index(base) + 1]
        functions = [kind.__dict__["__init__"] for kind in classes if "__init__" in kind.__dict__]
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = (parameter for each in functions for parameter in inspect.signature(each).parameters.values())
    return {parameter.name for parameter in parameters if parameter.kind in named} - {"self"}


def check_count(name: str, value: Any, smallest: int) -> int:
    """Return ``value`` if it is an integer of at least ``smallest``.

    Raises:
        ConfigurationError: If it is not.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        message = f"Expected {name}= to be an integer of at least {smallest}, got {value!r}"
        raise ConfigurationError(message)
    return value


def check_seconds(name: str, value: Any) -> float:
    """Return ``value`` if it is a positive, finite number.

    Raises:
        ConfigurationError: If it is not.
    """
    if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        message = f"Expected {name}= to be a positive number of seconds, got {value!r}"
        raise ConfigurationError(message)
    return float(value)


def check_one_of(name: str, value: Any, choices: Iterable[str], *, optional: bool = False) -> None:
    """Check that ``value`` is one of ``choices``.

    Args:
        name: Name of the option.
        value: Its value.
        choices: The valid values.
        optional: Whether None is valid, too.

    Raises:
        ConfigurationError: If it is not.
    """
    valid = tuple(choices)
    if not (value is None and optional) and not (isinstance(value, str) and value in valid):
        expected = f"{', '.join(valid)}{' or None' if optional else ''}"
        message = f"Expected {name}= to be one of {expected}, got {value!r}{hint(value, valid)}"
        raise ConfigurationError(message)


def check_backend(name: Any, option: str = "backend") -> None:
    """Check that a name can be the name of a backend; whether it is installed, only the sandbox knows.

    Args:
        name: The name.
        option: The option that it was passed as.

    Raises:
        ConfigurationError: If it cannot.
    """
    try:
        backends.check_backend(name)
    except (TypeError, ValueError, AttributeError) as error:
        message = f"{option}=: {error}{hint(name, backends.known_backends())}"
        raise ConfigurationError(message) from None


def check_choice(name: str, value: Any, choices: type[_Choice]) -> _Choice:
    """Return the member of ``choices`` with this value.

    Raises:
        ConfigurationError: If there is none.
    """
    check_one_of(name, value, choices)
    return choices(value)
