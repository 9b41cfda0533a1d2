"""The documentation site builds without warnings, and all its internal links resolve.

``CODING_GYM_SITE`` names the directory of a site that has just been built, as ``.ci/run`` does, so that it is not built again.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

_ROOT = Path(__file__).parents[2]

_NAMED = re.compile(
    r"`((?:benchmarks|coding_gym|coding_gym_server|docs|examples|plugins|server_image|tests)/[\w./-]*(?:/|\.py|\.toml|\.md))`"
)

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed: pip install -e '.[docs]'"),
]


class _Page(HTMLParser):
    """Collects the links, the anchors and the embedded resources of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value is not None}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("img", "script", "iframe", "source") and "src" in given:
            self.loads.append(given["src"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, _Page]:
    if built := os.environ.get("CODING_GYM_SITE"):
        directory = Path(built)
    else:
        directory = tmp_path_factory.mktemp("site")
        _build(directory)
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in directory.rglob("*.html")}
    assert directory / "index.html" in pages
    return pages


def test_links_resolve(site):
    broken = [
        f"{path.parent.name}: {link}" for path, page in site.items() for link in page.links if not _exists(site, path, link)
    ]
    assert not broken


def test_assets_are_local(site):
    assert all(_local(path, load) is not None for path, page in site.items() for load in page.loads)


def test_public_names_are_in_the_reference(site):
    import coding_gym
    import coding_gym_ray as ray
    import coding_gym_search as search
    import coding_gym_studio as studio
    from coding_gym import branching, datasets, errors, inputs, metrics, plugins, spaces, tasks, tracing, wrappers
    from coding_gym.wrappers import terms, vector
    from coding_gym_trainers import compat

    anchors = set().union(*(page.anchors for path, page in site.items() if path.parent.parent.name == "reference"))
    public = (
        branching,
        compat,
        datasets,
        errors,
        inputs,
        metrics,
        plugins,
        ray,
        search,
        spaces,
        studio,
        tasks,
        tracing,
        wrappers,
        terms,
        vector,
    )
    modules = (coding_gym, *public)
    missing = {f"{module.__name__}.{name}" for module in modules for name in module.__all__} - anchors
    # A string; modules with separate pages; a function listed under its module, which has the same name.
    assert missing == {"coding_gym.__version__", "coding_gym.branching", "coding_gym.inputs", "coding_gym.tasks.pass_at_k"}
    assert "coding_gym.tasks.pass_at_k.pass_at_k" in anchors


def test_named_files_exist():
    pages = [
        *_ROOT.glob("*.md"),
        *_ROOT.glob("docs/**/*.md"),
        *_ROOT.glob("plugins/*/README.md"),
        *_ROOT.glob("plugins/*/docs/**/*.md"),
    ]
    named = {name for page in pages for name in _NAMED.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert {name for name in named if not (_ROOT / name).exists() and not (_ROOT / "server_image" / name).exists()} == set()


def _build(directory: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)],
        cwd=_ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert built.returncode == 0, built.stdout + built.stderr


def _local(page: Path, link: str) -> Path | None:
    """Return the file that a link refers to; None for external links."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return target / "index.html" if target.is_dir() else target


def _exists(site: dict[Path, _Page], page: Path, link: str) -> bool:
    # Only the 404 page may have links relative to the root of the host.
    if link.startswith("/") and page.name == "404.html":
        return True
    target = _local(page, link)
    if target is None:
        return True
    anchor = unquote(urlsplit(link).fragment)
    if target not in site:
        return target.is_file()
    return not anchor or anchor in site[target].anchors
