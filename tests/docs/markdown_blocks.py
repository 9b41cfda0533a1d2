"""Finds the code blocks of a Markdown page, with their directives in HTML comments."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Block", "find_blocks"]

# Fences may have any indentation, because they occur in lists, tabs and admonitions.
_FENCE_OR_COMMENT = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[\w+-]*)[^\n`]*\n(?P<text>.*?)^ *(?P=fence)[`~]*[ ]*$"
    r"|<!--(?P<comment>.*?)-->",
    re.MULTILINE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"(?P<name>not run|needs|file|server)(?:: *(?P<value>.*))?", re.DOTALL)
_HIDDEN = re.compile(r" *hidden *\n", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        page: The file.
        line: The number of its first line of code.
        language: The language after the opening fence, in lower case; empty for plain text.
        text: The code, without the indentation of its fence.
        directives: The directives directly above it, by name.
    """

    page: Path
    line: int
    language: str
    text: str
    directives: dict[str, str] = field(default_factory=dict)


def find_blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in order; hidden blocks are Python."""
    source = page.read_text(encoding="utf-8")
    directives: dict[str, str] = {}
    end = 0
    for match in _FENCE_OR_COMMENT.finditer(source):
        if source[end : match.start()].strip():
            directives = {}
        end = match.end()
        comment = match["comment"]
        if comment is None:
            text = textwrap.dedent(match["text"])
            yield Block(page, _line(source, match.start("text")), match["language"].lower(), text, directives)
            directives = {}
        elif hidden := _HIDDEN.match(comment):
            start = match.start("comment") + hidden.end()
            yield Block(page, _line(source, start), "python", textwrap.dedent(comment[hidden.end() :]), directives)
            directives = {}
        elif directive := _DIRECTIVE.fullmatch(comment.strip()):
            directives = {**directives, directive["name"]: " ".join((directive["value"] or "").split())}


def _line(source: str, position: int) -> int:
    return source.count("\n", 0, position) + 1
