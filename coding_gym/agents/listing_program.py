"""Program that lists the files of its working directory with their contents, for ``coding_gym.agents.file_changes``.

It reads the stamps of known files from stdin, a JSON object by path, and writes compressed JSON: for each path the stamp, the
permissions and the content in Base64, true if it has not changed, or null if it is too large.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import zlib
from typing import Any

LARGEST = 1 << 20
MOST = 128 << 20
EXCLUDED = {".git", "__pycache__", "node_modules", ".venv", ".cache"}


def main() -> None:
    """List the files."""
    known = json.load(sys.stdin)
    found: dict[str, Any] = {}
    room = MOST
    for parent, directories, names in os.walk("."):
        directories[:] = [name for name in directories if name not in EXCLUDED]
        links = [name for name in directories if os.path.islink(os.path.join(parent, name))]
        for name in names + links:
            path = os.path.normpath(os.path.join(parent, name))
            try:
                path.encode()
                entry, size = describe(path, known.get(path), room)
            except (OSError, UnicodeEncodeError):
                # It has gone, may not be read, or has no name that JSON has.
                continue
            if entry is not None:
                found[path] = entry
                room -= size
    sys.stdout.buffer.write(zlib.compress(json.dumps(found).encode(), 1))


def describe(path: str, known: list[int] | None, room: int) -> tuple[list[Any] | None, int]:
    """Return the stamp, the permissions and the content of a file, and how much the content takes; None for what is no file."""
    status = os.lstat(path)
    is_link = stat.S_ISLNK(status.st_mode)
    if not is_link and not stat.S_ISREG(status.st_mode):
        return None, 0
    stamp = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    mode = stat.S_IMODE(status.st_mode)
    if stamp == known:
        return [stamp, mode, True], 0
    if is_link:
        return [stamp, mode, base64.b64encode(os.fsencode(os.readlink(path))).decode()], 0
    if status.st_size > min(LARGEST, room):
        return [stamp, mode, None], 0
    with open(path, "rb") as file:
        content = file.read(LARGEST)
    return [stamp, mode, base64.b64encode(content).decode()], len(content)


if __name__ == "__main__":
    main()
