"""Virtual environments of a test session, for libraries whose requirements conflict with those of other tests.

A file in ``plugins/trainers/tests/isolated`` has tests, and names what they require in inline metadata (PEP 723)::

    # /// script
    # requires-python = ">=3.12"
    # dependencies = ["swe-rex==1.4.0"]
    # ///

``run_isolated`` installs that and this checkout into a virtual environment, and runs the file there with pytest. Environments
are kept in pytest's cache until what they consist of changes. A library whose dependencies are too large, or that refuses the
Python of this machine, goes without the former and regardless of the latter into ``alone``::

    # [tool.isolated]
    # alone = ["verl==0.9.1"]
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from packaging.specifiers import SpecifierSet

from tests.support.requirements import missing

__all__ = ["Counts", "Requirements", "find_python", "read_requirements", "run_isolated"]

_ROOT = Path(__file__).parents[2]
_METADATA = re.compile(r"^# /// script$\n((?:^#(?:| .*)$\n)+?)^# ///$", re.MULTILINE)
# What conftest.py and the configuration of pytest require.
_PYTEST = ("pytest>=8.4", "pytest-timeout>=2.3", "psutil>=5.9")
# Those of pyproject.toml, without the plugins that are not installed.
_ADDOPTS = "--strict-markers --strict-config -ra --disable-plugin-autoload -p timeout"
# Libraries are compiled as they are imported: compiling all of them takes longer than their tests, of which no warning of the
# compiler is an error; and nothing follows from what is deprecated in pinned releases.
_IGNORED_WARNINGS = ("ignore::SyntaxWarning", "ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")
_UNKNOWN_TO_UV = "--ignore-requires-python"
_INSTALL_WITHIN = 1200
_RUN_WITHIN = 600


@dataclass(frozen=True)
class Requirements:
    """Inline metadata of a file: versions of Python, distributions, and distributions to install without dependencies."""

    python: str
    dependencies: tuple[str, ...]
    alone: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counts:
    """Numbers of tests that passed, failed and were skipped."""

    passed: int
    failed: int
    skipped: int


def read_requirements(file: Path) -> Requirements:
    """Return the inline metadata of a file."""
    blocks = _METADATA.findall(file.read_text(encoding="utf-8"))
    assert len(blocks) == 1, f"{file.name} requires one block of inline metadata, found {len(blocks)}"
    metadata = tomllib.loads("\n".join(line[2:] for line in blocks[0].splitlines()))
    alone = metadata.get("tool", {}).get("isolated", {}).get("alone", [])
    return Requirements(metadata.get("requires-python", ""), tuple(metadata["dependencies"]), tuple(alone))


def find_python(versions: str) -> str | None:
    """Return an interpreter of this machine whose version is among ``versions``: this one, if it is."""
    accepted = SpecifierSet(versions)
    versions_of = ((python, _version_of(python)) for python in _interpreters())
    return next((python for python, version in versions_of if version is not None and accepted.contains(version)), None)


def run_isolated(file: Path, cache: Path) -> Counts:
    """Run the tests in a file, in the environment that it requires.

    Skips the calling test if this machine lacks the version of Python or cannot install the requirements, or if all tests were
    skipped; fails it if a test fails, or if there is none.

    Args:
        file: The tests.
        cache: Directory of the environments.
    """
    requirements = read_requirements(file)
    python = find_python(requirements.python)
    if python is None:
        pytest.skip(f"{file.name} requires Python {requirements.python}, which this machine does not have")
    directory = cache / file.stem
    with _locked(directory):
        report = directory / "report.xml"
        _install(directory, python, requirements)
        report.unlink(missing_ok=True)
        options = ["--full", "-p", "no:cacheprovider", f"--override-ini=addopts={_ADDOPTS}", f"--junit-xml={report}"]
        options += [f"-W{warning}" for warning in _IGNORED_WARNINGS]
        command = [str(_python_of(directory)), "-m", "pytest", *options, str(file)]
        # Some libraries write to the user's configuration when they are imported.
        ended = _run(command, _RUN_WITHIN, XDG_CONFIG_HOME=str(directory / "config"))
        counts = _counts(report)
    if ended.returncode != 0 or counts.passed + counts.failed + counts.skipped == 0:
        pytest.fail(f"{file.name}, in its environment:\n{ended.stdout}{ended.stderr}", pytrace=False)
    if counts.passed == 0:
        pytest.skip(f"all tests of {file.name} were skipped:\n{ended.stdout}")
    return counts


def _install(directory: Path, python: str, requirements: Requirements) -> None:
    """Make the environment, unless the one that exists is the same."""
    installs = [["--editable", f"{_ROOT}[display]", *_PYTEST, *requirements.dependencies]]
    if requirements.alone:
        installs[0].append("pip")
        installs.append(["--no-deps", _UNKNOWN_TO_UV, *requirements.alone])
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = [project["dependencies"], project["optional-dependencies"]["display"], project["entry-points"]]
    wanted = json.dumps([_version_of(python), installs, installed])
    stamp = directory / "requirements.json"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    shutil.rmtree(directory, ignore_errors=True)
    # uv takes seconds where pip takes minutes, and needs no pip in the environment, which takes seconds to install.
    uv = Path(sys.executable).with_name("uv")
    without_pip = ["--without-pip"] if uv.exists() else []
    subprocess.run([python, "-m", "venv", *without_pip, str(directory)], check=True, capture_output=True)
    for arguments in installs:
        if uv.exists() and _UNKNOWN_TO_UV not in arguments:
            installer = [str(uv), "pip", "install", "--python", str(_python_of(directory))]
        else:
            installer = [str(_python_of(directory)), "-m", "pip", "install", "--no-compile"]
        ended = _run([*installer, "--quiet", *arguments], _INSTALL_WITHIN)
        if ended.returncode != 0:
            missing("extras", f"the requirements {' '.join(arguments)} cannot be installed: {ended.stderr[-2000:]}")
    stamp.write_text(wanted, encoding="utf-8")


def _run(command: list[str], timeout: float, **variables: str) -> subprocess.CompletedProcess[str]:
    # What tells processes of this test run from others is not for another run.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON", "COV_"))}
    environment |= variables
    return subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False)


def _counts(report: Path) -> Counts:
    if not report.exists():
        return Counts(0, 0, 0)
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.attrib[name]) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return Counts(total - failures - errors - skipped, failures + errors, skipped)


def _python_of(directory: Path) -> Path:
    return directory / "bin" / "python"


def _interpreters() -> Iterator[str]:
    yield sys.executable
    names = [f"python3.{minor}" for minor in range(11, 20)]
    yield from filter(None, map(shutil.which, names))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob("versions/3.*/bin/python")))


@functools.cache
def _version_of(python: str) -> str | None:
    """Return the version of an interpreter; None if it does not start, as pyenv's for versions that are not selected."""
    code = "import platform; print(platform.python_version())"
    ended = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else None


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep other test processes from the environment."""
    with directory.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
