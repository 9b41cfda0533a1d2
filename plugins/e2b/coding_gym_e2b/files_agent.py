"""Program that gives the gateway access to the files of a session: runs in the session, with its user's permissions.

It reads requests from stdin and writes responses to stdout, both one JSON object per line. The gateway sends it as text, so it
imports the standard library only.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import grp
import json
import os
import pwd
import select
import shutil
import stat
import sys
import time
from typing import Any

from coding_gym_e2b.files_owner import FileOwner

_ALREADY_EXISTS, _INVALID_ARGUMENT, _NOT_FOUND = "already_exists", "invalid_argument", "not_found"
_RESOURCE_EXHAUSTED = "resource_exhausted"
_PREFIX = "user.e2b."
_FILE, _DIRECTORY, _UNSPECIFIED = "FILE_TYPE_FILE", "FILE_TYPE_DIRECTORY", "FILE_TYPE_UNSPECIFIED"
_MAX_EVENTS = 10_000
_MAX_ENTRIES = 20_000
_SCAN_SECONDS = 0.2
_SCAN_FRACTION = 0.05


class Refusal(Exception):
    """The request cannot be fulfilled, for a reason that is an error code of the Connect protocol, or ``no_space``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Watcher:
    """A directory that is watched, by comparing its entries: shared sandboxes have no inotify.

    Args:
        path: Path of the directory.
        recursive: Whether the directories in it are watched, too.
        with_entries: Whether events have the entry that they are about.
    """

    def __init__(self, path: str, recursive: bool, with_entries: bool) -> None:
        self._root = path
        self._recursive = recursive
        self._with_entries = with_entries
        self._events: list[dict[str, Any]] = []
        self._is_announced = False
        self._seen = self._look()
        if len(self._seen) > _MAX_ENTRIES:
            raise Refusal(_RESOURCE_EXHAUSTED, f"the directory has more than {_MAX_ENTRIES} entries to watch")

    def scan(self) -> bool:
        """Compare the directory with what has been seen; return whether there are events to announce."""
        old, self._seen = self._seen, self._look()
        new = self._seen
        gone, added = old.keys() - new.keys(), new.keys() - old.keys()
        identities = {_identity(old[name]): name for name in gone}
        moved = {identities[_identity(new[name])]: name for name in added if _identity(new[name]) in identities}
        for name in sorted(gone):
            self._add(name, "RENAME" if name in moved else "REMOVE")
        for name in sorted(new):
            if name in added:
                self._add(name, "CREATE")
                if name not in moved.values() and stat.S_ISREG(new[name].st_mode) and new[name].st_size:
                    self._add(name, "WRITE")
                continue
            before, after = old[name], new[name]
            if before.st_mode != after.st_mode or before.st_uid != after.st_uid:
                self._add(name, "CHMOD")
            if not stat.S_ISDIR(after.st_mode) and _content(before) != _content(after):
                self._add(name, "WRITE")
        if not self._events or self._is_announced:
            return False
        self._is_announced = True
        return True

    def take(self) -> list[dict[str, Any]]:
        """Return the events since the last call."""
        events, self._events, self._is_announced = self._events, [], False
        return events

    def _look(self) -> dict[str, os.stat_result]:
        found: dict[str, os.stat_result] = {}
        pending = [""]
        while pending:
            directory = pending.pop()
            with contextlib.suppress(OSError), os.scandir(os.path.join(self._root, directory)) as entries:
                for entry in entries:
                    name = os.path.join(directory, entry.name)
                    with contextlib.suppress(OSError):
                        found[name] = entry.stat(follow_symlinks=False)
                        if self._recursive and entry.is_dir(follow_symlinks=False):
                            pending.append(name)
            if len(found) > _MAX_ENTRIES:
                # The rest is not watched.
                return found
        return found

    def _add(self, name: str, kind: str) -> None:
        event: dict[str, Any] = {"name": _shown(name), "type": f"EVENT_TYPE_{kind}"}
        if self._with_entries:
            with contextlib.suppress(OSError):
                event["entry"] = _entry(os.path.join(self._root, name))
        self._events.append(event)
        del self._events[:-_MAX_EVENTS]


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_ino, stat.S_IFMT(status.st_mode)


