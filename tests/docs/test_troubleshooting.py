"""The troubleshooting page explains every class of errors, and quotes messages that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import coding_gym
import coding_gym_server
from coding_gym import errors

_ROOT = Path(__file__).parents[2]
_PAGE = (_ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
_PACKAGES = (Path(coding_gym.__file__).parent, Path(coding_gym_server.__file__).parent, *_ROOT.glob("plugins/*/coding_gym_*"))
_ROW = re.compile(r"^\| (`.+?`) \| .*", re.MULTILINE)
_CODE = re.compile(r"(`+)(.+?)\1")
_PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|\.\.\.")
# Reasons that the operating system gives.
_NOT_OURS = {"No such file or directory", "Permission denied", "Connection refused"}


def _quoted(page: str) -> list[str]:
    """Return the messages and names in the first column of tables."""
    return [text for cell in _ROW.findall(page) for _, text in _CODE.findall(cell) if text not in _NOT_OURS]


def _source() -> str:
    """Return the code of the client, the server and its pages, with the literals of a message joined."""
    files = [
        file
        for package in _PACKAGES
        for suffix in ("*.py", "*.js")
        for file in package.rglob(suffix)
        if "vendor" not in file.parts
    ]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r"[\"']\s*\n\s*f?[\"']", "", text)


def _stale(page: str) -> list[str]:
    source = _source()
    return [text for text in _quoted(page) if not all(part in source for part in _PLACEHOLDER.split(text))]


@pytest.mark.parametrize("name", errors.__all__)
def test_error_class_is_explained(name):
    assert re.search(rf"\b{name}\b", _PAGE), f"docs/troubleshooting.md says nothing about {name}"


def test_quoted_messages_exist():
    assert len(_quoted(_PAGE)) > 50
    assert _stale(_PAGE) == []


def test_message_that_no_code_has_is_noticed():
    messages = ("The connection to ADDRESS broke: REASON", "The connection to ADDRESS tore: REASON")
    assert _stale("".join(f"| `{message}` | cause |\n" for message in messages)) == [messages[1]]
