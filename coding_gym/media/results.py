"""Rich results: a value or display output in all its formats."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coding_gym.media.representation import result_bundle
from coding_gym_server.protocol import RichResult

__all__ = ["Result"]

_BINARY = frozenset({"image/png", "image/jpeg", "image/gif", "application/pdf"})


@dataclass(frozen=True)
class Result:
    """Value of a cell, or display output.

    Attributes:
        data: Content by MIME type: ``bytes`` for images and PDFs, decoded documents for JSON types, otherwise ``str``. In
            addition to standard types, ``e2b/data`` is a pandas ``DataFrame`` as a mapping of columns to lists, and
            ``e2b/chart`` the data of a matplotlib figure.
        is_value: Whether it is the value of the cell rather than display output.

    Example:
        >>> Result({"text/plain": "2"}, is_value=True).text
        '2'
    """

    data: Mapping[str, Any]
    is_value: bool

    @classmethod
    def of(cls, result: RichResult) -> Result:
        """Decode a result from the server."""
        data: dict[str, Any] = {mime: _decode(mime, text) for mime, text in result.texts.items()}
        return cls({**data, **{mime: json.loads(text) for mime, text in result.documents.items()}}, result.is_value)

    @classmethod
    def of_formats(cls, formats: Mapping[str, Any], *, is_value: bool) -> Result:
        """Return the result for a mapping of formats in which binary content is base64-encoded."""
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
        """PNG image."""
        return self.data.get("image/png")

    @property
    def json(self) -> Any:
        """JSON document."""
        return self.data.get("application/json")

    @property
    def table(self) -> dict[str, list[Any]] | None:
        """Pandas ``DataFrame``, as a mapping of columns to lists."""
        return self.data.get("e2b/data")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return result_bundle(self.data)

    @property
    def chart(self) -> dict[str, Any] | None:
        """Data of a matplotlib figure, in the format of the package ``e2b_charts``."""
        return self.data.get("e2b/chart")


def _decode(mime: str, content: Any) -> Any:
    if mime not in _BINARY or not isinstance(content, str):
        return content
    try:
        return base64.b64decode(content)
    except ValueError:
        # Code may display a MIME bundle with arbitrary contents.
        return content
