"""Tiers of the test suite: the selection of tests, their providers and the number of processes.

* ``pytest`` runs the tests of the core that are neither slow (``durations.py``) nor need Docker.
* ``pytest --docker`` adds the tests that need Docker, and all of ``tests/security``.
* ``pytest --full`` runs everything: slow tests and all suites (``suites.py``), too.

Of suites, what the command line names runs (``pytest tests/web``), and so does each single test that it names, slow or not
(``pytest path::test``).
"""

from __future__ import annotations

import compileall
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import coding_gym_server
from tests.support.durations import is_slow
from tests.support.requirements import require_display, require_docker
from tests.support.suites import ROOT, suite_of

WORKERS = 3
"""Number of test processes: one more than the cores of a small machine, because a test often waits for a sandbox.

More are not faster, because sandboxes use the processors, too, and delay each other.
"""


_TESTS = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coding_gym")
    group.addoption("--docker", action="store_true", help="also run the tests that need Docker, and all of tests/security")
    group.addoption("--full", action="store_true", help="run all tests: slow ones, those that need Docker, and all suites")
    group.addoption("--providers", help="run tests of sandboxes on these providers only, such as local,docker")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Distribute the tests over processes, unless the command line configures that or names single tests."""
    options = config.option
    if (
        _is_worker()
        or not config.pluginmanager.hasplugin("xdist")
        or options.usepdb
        or options.collectonly
        or _names_tests(config)
    ):
        return
    if options.numprocesses is None and not options.tx:
        options.numprocesses = WORKERS
        if options.dist == "no":
            options.dist = "worksteal"


def pytest_sessionstart(session: pytest.Session) -> None:
    """Build what each sandbox would otherwise build again: bytecode, and matplotlib's font cache.

    Sandboxes cannot write next to the sources. An import without the font cache writes to standard error, which tests compare.
    """
    if _is_worker() or session.config.option.collectonly:
        return
    compileall.compile_dir(Path(coding_gym_server.__file__).parent, quiet=2)
    if importlib.util.find_spec("matplotlib"):
        subprocess.run([sys.executable, "-c", "import matplotlib.font_manager"], check=True, capture_output=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the tests of suites, unless the command line names them."""
    is_of_suite = collection_path.is_relative_to(ROOT) and suite_of(collection_path.relative_to(ROOT).as_posix()) is not None
    if not is_of_suite or config.getoption("full"):
        return None
    named = (config.invocation_params.dir.joinpath(argument.partition("::")[0]).resolve() for argument in config.args)
    below = [path for path in named if path not in (ROOT, _TESTS)]
    return None if any(collection_path.is_relative_to(path) or path.is_relative_to(collection_path) for path in below) else True


def pytest_report_header(config: pytest.Config) -> str:
    tiers = [name for name in ("full", "docker") if config.getoption(name)]
    return f"coding_gym: {f'--{tiers[0]}' if tiers else 'without slow tests, Docker and suites (pytest --full runs them)'}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize the tests that use ``provider``: on the local provider and, if so marked, on Docker."""
    if "provider" not in metafunc.fixturenames:
        return
    parameters = [pytest.param(name, marks=pytest.mark.docker) if name == "docker" else name for name in _providers(metafunc)]
    metafunc.parametrize("provider", parameters, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, marker in (("xvfb", "screen"), ("docker_engine", "docker")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
    named = tuple(argument.rpartition("/")[2] for argument in config.args if "::" in argument)
    kept, deselected = [], []
    for item in items:
        is_named = item.nodeid.rpartition("/")[2].startswith(named) if named else False
        (kept if is_named or _is_selected(item, config) else deselected).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=deselected)


def _is_selected(item: pytest.Item, config: pytest.Config) -> bool:
    if config.getoption("full"):
        return True
    with_docker = config.getoption("docker")
    if with_docker and item.path.is_relative_to(_TESTS / "security"):
        return True
    return not is_slow(item) and (with_docker or item.get_closest_marker("docker") is None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests whose requirements this machine lacks, with the reason."""
    if item.get_closest_marker("docker"):
        require_docker()
    if item.get_closest_marker("screen"):
        require_display()


def _is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ


def _names_tests(config: pytest.Config) -> bool:
    return any("::" in argument for argument in config.args)


def _providers(metafunc: pytest.Metafunc) -> list[str]:
    config = metafunc.config
    if chosen := config.getoption("providers"):
        return chosen.split(",")
    everywhere = metafunc.definition.get_closest_marker("every_provider") is not None
    on_both = config.getoption("full") or config.getoption("docker") or _names_tests(config)
    return ["docker", "local"] if everywhere and on_both else ["local"]
