"""Hooks of the site's build: the command-line reference, and pages made of files outside of ``docs``."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from typer.cli import get_docs_for_click

from coding_gym.cli.main import app

_REPOSITORY = "https://github.com/coding-gym/coding-gym/blob/main/"
_ROOT = Path(__file__).parents[2]
_ELSEWHERE = {
    "project/changelog.md": "CHANGELOG.md",
    "project/code-of-conduct.md": "CODE_OF_CONDUCT.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/security-policy.md": "SECURITY.md",
    **{
        path.relative_to(directory).as_posix(): path.relative_to(_ROOT).as_posix()
        for directory in sorted(_ROOT.glob("plugins/*/docs"))
        for path in sorted(directory.rglob("*.md"))
    },
}
"""Pages, and the files outside of ``docs`` that they show: at the root of the repository, and those of plug-ins."""

_LINK = re.compile(r"\]\((?!https?:|#|mailto:)(?P<target>[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    files.append(File.generated(config, "reference/cli.md", content=_command_line_reference()))
    for page, source in _ELSEWHERE.items():
        files.append(File.generated(config, page, content=(_ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links between files of the repository to the pages that show them, and others to the repository."""
    shown = page.file.src_uri
    source = Path(_ELSEWHERE.get(shown, f"docs/{shown}"))

    def resolve(match: re.Match[str]) -> str:
        target, hash_mark, anchor = match["target"].partition("#")
        path = Path(os.path.normpath(source.parent / target))
        linked = _page_of(path)
        if linked is not None:
            return f"]({os.path.relpath(linked, Path(shown).parent)}{hash_mark}{anchor})"
        return f"]({_REPOSITORY}{path.as_posix()}{hash_mark}{anchor})" if (_ROOT / path).exists() else match[0]

    return _LINK.sub(resolve, markdown)


def _page_of(path: Path) -> str | None:
    """Return the page, relative to ``docs``, that shows a file of the repository."""
    if path.parts[:1] == ("docs",):
        return Path(*path.parts[1:]).as_posix()
    return next((page for page, source in _ELSEWHERE.items() if source == path.as_posix()), None)


def _command_line_reference() -> str:
    group: Any = typer.main.get_command(app)
    with typer.Context(group, info_name="coding-gym") as context:
        markdown = get_docs_for_click(obj=group, ctx=context, name="coding-gym", title="Command line")
    # Typer cuts the summaries of the commands to the width of a terminal.
    for name, command in group.commands.items():
        summary = f"* [`{name}`](#coding-gym-{name}): {command.get_short_help_str(limit=1000)}"
        markdown = re.sub(rf"^\* `{name}`: .*$", lambda _, line=summary: line, markdown, flags=re.MULTILINE)
    return markdown
