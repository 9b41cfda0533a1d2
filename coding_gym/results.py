"""Rich results: a value or a display in all the formats that it has."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coding_gym_server.protocol import RichResult

__all__ = ["Result"]

_BINARY = frozenset({"image/png", "image/jpeg", "image/gif", "application/pdf"})


@dataclass(frozen=True)
class Result:
    """A value or a display.

    Attributes:
        data: MIME type to content: ``bytes`` of images and PDFs, documents of JSON types, else ``str``. Beside the usual types,
            ``e2b/data`` is a pandas ``DataFrame`` as column to list, and ``e2b/chart`` what a matplotlib figure shows.
        is_value: Whether it is the value of the cell, rather than something that it displayed.

    Example:
        >>> Result({"text/plain": "2"}, is_value=True).text
        '2'
    """

    data: Mapping[str, Any]
    is_value: bool

    @classmethod
    def of(cls, result: RichResult) -> Result:
        """Return a result as it comes from the server."""
        data: dict[str, Any] = {mime: _decode(mime, text) for mime, text in result.texts.items()}
        return cls({**data, **{mime: json.loads(text) for mime, text in result.documents.items()}}, result.is_value)

    @classmethod
    def of_formats(cls, formats: Mapping[str, Any], *, is_value: bool) -> Result:
        """Return a result whose binary formats are in base64."""
        return cls({mime: _decode(mime, content) for mime, content in formats.items()}, is_value)

    @property
    def text(self) -> str | None:
        """Plain text."""
        return self.data.get("text/plain")

    @property
    def html(self) -> str | None:
        """HTML."""
        return self.data.get("text/html")

    @property
    def png(self) -> bytes | None:
        """A picture."""
        return self.data.get("image/png")

    @property
    def json(self) -> Any:
        """A JSON document."""
        return self.data.get("application/json")

    @property
    def table(self) -> dict[str, list[Any]] | None:
        """A pandas ``DataFrame``, column to list."""
        return self.data.get("e2b/data")

    @property
    def chart(self) -> dict[str, Any] | None:
        """What a matplotlib figure shows, as the package ``e2b_charts`` describes it."""
        return self.data.get("e2b/chart")


def _decode(mime: str, content: Any) -> Any:
    if mime not in _BINARY or not isinstance(content, str):
        return content
    try:
        return base64.b64decode(content)
    except ValueError:
        # Code that displays a bundle of its own making may put anything into it.
        return content
