"""Tiers of the test suite: the selection of tests, their providers and the number of processes.

``pytest`` deselects tests that take long (``slow``), tests that start and kill sandboxes on purpose (``lifecycle``) and tests
of other projects' clients (``PEERS``); ``pytest --full`` runs all tests. A test that is named on the command line (``pytest
path::test``), or whose tier is named by ``-m``, always runs.
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
from tests.support.requirements import require_display, require_docker

FULL_ONLY = ("slow", "lifecycle")
"""Tiers that run only with ``--full``."""

WORKERS = 3
"""Number of test processes: one more than the cores of a small machine, because a test often waits for a sandbox.

More are not faster, because sandboxes use the processors, too, and delay each other.
"""


PEERS = ("openenv", "code_interpreter/test_e2b_sdk.py", "integrations/test_sb3.py", "sandbox_fusion/test_clients.py", "e2b")
"""Tests with other projects' software, whose imports take several seconds per process; they run only with ``--full``."""

_TESTS = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coding_gym")
    group.addoption("--full", action="store_true", help="run all tests, those marked slow and lifecycle included")
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
    """Ignore the tests in ``PEERS``, unless the command line names them."""
    peer = next((peer for name in PEERS if collection_path == (peer := _TESTS / name)), None)
    if peer is None or config.getoption("full"):
        return None
    named = (config.invocation_params.dir.joinpath(argument.partition("::")[0]) for argument in config.args)
    return None if any(path.resolve().is_relative_to(peer) for path in named) else True


def pytest_report_header(config: pytest.Config) -> str:
    tiers = "all tiers" if config.getoption("full") else f"without {' and '.join(FULL_ONLY)} (pytest --full runs them)"
    return f"coding_gym: {tiers}"


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
    if config.getoption("full"):
        return
    left_out = [tier for tier in FULL_ONLY if tier not in config.getoption("markexpr")]
    named = tuple(argument.rpartition("/")[2] for argument in config.args if "::" in argument)
    kept, deselected = [], []
    for item in items:
        is_named = item.nodeid.rpartition("/")[2].startswith(named) if named else False
        (kept if is_named or not any(item.get_closest_marker(tier) for tier in left_out) else deselected).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=deselected)


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
    definition = metafunc.definition
    everywhere = definition.get_closest_marker("every_provider")
    on_both = everywhere is not None and (config.getoption("full") or everywhere.kwargs.get("always", False))
    return ["docker", "local"] if on_both or (everywhere is not None and _names_tests(config)) else ["local"]
