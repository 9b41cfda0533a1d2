"""Packages for the local provider: an overlay over the interpreter's packages, installed once in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coding_gym.cache import cache_directory
from coding_gym.errors import PackageInstallError, SandboxStartError
from coding_gym.sandbox.single_flight import SingleFlight
from coding_gym.waiting import waiting_for
from coding_gym_server.packages.distributions import installed, missing
from coding_gym_server.packages.install import InstallationError, install

__all__ = ["ensure_overlay"]

_INCOMPLETE = ".half-made-"

_log = logging.getLogger("coding_gym")
_single_flight: SingleFlight[None] = SingleFlight()


def ensure_overlay(requirements: tuple[str, ...]) -> Path | None:
    """Return the overlay with the packages, installing them if necessary; None if the interpreter has them all.

    Raises:
        PackageInstallError: If pip fails; nothing is left behind.
        SandboxStartError: If it cannot be written.
    """
    missing_requirements = missing(requirements) if requirements else []
    if not missing_requirements:
        return None
    overlay = cache_directory() / "packages" / _key(missing_requirements)
    if not overlay.is_dir():
        _single_flight(overlay, lambda: _install_if_missing(missing_requirements, overlay))
    return overlay


def _install_if_missing(requirements: list[str], overlay: Path) -> None:
    try:
        with _installation_lock(overlay.parent):
            if not overlay.is_dir():
                _install(requirements, overlay)
    except OSError as error:
        reason = error.strerror or error
        message = f"No packages can be installed in {overlay.parent}: {reason}. Free disk space there, or set XDG_CACHE_HOME"
        raise SandboxStartError(message) from error


def _install(requirements: list[str], overlay: Path) -> None:
    for left in overlay.parent.glob(f"{_INCOMPLETE}*"):
        # Left by a process that was killed: a living process holds the lock.
        shutil.rmtree(left, ignore_errors=True)
    unfinished = Path(tempfile.mkdtemp(prefix=_INCOMPLETE, dir=overlay.parent))
    try:
        with waiting_for(f"installing {', '.join(requirements)} for local sandboxes (once)", _log):
            install(requirements, overlay=unfinished)
        unfinished.rename(overlay)
    except InstallationError as error:
        raise PackageInstallError(requirements, str(error).splitlines(), error.log) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _key(requirements: list[str]) -> str:
    """Return the overlay's name, which depends on the interpreter and on the versions of its packages."""
    there = sorted(f"{distribution.name}=={distribution.version}" for distribution in installed().values())
    parts = (sys.executable, sys.version, sysconfig.get_platform(), *there, "", *requirements)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


@contextlib.contextmanager
def _installation_lock(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