def _content(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


_watchers: dict[int, Watcher] = {}
_owner = _OWN_USER = FileOwner()


def stat_path(path: str) -> Any:
    """Return the entry at a path."""
    return {"entry": _entry(path)}


def make_directory(path: str) -> Any:
    """Make a directory, and those above it."""
    if os.path.isdir(path):
        raise Refusal(_ALREADY_EXISTS, f"directory already exists: {path}")
    if os.path.lexists(path):
        raise Refusal(_INVALID_ARGUMENT, f"path already exists but it is not a directory: {path}")
    _owner.make_directories(path)
    return {"entry": _entry(path)}


def move(source: str, destination: str) -> Any:
    """Move a file or a directory."""
    source, destination = _resolved(source), _resolved(destination)
    os.lstat(source)
    _owner.make_directories(os.path.dirname(destination))
    os.rename(source, destination)
    return {"entry": _entry(destination)}


def remove(path: str) -> Any:
    """Remove a file, or a directory with its contents; a path that does not exist is not an error."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    return {}


def list_directory(path: str, depth: int) -> Any:
    """Return the entries of a directory, and of those in it down to a depth, in the order of their names."""
    if not os.path.isdir(path):
        os.stat(path)
        raise Refusal(_INVALID_ARGUMENT, f"path is not a directory: {path}")
    entries: list[Any] = []
    _collect(path, depth, entries)
    return {"entries": entries}


def read(path: str, offset: int, size: int) -> Any:
    """Return a part of a file."""
    if os.path.isdir(path):
        raise Refusal(_INVALID_ARGUMENT, f"path is a directory: {path}")
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Refusal(_INVALID_ARGUMENT, f"path is not a file: {path}")
        data = os.pread(file.fileno(), size, offset)
    return {"data": base64.b64encode(data).decode(), "size": status.st_size}


def write(path: str, offset: int, data: str, metadata: dict[str, str] | None) -> Any:
    """Write a part of a file, the first one of which creates or empties it; return its entry after the last one.

    Args:
        path: The file.
        offset: Number of bytes before the part.
        data: The bytes in base64.
        metadata: The file's metadata, with the last part only.
    """
    if os.path.isdir(path):
        raise Refusal(_INVALID_ARGUMENT, f"path is a directory: {path}")
    flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(path, flags) if offset else _created(path, flags), "wb", buffering=0) as file:
        content = memoryview(base64.b64decode(data))
        while content:
            written = os.pwrite(file.fileno(), content, offset)
            content, offset = content[written:], offset + written
        if metadata is None:
            return {}
        _describe(file.fileno(), metadata)
    entry = _entry(path)
    written_entry = {"path": entry["path"], "name": entry["name"], "type": "file"}
    return {"file": {**written_entry, "metadata": entry["metadata"]} if "metadata" in entry else written_entry}


def watch(number: int, path: str, recursive: bool, include_entry: bool) -> Any:
    """Watch a directory."""
    if not os.path.isdir(path):
        os.stat(path)
        raise Refusal(_INVALID_ARGUMENT, f"path is not a directory: {path}")
    _watchers[number] = Watcher(path, recursive, include_entry)
    return {}


def take_events(number: int) -> Any:
    """Return the events of a watched directory since the last call."""
    if number not in _watchers:
        raise Refusal(_NOT_FOUND, "watcher not found")
    return {"events": _watchers[number].take()}


def unwatch(number: int) -> Any:
    """Stop watching a directory."""
    _watchers.pop(number, None)
    return {}


def _created(path: str, flags: int) -> int:
    _owner.make_directories(os.path.dirname(path))
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags | os.O_TRUNC)
    _scan()
    _owner.take(descriptor)
    os.fchmod(descriptor, 0o644)
    _scan()
    return descriptor


def _scan() -> None:
    """Compare all watched directories, and announce their events."""
    for number, watcher in _watchers.items():
        if watcher.scan():
            _send({"id": 0, "changed": number})


def _describe(descriptor: int, metadata: dict[str, str]) -> None:
    for name in os.listxattr(descriptor):
        if name.startswith(_PREFIX):
            os.removexattr(descriptor, name)
    for name, value in metadata.items():
        os.setxattr(descriptor, _PREFIX + name, value.encode())


def _collect(path: str, depth: int, entries: list[Any]) -> None:
    for name in sorted(os.listdir(path)):
        inner = os.path.join(path, name)
        try:
            entries.append(_entry(inner))
            if len(entries) > _MAX_ENTRIES:
                raise Refusal(_RESOURCE_EXHAUSTED, f"the directory has more than {_MAX_ENTRIES} entries")
            if depth > 1 and os.path.isdir(inner) and not os.path.islink(inner):
                _collect(inner, depth - 1, entries)
        except OSError:
            # Removed in the meantime, or not readable.
            continue


def _entry(path: str) -> dict[str, Any]:
    status = os.lstat(path)
    entry: dict[str, Any] = {
        "name": _shown(os.path.basename(path) or "/"),
        "type": _DIRECTORY if stat.S_ISDIR(status.st_mode) else _FILE if stat.S_ISREG(status.st_mode) else _UNSPECIFIED,
        "path": _shown(path),
        "size": str(status.st_size),
        "mode": stat.S_IMODE(status.st_mode),
        "permissions": stat.filemode(status.st_mode),
        "owner": _name_of(pwd.getpwuid, status.st_uid),
        "group": _name_of(grp.getgrgid, status.st_gid),
        "modifiedTime": _time(status.st_mtime_ns),
    }
    if stat.S_ISLNK(status.st_mode):
        entry["symlinkTarget"] = _shown(os.path.realpath(path))
        entry["permissions"] = "L" + entry["permissions"][1:]
        entry["type"] = _DIRECTORY if os.path.isdir(path) else _FILE if os.path.isfile(path) else _UNSPECIFIED
    try:
        names = [name for name in os.listxattr(path) if name.startswith(_PREFIX)]
        metadata = {name[len(_PREFIX) :]: os.getxattr(path, name).decode(errors="replace") for name in names}
    except OSError:
        metadata = {}
    return {**entry, "metadata": metadata} if metadata else entry


def _name_of(find: Any, number: int) -> str:
    try:
        return str(find(number)[0])
    except KeyError:
        return "user" if number in (os.getuid(), os.getgid()) else str(number)


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{rest:09}Z"


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")


def _resolved(path: str) -> str:
    """Return the absolute path that a client means."""
    if "\0" in path:
        raise Refusal(_INVALID_ARGUMENT, "path contains a null byte")
    if path == "~" or path.startswith("~/"):
        path = _owner.home + path[1:]
    return os.path.normpath(os.path.join(_owner.home, path))


_OPERATIONS = {
    function.__name__: function
    for function in (stat_path, make_directory, move, remove, list_directory, read, write, watch, take_events, unwatch)
}
_CODES = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR), _NOT_FOUND),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "permission_denied"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "no_space"),
}


def answer(line: bytes) -> dict[str, Any]:
    """Return the response to a request."""
    global _owner
    request = json.loads(line)
    arguments, user = request["arguments"], request["user"]
    try:
        _owner = FileOwner(user) if user else _OWN_USER
        if "path" in arguments:
            arguments["path"] = _resolved(arguments["path"])
        _scan()
        return {"id": request["id"], "result": _OPERATIONS[request["operation"]](**arguments)}
    except Refusal as error:
        return {"id": request["id"], "code": error.code, "message": str(error)}
    except OSError as error:
        path = arguments.get("path", error.filename or "")
        message = f"path does not exist: {path}" if error.errno == errno.ENOENT else f"{error.strerror}: {path}"
        return {"id": request["id"], "code": _CODES.get(error.errno or 0, "invalid_argument"), "message": message}
    except KeyError:
        return {"id": request["id"], "code": "unauthenticated", "message": f"invalid username: {user!r}"}
    except (UnicodeError, RecursionError) as error:
        return {"id": request["id"], "code": "invalid_argument", "message": str(error)}


def main() -> None:
    """Answer requests until the end of stdin, and announce the events of watched directories."""
    received = bytearray()
    pause = _SCAN_SECONDS
    while True:
        if select.select([0], [], [], pause if _watchers else None)[0]:
            data = os.read(0, 1 << 20)
            if not data:
                return
            received += data
            if b"\n" in data:
                *lines, received = received.split(b"\n")
                for line in lines:
                    _send(answer(bytes(line)))
        begin = time.monotonic()
        _scan()
        pause = max(_SCAN_SECONDS, (time.monotonic() - begin) / _SCAN_FRACTION)


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
