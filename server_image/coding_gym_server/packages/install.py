"""Installation of packages with pip, without changing those that the interpreter or the server require.

As a program, ``python -m coding_gym_server.packages.install REQUIREMENT ...``, it installs into the interpreter's own
environment, for the build of an image.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from coding_gym_server.packages.distributions import installed

__all__ = ["LOG_LINES", "InstallationError", "install", "reason_of"]

_SERVER = "coding-gym-server"
_REASON_LINES = 12
LOG_LINES = 40
"""Maximum number of lines of a log in an error."""


class InstallationError(RuntimeError):
    """pip failed; the message is its reason.

    Args:
        log: Output lines of pip.

    Attributes:
        log: The last output lines of pip.
    """

    def __init__(self, log: list[str]) -> None:
        super().__init__("\n".join(reason_of(log)))
        self.log = log[-LOG_LINES:]


def install(requirements: Iterable[str], *, overlay: Path, cache: bool = True) -> None:
    """Install packages and their missing dependencies below ``overlay``.

    The versions of installed packages are pinned: a package that requires other versions is rejected.

    Args:
        requirements: Requirements, as returned by ``requirements.resolve``.
        overlay: Target directory, which need not exist.
        cache: Whether pip's cache is used.

    Raises:
        InstallationError: If pip fails. Files that it left below ``overlay`` are unusable.
    """
    if find_spec("pip") is None:
        raise InstallationError(
            [f"ERROR: {sys.prefix} has no pip, as environments of uv: run 'uv pip install pip' or 'python -m ensurepip'"]
        )
    requirements = list(requirements)
    present = installed()
    by_url = {requirement.name for requirement in map(Requirement, requirements) if requirement.url is not None}
    if found := sorted(by_url & set(present)):
        # pip would replace the interpreter's own distribution.
        raise InstallationError([f"ERROR: {', '.join(found)}: already installed in this interpreter; remove the URL"])
    with _constraints(filter(None, (entry.pin for entry in present.values()))) as file:
        result = subprocess.run(
            _pip_command(requirements, "--prefix", str(overlay), "--constraint", file, *(() if cache else ("--no-cache-dir",))),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    if result.returncode != 0:
        raise InstallationError(result.stdout.splitlines())


def reason_of(log: Iterable[str]) -> list[str]:
    """Return the lines of pip's output that explain its failure."""
    lines = [line.rstrip() for line in log if line.strip()]
    first = next((index for index, line in enumerate(lines) if line.lstrip().lower().startswith("error:")), 0)
    reason = [line for line in lines[first:] if not line.startswith(("WARNING:", "[notice]"))]
    retries = [line for line in lines if line.startswith("WARNING: Retrying")][-1:]
    return [*retries, *reason[-_REASON_LINES:]] or ["pip printed nothing"]


def _pip_command(requirements: Iterable[str], *options: str) -> list[str]:
    pip = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check", "--no-color")
    fixed_options = ("--progress-bar", "off", "--no-warn-script-location", "--root-user-action", "ignore")
    return [*pip, "install", *fixed_options, *options, "--", *requirements]


@contextlib.contextmanager
def _constraints(pins: Iterable[str]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", prefix="coding-gym-", suffix=".txt") as file:
        file.writelines(f"{pin}\n" for pin in pins)
        file.flush()
        yield file.name


def _server_pins() -> list[str]:
    """Return the pins of the server and of its dependencies."""
    from importlib.metadata import requires

    present = installed()
    pins: dict[str, str | None] = {}
    queue = [_SERVER]
    while queue:
        name = canonicalize_name(queue.pop())
        if name in present and name not in pins:
            pins[name] = present[name].pin
            needed = map(Requirement, requires(name) or ())
            queue += [entry.name for entry in needed if entry.marker is None or entry.marker.evaluate({"extra": ""})]
    return sorted(filter(None, pins.values()))


def main() -> None:
    """Install the requirements of the command line into the interpreter's environment; exit with pip's exit code."""
    with _constraints(_server_pins()) as file:
        # One stream, whose lines keep their order: errors are followed by their causes.
        command = _pip_command(sys.argv[1:], "--no-cache-dir", "--constraint", file)
        result = subprocess.run(command, stderr=sys.stdout.fileno(), check=False)
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
