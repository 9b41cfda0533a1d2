"""A griffe extension: what the docstrings of this package need to be read as Google's style."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^(?P<indent>\s*)Example:$", re.MULTILINE)
_LITERAL_BLOCK = re.compile(r"^::\n", re.MULTILINE)
_DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Reads examples as doctests: in sections ``Example:``, as the style guide names them, and outside of sections."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is None:
            return
        text = _EXAMPLE.sub(r"\g<indent>Examples:", obj.docstring.value)
        text = _LITERAL_BLOCK.sub("", text)
        obj.docstring.value = _DOCTEST.sub(lambda doctest: f"```pycon\n{doctest[0]}\n```", text)
