"""The shell commands of the README and of the documentation can be copied: nothing in them is left to complete.

These are the ``console`` blocks, and code in running text that begins with the name of a program. Blocks that are not run by
``test_code_blocks.py`` are checked, too: commands, options, extras and files that they name exist.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from click import UsageError

from coding_gym.cli.main import app
from tests.docs.console_blocks import commands_of
from tests.docs.markdown_blocks import find_blocks

_ROOT = Path(__file__).parents[2]
_FILES = [
    _ROOT / "README.md",
    _ROOT / "CONTRIBUTING.md",
    _ROOT / "SECURITY.md",
    *sorted((_ROOT / "docs").rglob("*.md")),
    *sorted(_ROOT.glob("plugins/*/docs/**/*.md")),
]
_PROGRAMS = ("apt", "bash", "coding-gym", "curl", "docker", "git", "nox", "pip", "pytest", "python")
_INLINE = re.compile(r"(?<!`)`((?:" + "|".join(_PROGRAMS) + r") [^`\n]+)`(?!`)")
_FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1[`~]*[ ]*$", re.MULTILINE | re.DOTALL)
# ``...``, ``<name>``, ``{name}`` and words in capitals, except variables, files and capabilities.
_UNFINISHED = re.compile(r"\.\.\.|…|<[\w -]+>|(?<!\$)\{\w+\}|(?<![\w$])(?!ALL|SET[UG]ID|X11)[A-Z][A-Z_]{2,}(?![\w=.])")
_EXTRAS = re.compile(r"(?:coding-gym|\.)\[([\w, -]+)\]")
# Reads commands, and prints the numbers of those that are invalid. A valid one is parsed to its end, and left before it begins,
# within two constructs, because a stray "}" or "fi" ends one of them early.
_PARSE = r"""
number=0
while IFS= read -r -d '' command; do
    (eval "{ exit 3"$'\n'"$command"$'\n'"}") 2>/dev/null
    code=$?
    (eval "if exit 3; then"$'\n'"$command"$'\n'"fi") 2>/dev/null
    [ $code$? = 33 ] || echo $number
    number=$((number + 1))
done
"""


class Command(NamedTuple):
    page: str
    text: str


def _commands(page: Path) -> Iterator[Command]:
    name = str(page.relative_to(_ROOT))
    for block in find_blocks(page):
        if block.language in ("console", "bash", "sh", "shell"):
            yield from (Command(f"{name}:{block.line}", command) for command, _ in commands_of(block.text))
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    yield from (Command(name, match.replace("\\|", "|")) for match in _INLINE.findall(prose))


_ALL = [command for page in _FILES for command in _commands(page)]


def _words(command: Command) -> list[list[str]]:
    """Return the words of each simple command, after variables that are set for it."""
    lexer = shlex.shlex(command.text.replace("\\\n", " "), posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            found.append([])
        elif found[-1] or not re.fullmatch(r"[A-Z_]+=.*", word):
            found[-1].append(word)
    return [words for words in found if words]


def _without_quoted(text: str) -> str:
    # Programs and messages in quotes may contain anything.
    return re.sub(r"'[^']*'", "''", text)


def _invalid(commands: list[str]) -> list[str]:
    """Return the commands that are not valid shell, without running any."""
    parsed = subprocess.run(
        ["bash", "-c", _PARSE],
        input="".join(f"{command}\0" for command in commands),
        capture_output=True,
        text=True,
        check=True,
    )
    return [commands[int(number)] for number in parsed.stdout.split()]


def test_commands_are_found():
    assert len(_ALL) > 60
    assert {command.page.partition(":")[0] for command in _ALL} > {"README.md", "docs/commands.md", "docs/troubleshooting.md"}


def test_nothing_is_left_to_complete():
    assert [command for command in _ALL if _UNFINISHED.search(_without_quoted(command.text))] == []


def test_commands_are_valid_shell():
    assert _invalid([command.text for command in _ALL]) == []


def test_invalid_commands_are_noticed(tmp_path):
    valid = [
        f"touch {tmp_path}/ran",
        'curl -d \'{"code": "1"}\' x | grep y',
        "docker run \\\n    --rm x",
        "for x in 1; do\n echo $x\ndone",
    ]
    invalid = ["echo 'a", "if true", "a | | b", "echo $(a", "}", "fi"]
    assert _invalid([*invalid, *valid, *invalid]) == [*invalid, *invalid]
    assert list(tmp_path.iterdir()) == []


def test_our_commands_and_options_exist():
    group: Any = typer.main.get_command(app)
    wrong = []
    for command in _ALL:
        for name, *arguments in _words(command):
            if name != "coding-gym" or not arguments:
                continue
            known = group
            while hasattr(known, "resolve_command") and arguments and not arguments[0].startswith("-"):
                try:
                    _, known, arguments = known.resolve_command(typer.Context(known), arguments)
                except UsageError:
                    known = None
            names = {"--help"}.union(*(option.opts for option in known.params)) if known is not None else set()
            if known is None or any(word.startswith("-") and word != "-" and word not in names for word in arguments):
                wrong.append(command)
    assert wrong == []


def test_extras_exist():
    known = set(tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    named = {extra.strip() for command in _ALL for extras in _EXTRAS.findall(command.text) for extra in extras.split(",")}
    assert named
    assert named <= known


def test_files_of_the_checkout_exist():
    words = {word for command in _ALL for words in _words(command) for word in words}
    named = {word for word in words if word.startswith(("examples/", "tests/"))}
    assert named
    assert {name for name in named if not (_ROOT / name).exists()} == set()


def test_images_are_ours_or_public():
    # Names that a reader would have had to give to an image before.
    images = re.compile(r"docker run .*(\"\$\(coding-gym build-image --quiet\)\"|debian:[\w-]+|hello-world)", re.DOTALL)
    runs = [command for command in _ALL if re.match(r"docker run (?!--rm$)", command.text)]
    assert [command for command in runs if not images.match(command.text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "docker run IMAGE",
        "docker run -e CODING_GYM_TOKEN=... sandbox",
        "pip install <name>",
        "coding-gym run {file}",
        "curl -H 'x' http://HOST:8000",
        "docker build --tag NAME .",
    ],
)
def test_unfinished_command_is_noticed(text):
    assert _UNFINISHED.search(_without_quoted(text))


@pytest.mark.parametrize(
    "text",
    [
        "coding-gym build-image --build-arg WITH_OPENGL=1",
        "docker run -e ADDITIONAL_IMPORTS=yaml x",
        'eval "$(coding-gym completion bash)"',
        "CODING_GYM_GALLERY=gallery pytest tests/gallery",
        "docker run --cap-drop ALL x",
    ],
)
def test_finished_command_is_accepted(text):
    assert not _UNFINISHED.search(_without_quoted(text))
