"""Debian packages in an image: their names, and their installation.

As a program, ``python -m coding_gym_server.packages.system [OPTION] ... NAME ...``, it installs them as root, for the build of
an image. Options are those of apt-get, and ``--then=COMMAND`` for a command of the shell that follows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

__all__ = ["THEN", "check_system_packages", "reason_of_apt"]

THEN = "--then="

_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+(:[a-z0-9-]+)?(=[A-Za-z0-9.+:~-]+)?")
"""See deb-control(5); with an architecture and a version, as apt-get(8) accepts them."""

_DEBIAN_MODULES = Path("/usr/lib/python3/dist-packages")
_REASON_LINES = 12


def check_system_packages(names: Iterable[str]) -> None:
    """Check the names of Debian packages, without a network.

    Raises:
        ValueError: If one is not a name.
    """
    for name in names:
        # A hyphen at the end would make apt-get remove the package.
        if not _NAME.fullmatch(name) or name.endswith("-"):
            message = f"{name!r} is not the name of a Debian package, such as 'gcc', 'python3-gi' or 'ffmpeg=7:7.1.1-1'"
            raise ValueError(message)


def reason_of_apt(log: Iterable[str]) -> list[str]:
    """Return the lines of apt-get's output that explain its failure."""
    lines = [line.rstrip() for line in log if line.strip()]
    errors = [line for line in lines if line.startswith(("E: ", "dpkg: error"))]
    return (errors or lines)[-_REASON_LINES:] or ["apt-get printed nothing"]


def main() -> None:
    """Install the packages of the command line, and run the commands that follow; exit with the exit code of what fails."""
    arguments = sys.argv[1:]
    options = [argument for argument in arguments if argument.startswith("--")]
    then = [option.removeprefix(THEN) for option in options if option.startswith(THEN)]
    commands = (
        ["apt-get", "update", "--quiet"],
        # With what they recommend, as users of Debian know them: gcc without it has no header files.
        [
            *("apt-get", "install", "--yes", "--quiet"),
            *(option for option in options if not option.startswith(THEN)),
            *("--", *arguments[len(options) :]),
        ],
        ["apt-get", "clean"],
        *(["sh", "-ec", command] for command in then),
    )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in commands:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=False).returncode
        if status:
            sys.exit(status)
    for file in Path("/var/lib/apt/lists").glob("*Packages*"):
        file.unlink()
    if _DEBIAN_MODULES.is_dir():
        # Last on the path, so that Debian's modules replace none of the interpreter's.
        Path(sysconfig.get_path("purelib"), "debian-packages.pth").write_text(f"{_DEBIAN_MODULES}\n")


if __name__ == "__main__":
    main()
