"""Checks of options, with one wording for their errors."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from coding_gym.errors import ConfigurationError
from coding_gym_server.worker.backends import registry as backends

__all__ = ["check_backend", "check_choice", "check_count", "check_seconds"]

_Choice = TypeVar("_Choice", bound=StrEnum)


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
        message = f"{option}=: {error}"
        raise ConfigurationError(message) from None


def check_choice(name: str, value: Any, choices: type[_Choice]) -> _Choice:
    """Return the member of ``choices`` with this value.

    Raises:
        ConfigurationError: If there is none.
    """
    try:
        return choices(value)
    except ValueError:
        message = f"Expected {name}= to be one of {', '.join(choices)}, got {value!r}"
        raise ConfigurationError(message) from None
