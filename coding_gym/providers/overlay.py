"""Packages for the local provider: an overlay beside this interpreter's own, installed once and kept in the user's cache."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from coding_gym.errors import PackageInstallError, SandboxStartError
from coding_gym.providers.once import Once
from coding_gym_server.distributions import installed, missing
from coding_gym_server.installation import InstallationError, install

__all__ = ["cache_directory", "ensure_overlay"]

_HALF_MADE = ".half-made-"

_log = logging.getLogger("coding_gym")
_once: Once[None] = Once()


def ensure_overlay(requirements: tuple[str, ...]) -> Path | None:
    """Return the overlay that has the packages, installing them first if need be; None if the interpreter has them all.

    Raises:
        PackageInstallError: pip refused; nothing is left.
        SandboxStartError: There is no room for it.
    """
    wanted = missing(requirements) if requirements else []
    if not wanted:
        return None
    overlay = cache_directory() / _key(wanted)
    if not overlay.is_dir():
        _once(overlay, lambda: _install_if_missing(wanted, overlay))
    return overlay


def cache_directory() -> Path:
    """Return the directory that holds the overlays of this user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "coding_gym" / "packages"


def _install_if_missing(requirements: list[str], overlay: Path) -> None:
    try:
        with _only_one_installation(overlay.parent):
            if not overlay.is_dir():
                _install(requirements, overlay)
    except OSError as error:
        reason = error.strerror or error
        message = f"No packages can be installed in {overlay.parent}: {reason}. Make room there, or set XDG_CACHE_HOME"
        raise SandboxStartError(message) from error


def _install(requirements: list[str], overlay: Path) -> None:
    for left in overlay.parent.glob(f"{_HALF_MADE}*"):
        # Of a process that was killed: whoever lives holds the lock.
        shutil.rmtree(left, ignore_errors=True)
    _log.warning("installing %s for local sandboxes: once", ", ".join(requirements))
    unfinished = Path(tempfile.mkdtemp(prefix=_HALF_MADE, dir=overlay.parent))
    try:
        install(requirements, overlay=unfinished)
        unfinished.rename(overlay)
    except InstallationError as error:
        raise PackageInstallError(requirements, str(error).splitlines(), error.log) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _key(requirements: list[str]) -> str:
    """Return the overlay's name: another interpreter, or other versions of what it has, want another overlay."""
    there = sorted(f"{distribution.name}=={distribution.version}" for distribution in installed().values())
    parts = (sys.executable, sys.version, sysconfig.get_platform(), *there, "", *requirements)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


@contextlib.contextmanager
def _only_one_installation(directory: Path) -> Iterator[None]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
