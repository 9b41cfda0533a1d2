"""Runtime support for rewritten patterns, with the semantics of :pep:`634` and access through the guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coding_gym_server.worker.backends.restricted.proxies import Opaque

__all__ = ["MatchRuntime"]

_MISSING = object()
_SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)

_Parts = tuple[Any, ...] | None


class MatchRuntime:
    """Destructures subjects: each method returns the values for the sub-patterns, or None if the subject does not match.

    Args:
        read: Guarded ``getattr``.
        admit: Guard that admits an item.
    """

    def __init__(self, read: Callable[..., Any], admit: Callable[[Any], Any]) -> None:
        self._read = read
        self._admit = admit

    def match_class(self, subject: Any, cls: Any, positional: int, keywords: tuple[str, ...]) -> _Parts:
        """Return the attributes of an instance, those of ``cls.__match_args__`` first.

        Raises:
            TypeError: If ``cls`` is not a class, or accepts fewer positional sub-patterns.
        """
        if not isinstance(cls, type | Opaque):
            message = "called match pattern must be a class"
            raise TypeError(message)
        if not isinstance(subject, cls):  # type: ignore[arg-type]
            return None
        arguments = getattr(cls, "__match_args__", None)
        is_itself = arguments is None and isinstance(cls, type) and issubclass(cls, _SELF_MATCHING)
        arguments = () if arguments is None else arguments
        accepted = 1 if is_itself else len(arguments)
        if positional > accepted:
            plural = "" if accepted == 1 else "s"
            message = f"{cls.__name__}() accepts {accepted} positional sub-pattern{plural} ({positional} given)"
            raise TypeError(message)
        values = [subject] if is_itself and positional else []
        for name in (*arguments[:positional], *keywords):
            value = self._read(subject, name, _MISSING)
            if value is _MISSING:
                return None
            values.append(value)
        return tuple(values)

    def match_sequence(self, subject: Any, count: int, star: int | None) -> _Parts:
        """Return the items of a sequence.

        Args:
            subject: The object to match.
            count: The number of sub-patterns.
            star: The index of the starred sub-pattern, which gets a list of the remaining items, or None.
        """
        if not isinstance(subject, Sequence) or isinstance(subject, str | bytes | bytearray):
            return None
        if len(subject) != count if star is None else len(subject) < count - 1:
            return None
        items = [self._admit(item) for item in subject]
        if star is None:
            return tuple(items)
        end = len(items) - (count - 1 - star)
        return (*items[:star], items[star:end], *items[end:])

    def match_mapping(self, subject: Any, keys: tuple[Any, ...], has_rest: bool) -> _Parts:
        """Return the values of the keys and, if ``has_rest``, a dict of the remaining items."""
        if not isinstance(subject, Mapping):
            return None
        values = [subject.get(key, _MISSING) for key in keys]
        if any(value is _MISSING for value in values):
            return None
        rest = [{key: value for key, value in subject.items() if key not in keys}] if has_rest else []
        return (*map(self._admit, values), *rest)
