"""Text that UTF-8 can encode, and terminals can show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["printable", "without_surrogates"]


def printable(text: str) -> str:
    r"""Return a text with its unprintable characters, such as escapes and lone surrogates, replaced with U+FFFD.

    Example:
        >>> printable("a\x1b[2J\udcff")
        'a\ufffd[2J\ufffd'
    """
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def without_surrogates(value: Any) -> Any:
    r"""Return a value with lone surrogates in its text, which UTF-8 cannot encode, replaced with U+FFFD.

    Text in mappings, lists and tuples is included; tuples become lists.

    Example:
        >>> without_surrogates({"text": "a\ud800"})
        {'text': 'a\ufffd'}
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {without_surrogates(key): without_surrogates(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_surrogates(entry) for entry in value]
    return value
