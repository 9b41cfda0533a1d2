"""Optional requirements of tests: a test whose requirement is missing is skipped, or fails if it was promised.

``CODING_GYM_REQUIRE`` is a comma-separated list of promises: ``docker`` (an engine), ``apptainer`` (the program, and an
ordinary user), ``display`` (Xvfb), ``browser`` (Chromium) and ``extras`` (all libraries of the ``test-full`` extra).
Continuous integration sets it, so that no test is skipped unnoticed.
"""

from __future__ import annotations

import functools
import importlib
import os
import shutil
import warnings
from types import ModuleType
from typing import NoReturn

import docker
import pytest

from coding_gym.errors import ProviderUnavailableError
from coding_gym.sandbox.docker.engine import connect_to_engine

__all__ = ["import_extra", "missing", "require_apptainer", "require_browser", "require_display", "require_docker"]


def missing(promise: str, reason: str, *, module: bool = False) -> NoReturn:
    """Skip the test, or the module that is being imported; fail if ``promise`` was made."""
    if promise in os.environ.get("CODING_GYM_REQUIRE", "").split(","):
        pytest.fail(f"{reason} (CODING_GYM_REQUIRE has {promise})", pytrace=False)
    pytest.skip(reason, allow_module_level=module)


def import_extra(name: str) -> ModuleType:
    """Import a library of the ``test-full`` extra, at the top of a module or in a test."""
    try:
        with warnings.catch_warnings():
            # Warnings of third-party modules should not become errors.
            warnings.simplefilter("ignore")
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing("extras", f"{error.name} is not installed: pip install -e '.[test-full]'", module=True)


def require_display() -> None:
    """Require Xvfb, which provides the screens of local sandboxes."""
    if shutil.which("Xvfb") is None:
        missing("display", "Xvfb is not installed: apt install xvfb")


def require_browser() -> str:
    """Require Chromium, and return its path."""
    path = shutil.which("chromium")
    if path is None:
        missing("browser", "Chromium is not installed: apt install chromium")
    return path


def require_apptainer() -> None:
    """Require Apptainer, and the ordinary user whose containers it runs."""
    if shutil.which("apptainer") is None:
        missing("apptainer", "Apptainer is not installed: apt install apptainer")
    if os.geteuid() == 0:
        missing("apptainer", "the apptainer provider is for ordinary users: run the tests as one")


def require_docker() -> None:
    """Require a Docker engine that answers."""
    if problem := _engine_problem():
        missing("docker", problem)


@functools.cache
def _engine_problem() -> str | None:
    try:
        client: docker.DockerClient = connect_to_engine()
    except ProviderUnavailableError as error:
        return str(error)
    client.close()
    return None
