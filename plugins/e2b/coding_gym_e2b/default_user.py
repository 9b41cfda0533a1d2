"""Program that makes E2B's default user in a sandbox of any image, and starts ``sudo`` there.

Root runs it, with the text of ``sudo.py`` on standard input. The gateway sends it as text, so it imports the standard library
only; its interpreter is the server's, since the image need not have any.
"""

from __future__ import annotations

import contextlib
import os
import sys

_NAME, _HOME = "user", "/home/user"
_ID, _LARGEST = 1000, 60_000
_SUDO = "/usr/local/bin/sudo"
_FROM_SERVER = "10001"
"""Id of the user in images of the server, which sessions of root do not have."""


def main() -> None:
    """Make the user, and start ``sudo``."""
    users, groups = _entries("/etc/passwd"), _entries("/etc/group")
    found = next((entry for entry in users if entry[0] == _NAME), None)
    if found is None or found[2] == _FROM_SERVER:
        taken = {entry[2] for entry in (*users, *groups)}
        number = next(str(number) for number in range(_ID, _LARGEST) if str(number) not in taken)
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
        users = [entry for entry in users if entry[0] != _NAME]
        groups = [entry for entry in groups if entry[0] != _NAME]
        found = [_NAME, "x", number, number, "", _HOME, shell]
        _write("/etc/group", [*groups, [_NAME, "x", number, ""]])
        _write("/etc/passwd", [*users, found])
    os.makedirs(found[5], exist_ok=True)
    os.chown(found[5], int(found[2]), int(found[3]))
    os.chmod(found[5], 0o755)  # noqa: S103 - as E2B has it
    interpreter = os.path.realpath("/proc/self/exe")
    os.makedirs(os.path.dirname(_SUDO), exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_SUDO)
    with open(_SUDO, "w", encoding="utf-8") as file:
        file.write(f"#!{interpreter} -IS\n{sys.stdin.read()}")
    os.chmod(_SUDO, 0o755)  # noqa: S103 - all users run it
    os.execv(interpreter, [interpreter, "-IS", _SUDO, "--serve"])


def _entries(path: str) -> list[list[str]]:
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return [fields for line in file if len(fields := line.rstrip("\n").split(":")) > 2]


def _write(path: str, entries: list[list[str]]) -> None:
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{':'.join(entry)}\n" for entry in entries)


if __name__ == "__main__":
    main()
