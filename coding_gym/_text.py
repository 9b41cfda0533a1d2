"""Text that UTF-8 can encode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["without_surrogates"]


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
