"""The troubleshooting page has an entry for every error message that users may encounter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import coding_gym
import coding_gym_server
from coding_gym import errors

_ROOT = Path(coding_gym.__file__).parent
_PAGE = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
_ENTRIES = [entry for _, entry in re.findall(r"^(?:#+|\|) (`+)(.+?)\1(?= |$)", _PAGE, re.MULTILINE)]
# Benchmarks: only developers of this package see their messages.
_NOT_FOR_USERS = ("bench",)
_FEWEST_LETTERS = 3
_RAISED = {*errors.__all__, "BadParameter"}


@dataclass(frozen=True)
class Message:
    """Message of an error raised in the code.

    Attributes:
        where: The file and the line.
        parts: The literal parts between interpolated values.
    """

    where: str
    parts: tuple[str, ...]

    def is_told_by(self, entry: str) -> bool:
        """Return whether an entry contains the literal parts in order."""
        end = 0
        for part in self.parts:
            start = entry.find(part, end)
            if start < 0:
                return False
            end = start + len(part)
        return True


@cache
def _messages() -> tuple[Message, ...]:
    files = (path for path in sorted(_ROOT.rglob("*.py")) if path.relative_to(_ROOT).parts[0] not in _NOT_FOR_USERS)
    return tuple(dict.fromkeys(message for path in files for message in _messages_of(path)))


def _messages_of(path: Path) -> Iterator[Message]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assigned = [
            node for node in ast.walk(function) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ]
        for call in ast.walk(function):
            # Some classes in errors.py build their own messages.
            raised = {*_RAISED, "__init__"} if path.name == "errors.py" else _RAISED
            if isinstance(call, ast.Call) and _name(call.func) in raised and call.args:
                for value in _values(call.args[0], assigned):
                    if parts := _literal_parts(value):
                        yield Message(f"{path.relative_to(_ROOT)}:{value.lineno}", parts)


@cache
def _literals() -> tuple[tuple[int, Message], ...]:
    """Return the string literals of the package, the server and its pages that may be messages, with their letter counts."""
    server = Path(coding_gym_server.__file__).parent
    files = [*_ROOT.rglob("*.py"), *server.rglob("*.py")]
    texts = {
        _literal_parts(node)
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr | ast.Constant)
    }
    texts |= {
        (literal,)
        for path in (server / "web").rglob("*.js")
        if "vendor" not in path.parts
        for literal in re.findall(r'"([^"\n]+)"', path.read_text(encoding="utf-8"))
    }
    weighed = ((_letters(" ".join(parts)), Message("", parts)) for parts in texts)
    return tuple((letters, text) for letters, text in weighed if letters > _FEWEST_LETTERS)


def _is_said(entry: str) -> bool:
    """Return whether one literal in the code covers at least half of an entry, excluding placeholders."""
    said = _letters(re.sub(r"\b[A-Z]{2,}\b", "", entry))
    return not said or any(said <= 2 * letters <= 4 * said and text.is_told_by(entry) for letters, text in _literals())


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _values(argument: ast.expr, assigned: list[ast.Assign]) -> list[ast.expr]:
    """Return the values assigned to a variable before its use; other expressions are returned unchanged."""
    if not isinstance(argument, ast.Name):
        return [argument]
    return [node.value for node in assigned if _name(node.targets[0]) == argument.id and node.lineno < argument.lineno]


def _literal_parts(value: ast.expr) -> tuple[str, ...]:
    texts = value.values if isinstance(value, ast.JoinedStr) else [value]
    literals = [text.value for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str)]
    # Log messages contain %-style placeholders.
    parts = [part.strip() for literal in literals for part in re.split("%[sdr]", literal)]
    return tuple(part for part in parts if any(map(str.isalpha, part)))


@pytest.mark.parametrize("name", errors.__all__)
def test_error_class_is_explained(name):
    assert re.search(rf"\b{name}\b", _PAGE), f"docs/troubleshooting.md says nothing about {name}"


@pytest.mark.slow
def test_every_message_has_an_entry():
    missing = [message for message in _messages() if not any(map(message.is_told_by, _ENTRIES))]
    assert not missing, "docs/troubleshooting.md lacks:\n" + "\n".join(
        f"  {message.where}: {' ... '.join(message.parts)}" for message in missing
    )


@pytest.mark.slow
def test_no_entry_is_stale():
    stale = [entry for entry in _ENTRIES if not _is_said(entry)]
    assert not stale, "docs/troubleshooting.md has entries for messages that no code raises:\n  " + "\n  ".join(stale)


@pytest.mark.slow
def test_most_messages_are_found():
    # Otherwise, the tests above would compare nothing.
    assert len(_messages()) > 150


def test_message_without_an_entry_is_noticed():
    message = Message("module.py:1", ("Expected", "to be a unicorn"))
    assert not any(map(message.is_told_by, _ENTRIES))
    assert message.is_told_by("Expected NAME to be a unicorn")
