"""Every code block of the README and of the documentation runs, with the output that the page shows.

The blocks of a page run in order, in a temporary directory with links to ``examples`` and ``server_image`` of the checkout:

* ``python``: in one namespace per page. A comment after an expression is its value, or what it prints.
* ``pycon``: compared as doctest does.
* ``text`` that begins with ``>>>``: the next actions of the page's ``env``, as its ``render()`` shows them.
* ``console``: the commands after ``$``, whose exit code must be 0, and their standard output if any is shown.
* ``json``, ``toml``: parsed.

In values and output, ``...`` stands for any text. Blocks use local sandboxes unless they need Docker. The addresses
``127.0.0.1:8000`` and ``localhost:8000`` refer to a server on a free port: one that the page has started, or else a local one.
HTML comments directly above a block are directives:

* ``<!-- not run: REASON -->``: skip the block.
* ``<!-- needs: NAME, ... -->``: skip the block if one of these is missing: ``docker``, ``display``, modules or programs.
* ``<!-- file: NAME -->``: also write the block to a file.
* ``<!-- server -->``: keep the last command running, as the server for the rest of the page.

``<!-- hidden``, a newline, Python code and ``-->`` is a block that is run but not shown to readers.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
import pytest

from coding_gym import SandboxConfig
from tests.docs.console_blocks import CommandServer, ExampleServer, run_console
from tests.docs.markdown_blocks import Block, find_blocks
from tests.docs.python_blocks import PythonRunner
from tests.support.requirements import missing, require_display, require_docker

pytestmark = pytest.mark.timeout(600)

_ROOT = Path(__file__).parents[2]
_FILES = [
    _ROOT / "README.md",
    _ROOT / "CONTRIBUTING.md",
    *sorted((_ROOT / "docs").rglob("*.md")),
    *sorted(_ROOT.glob("plugins/*/docs/**/*.md")),
]
_PAGES = [file for file in _FILES if any(find_blocks(file))]
_SERVER = re.compile(r"\b(127\.0\.0\.1|localhost):8000\b")
_PLAIN = ("", "text", "mermaid")
_PROGRAMS = ("curl", "g++")


class Page:
    """Runs the blocks of a page.

    Args:
        path: The page.
        directory: The working directory of its blocks.
    """

    def __init__(self, path: Path, directory: Path) -> None:
        self._python = PythonRunner(str(path.relative_to(_ROOT)) if path.is_relative_to(_ROOT) else path.name)
        self._directory = directory
        self._server: CommandServer | ExampleServer | None = None

    def run(self, block: Block) -> None:
        text = block.text
        if name := block.directives.get("file"):
            file = self._directory / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        if "server" in block.directives:
            self._stop_server()
            self._server = CommandServer(text, self._directory)
            return
        if block.language in ("python", "pycon", "console") and _SERVER.search(text):
            self._server = self._server or ExampleServer(self._directory)
            text = _SERVER.sub(rf"\1:{self._server.port}", text)
        match block.language:
            case "python":
                self._python.run(text, block.line)
            case "pycon":
                self._python.run_session(text, block.line)
            case "console":
                run_console(text, self._directory)
            case "json":
                json.loads(text)
            case "toml":
                tomllib.loads(text)
            case "text" if text.startswith(">>> "):
                self._compare_transcript(text)
            case language:
                assert language in _PLAIN, f"{language!r} cannot be run: say why with <!-- not run: REASON -->"

    def finish(self) -> None:
        self._python.finish()

    def close(self) -> None:
        self._stop_server()
        for value in self._python.namespace.values():
            if isinstance(value, gym.Env | gym.vector.VectorEnv):
                value.close()
        # Environments whose variables the page has reassigned are closed when they are garbage collected.
        self._python.namespace.clear()
        gc.collect()

    def _compare_transcript(self, text: str) -> None:
        env = self._python.namespace["env"]
        for first, others in re.findall(r"^>>> (.*\n)((?:\.\.\.(?: .*)?\n)*)", text, re.MULTILINE):
            env.step(first + re.sub(r"^\.\.\. ?", "", others, flags=re.MULTILINE).removesuffix("\n"))
        found = re.sub(r" +$", "", env.render(), flags=re.MULTILINE)
        assert found.rstrip().endswith(text.rstrip()), f"shown:\n{text}\nfound:\n{found}"

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory of a page's blocks."""
    monkeypatch.chdir(tmp_path)
    for name in ("examples", "server_image"):
        (tmp_path / name).symlink_to(_ROOT / name)
    return tmp_path


@pytest.fixture
def open_page(directory: Path) -> Iterator:
    pages: list[Page] = []

    def open_page(path: Path) -> Page:
        pages.append(Page(path, directory))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


@pytest.mark.parametrize("path", _PAGES, ids=lambda path: str(path.relative_to(_ROOT)))
def test_code_blocks_show_actual_output(path, open_page, subtests, monkeypatch):
    # Preloading only changes how long imports take, and few blocks import something.
    monkeypatch.setitem(SandboxConfig.__init__.__kwdefaults__, "preload", ())
    page = open_page(path)
    for block in find_blocks(path):
        with subtests.test(f"{path.relative_to(_ROOT)}:{block.line}"), monkeypatch.context() as patch:
            _skip_unless_runnable(block)
            if "docker" not in _needs(block):
                # No engine answers at this address, so provider="auto" selects the local provider.
                patch.setenv("DOCKER_HOST", f"unix://{Path.cwd()}/no-engine")
            page.run(block)
    page.finish()


def _skip_unless_runnable(block: Block) -> None:
    if "not run" in block.directives:
        pytest.skip(f"not run: {block.directives['not run']}")
    for name in _needs(block):
        _require(name)


def _needs(block: Block) -> list[str]:
    return [name.strip() for name in block.directives.get("needs", "").split(",") if name.strip()]


def _require(name: str) -> None:
    if name == "docker":
        require_docker()
    elif name == "display":
        require_display()
    elif name in _PROGRAMS:
        if not shutil.which(name):
            pytest.skip(f"{name} is not installed")
    elif not importlib.util.find_spec(name):
        missing("extras", f"{name} is not installed: pip install -e '.[test-full]'")
