"""Installs packages with pip, without touching what the interpreter or the server needs, and tells what they bring.

Run as a program, ``python -m coding_gym_server.installation REQUIREMENT ...``, it installs into the interpreter's own
environment, as the build of an image does.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from coding_gym_server.distributions import installed
from coding_gym_server.packages import canonical_name

__all__ = ["InstallationError", "install", "reason_of"]

_SERVER = "coding-gym-server"
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_REASON_LINES = 12
_LOG_LINES = 40


class InstallationError(RuntimeError):
    """pip refused; the text is its reason.

    Attributes:
        log: The end of what pip printed.
    """

    def __init__(self, log: list[str]) -> None:
        super().__init__("\n".join(reason_of(log)))
        self.log = log[-_LOG_LINES:]


def install(requirements: Iterable[str], *, overlay: Path, cache: bool = True) -> None:
    """Install packages, and what they need beyond what the interpreter has, below ``overlay``.

    The versions of what the interpreter has are fixed: a package that wants others is refused.

    Args:
        requirements: What to install, as ``packages.resolve`` returns it.
        overlay: The directory, which need not exist.
        cache: Whether pip's cache is used.

    Raises:
        InstallationError: pip refused. What it left below ``overlay`` is of no use.
    """
    requirements = list(requirements)
    there = installed()
    addressed = {entry.partition(" @ ")[0].partition("[")[0] for entry in requirements if " @ " in entry}
    if found := sorted(addressed & set(there)):
        # pip would put it into the place of the interpreter's own.
        raise InstallationError([f"ERROR: {', '.join(found)}: this interpreter has it already; leave its address out"])
    with _constraints(filter(None, (entry.pin for entry in there.values()))) as file:
        done = subprocess.run(
            _pip_command(requirements, "--prefix", str(overlay), "--constraint", file, *(() if cache else ("--no-cache-dir",))),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    if done.returncode != 0:
        raise InstallationError(done.stdout.splitlines())


def reason_of(log: Iterable[str]) -> list[str]:
    """Return the lines of pip's output that say why it failed."""
    lines = [line.rstrip() for line in log if line.strip()]
    first = next((index for index, line in enumerate(lines) if line.lstrip().lower().startswith("error:")), 0)
    told = [line for line in lines[first:] if not line.startswith(("WARNING:", "[notice]"))]
    retries = [line for line in lines if line.startswith("WARNING: Retrying")][-1:]
    return [*retries, *told[-_REASON_LINES:]] or ["pip printed nothing"]


def _pip_command(requirements: Iterable[str], *options: str) -> list[str]:
    pip = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check", "--no-color")
    quiet = ("--progress-bar", "off", "--no-warn-script-location", "--root-user-action", "ignore")
    return [*pip, "install", *quiet, *options, "--", *requirements]


@contextlib.contextmanager
def _constraints(pins: Iterable[str]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", prefix="coding-gym-", suffix=".txt") as file:
        file.writelines(f"{pin}\n" for pin in pins)
        file.flush()
        yield file.name


def _server_pins() -> list[str]:
    """Return the pins of the server and all that it needs."""
    from importlib.metadata import requires

    there = installed()
    pins: dict[str, str | None] = {}
    queue = [_SERVER]
    while queue:
        name = canonical_name(queue.pop())
        if name in there and name not in pins:
            pins[name] = there[name].pin
            needed = (entry for entry in requires(name) or () if "extra ==" not in entry)
            queue += [match[0] for entry in needed if (match := _NAME.match(entry))]
    return sorted(filter(None, pins.values()))


def main() -> None:
    """Install what the command line names into the interpreter's own environment; ends with pip's exit code."""
    with _constraints(_server_pins()) as file:
        done = subprocess.run(_pip_command(sys.argv[1:], "--no-cache-dir", "--constraint", file), check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
