"""Program that describes, collects and applies changes of directories, in a session and as its root.

``prepare`` describes what is below directories of a new session, ``collect`` writes what is different in another one, and
``apply`` makes these changes in the first. It never touches what is kept: paths that have the state of the image. ``changed``
names what has changed since; ``write``, ``read`` and ``remove`` are for single files. The program imports the standard library
only, and its interpreter is the server's.

The kernel sets the time of the last change of a file's status, which no program can choose: what has another one, or another
inode, has been changed.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import stat
import sys
from typing import Any, BinaryIO

_PERMISSIONS = 0o1777
"""Without the bits that set the user and the group."""
_CHUNK = 1 << 20
_OF_SERVER = ("/.coding-gym", "/.workspaces")
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link", stat.S_IFIFO: "pipe"}


def describe(directories: list[str] | None, excluded: list[str]) -> dict[str, Any]:
    """Return the status of what is below directories, by path: kind, mode, owner, group, size, and time of the last change.

    Args:
        directories: The directories; None for all of the image.
        excluded: Paths and names to leave out.
    """
    found: dict[str, Any] = {}
    left_out = {*excluded, *_mounted_files()}
    for directory in list_root() if directories is None else directories:
        with contextlib.suppress(FileNotFoundError):
            _describe(directory, os.lstat(directory), left_out, found)
    return found


def _mounted_files() -> set[str]:
    """Return the files that are mounted, such as the engine's ``/etc/hosts``: each session has its own."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        places = {line.split(" ")[4].encode().decode("unicode_escape") for line in lines}
    return {place for place in places if not os.path.isdir(place)}


def list_root() -> list[str]:
    """Return what is in ``/`` and has files of the image, or of programs: not what the kernel and the server have there."""
    kernels = {os.lstat(path).st_dev for path in ("/proc", "/sys", "/dev")}
    found = [entry.path for entry in os.scandir("/") if entry.stat(follow_symlinks=False).st_dev not in kernels]
    return sorted(path for path in found if not path.startswith(_OF_SERVER))


def prepare(directories: list[str] | None, kept: list[str], excluded: list[str], target: BinaryIO) -> None:
    """Write what a session has before any program has run in it, as JSON: real paths, and the state of the directories.

    Args:
        directories: Directories whose changes are to be carried; None for all of the image.
        kept: Paths that are to have the state of the image.
        excluded: Names whose changes are not carried.
        target: Where to write.
    """
    real = None if directories is None else sorted({os.path.realpath(path) for path in directories})
    if real is not None and "/" in real:
        real = None
    # Of a link, it and what it leads to.
    places = sorted({place for path in kept for place in (_place_of(path), os.path.realpath(path))})
    before = describe(real, [*excluded, *places])
    target.write(json.dumps({"directories": real, "kept": places, "before": before}).encode())


def _place_of(path: str) -> str:
    """Return a path whose directories are none behind links."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def changed(before: dict[str, Any], directories: list[str] | None, excluded: list[str]) -> list[str]:
    """Return the paths of what has changed since, except for directories."""
    now = describe(directories, excluded)
    differ = [path for path in before.keys() | now.keys() if before.get(path) != now.get(path)]
    return sorted(path for path in differ if (now.get(path) or before[path])[0] != "directory")


def _describe(path: str, status: os.stat_result, excluded: set[str], found: dict[str, Any]) -> None:
    kind = _KINDS.get(stat.S_IFMT(status.st_mode))
    # Sockets and devices are left out.
    if kind is None or path in excluded or os.path.basename(path) in excluded:
        return
    size = 0 if kind == "directory" else status.st_size
    found[path] = [kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, size, status.st_ctime_ns]
    if kind == "directory":
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    _describe(entry.path, entry.stat(follow_symlinks=False), excluded, found)


def collect(
    before: dict[str, Any], directories: list[str] | None, excluded: list[str], max_bytes: int, target: BinaryIO
) -> None:
    """Write what has changed since: a line of JSON for each entry, and the content of files behind theirs.

    Args:
        before: Description of the initial state.
        directories: As for ``describe``.
        excluded: As for ``describe``.
        max_bytes: Maximum size of the content, without holes.
        target: Where to write.

    Raises:
        ValueError: If it is exceeded.
    """
    now = describe(directories, excluded)
    for path in sorted(before.keys() - now.keys(), reverse=True):
        _write_entry(target, {"kind": "deleted", "path": path})
    left = max_bytes
    links: dict[tuple[int, int], str] = {}
    for path in sorted(now):
        if before.get(path) == now[path]:
            continue
        # What is below a directory may have changed, but not the directory itself. Programs may remove it meanwhile.
        if now[path][0] == "directory" and before.get(path, [None])[:4] == now[path][:4]:
            continue
        with contextlib.suppress(FileNotFoundError):
            left = _write_change(target, path, now[path], links, left)


def _write_change(target: BinaryIO, path: str, known: list[Any], links: dict[tuple[int, int], str], left: int) -> int:
    """Write what a path has become; return how many bytes may follow."""
    kind, mode, user, group, *_ = known
    status = os.lstat(path)
    entry = {"kind": kind, "path": path, "mode": mode & _PERMISSIONS, "user": user, "group": group}
    entry["modified"] = status.st_mtime_ns
    identity = (status.st_dev, status.st_ino)
    if kind == "file" and status.st_nlink > 1 and identity in links:
        _write_entry(target, {"kind": "hard link", "path": path, "target": links[identity]})
    elif kind == "file":
        links[identity] = path
        return _write_file(target, entry, left)
    elif kind == "link":
        _write_entry(target, {**entry, "target": os.readlink(path)})
    else:
        _write_entry(target, entry)
    return left


def _write_file(target: BinaryIO, entry: dict[str, Any], left: int) -> int:
    """Write a file with its parts between holes; return how many bytes may follow."""
    with open(os.open(entry["path"], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        parts = list(_parts_of(file.fileno(), size))
        left -= sum(length for _, length in parts)
        if left < 0:
            message = f"the changes are larger than permitted; {entry['path']} is the first beyond"
            raise ValueError(message)
        _write_entry(target, {**entry, "size": size, "parts": parts})
        for offset, length in parts:
            file.seek(offset)
            while length:
                # A file that another program truncates meanwhile is filled up.
                data = file.read(min(length, _CHUNK)) or bytes(min(length, _CHUNK))
                target.write(data)
                length -= len(data)
    return left


def _parts_of(descriptor: int, size: int) -> Any:
    """Yield offset and length of the parts of a file that are not holes."""
    offset = 0
    while offset < size:
        try:
            start = os.lseek(descriptor, offset, os.SEEK_DATA)
        except OSError:
            return
        offset = min(os.lseek(descriptor, start, os.SEEK_HOLE), size)
        if start < offset:
            yield start, offset - start


def _write_entry(target: BinaryIO, entry: dict[str, Any]) -> None:
    target.write(json.dumps(entry).encode() + b"\n")


def apply(source: BinaryIO, directories: list[str] | None, kept: list[str], excluded: list[str]) -> None:
    """Make the changes that ``collect`` has written, without following links, and below directories only.

    Args:
        source: The changes. The session that they are from can write any.
        directories: As for ``prepare``.
        kept: Real paths that stay as they are, with what is below them.
        excluded: As for ``prepare``.

    Raises:
        ValueError: If one is elsewhere, or malformed.
    """
    made = []
    tops = set(list_root() if directories is None else directories)
    for line in source:
        entry = json.loads(line)
        path = entry["path"]
        for place in (path, entry["target"]) if entry["kind"] == "hard link" else (path,):
            above = f"/{place.lstrip('/').partition('/')[0]}"
            if directories is None and not (os.path.lexists(above) or above.startswith(_OF_SERVER)):
                # The other session has made it.
                tops.add(above)
            if os.path.normpath(place) != place or not any(_is_below(place, top) for top in tops):
                message = f"{place!r} is not below {', '.join(sorted(tops))}"
                raise ValueError(message)
        is_kept = any(_is_below(path, other) for other in kept) or not {*path.split("/")}.isdisjoint(excluded)
        if directories is not None and path in tops and entry["kind"] != "deleted":
            # A new session need not have what they are in.
            _make_directories(os.path.dirname(path))
        # A directory that has what is kept stays one.
        replaces_kept = entry["kind"] != "directory" and any(_is_below(other, path) for other in kept)
        with _opened_parent(path) as parent:
            if parent is None or is_kept or replaces_kept:
                _skip(source, entry)
            elif entry["kind"] == "deleted":
                _remove(os.path.basename(path), parent)
            else:
                _make(source, entry, os.path.basename(path), parent)
                made += [entry] if entry["kind"] == "directory" else []
    for entry in reversed(made):
        with _opened_parent(entry["path"]) as parent:
            if parent is not None:
                _set_status(entry, os.path.basename(entry["path"]), parent)


def _is_below(path: str, other: str) -> bool:
    return path == other or path.startswith(f"{other}/")


@contextlib.contextmanager
def _opened_parent(path: str) -> Any:
    """Open the directory that a path is in; None if that is none, or behind a link."""
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        for part in filter(None, path.split("/")[1:-1]):
            step = os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = step
    except OSError:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _make(source: BinaryIO, entry: dict[str, Any], name: str, parent: int) -> None:
    kind = entry["kind"]
    if kind == "directory":
        try:
            is_directory = stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode)
        except FileNotFoundError:
            is_directory = False
        if not is_directory:
            _remove(name, parent)
            os.mkdir(name, 0o700, dir_fd=parent)
        return
    _remove(name, parent)
    if kind == "hard link":
        with _opened_parent(entry["target"]) as other:
            if other is not None:
                os.link(os.path.basename(entry["target"]), name, src_dir_fd=other, dst_dir_fd=parent, follow_symlinks=False)
        return
    if kind == "file":
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(name, flags, 0o600, dir_fd=parent), "wb") as file:
            for offset, length in entry["parts"]:
                file.seek(offset)
                _copy(source, file, length)
            file.truncate(entry["size"])
    elif kind == "link":
        os.symlink(entry["target"], name, dir_fd=parent)
    elif kind == "pipe":
        os.mkfifo(name, 0o600, dir_fd=parent)
    else:
        message = f"unknown kind of entry: {kind!r}"
        raise ValueError(message)
    _set_status(entry, name, parent)


def _set_status(entry: dict[str, Any], name: str, parent: int) -> None:
    os.chown(name, entry["user"], entry["group"], dir_fd=parent, follow_symlinks=False)
    descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=parent)
    try:
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            os.chmod(f"/proc/self/fd/{descriptor}", entry["mode"] & _PERMISSIONS)
    finally:
        os.close(descriptor)
    os.utime(name, ns=(entry["modified"], entry["modified"]), dir_fd=parent, follow_symlinks=False)


def _copy(source: BinaryIO, target: Any, length: int) -> None:
    while length:
        data = source.read(min(length, _CHUNK))
        if not data:
            message = "the changes end in the middle of a file"
            raise ValueError(message)
        target.write(data)
        length -= len(data)


def _skip(source: BinaryIO, entry: dict[str, Any]) -> None:
    with open(os.devnull, "wb") as target:
        for _, length in entry.get("parts", ()):
            _copy(source, target, length)


def _remove(name: str, parent: int) -> None:
    """Remove an entry, if it exists, with what is below it."""
    try:
        is_directory = stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode)
    except FileNotFoundError:
        return
    if not is_directory:
        os.unlink(name, dir_fd=parent)
        return
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        for inner in os.listdir(descriptor):
            _remove(inner, descriptor)
    finally:
        os.close(descriptor)
    try:
        os.rmdir(name, dir_fd=parent)
    except OSError as error:
        # The root directory of a mount, as are those of a session's root directory.
        if error.errno != errno.EBUSY:
            raise


def write(files: dict[str, list[Any]]) -> None:
    """Write files, and the directories that they are in. What is in their place is removed.

    A path that ends with a slash is a directory that all users can write.
    """
    for path, (content, mode) in files.items():
        _make_directories(os.path.dirname(path))
        if path.endswith("/"):
            descriptor = os.open(os.path.realpath(path), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            os.fchmod(descriptor, 0o777)
            os.close(descriptor)
            continue
        with _opened_parent(os.path.realpath(os.path.dirname(path)) + "/.") as parent:
            name = os.path.basename(path)
            _remove(name, parent)
            with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=parent), "wb") as file:
                os.fchmod(file.fileno(), mode)
                file.write(base64.b64decode(content))


def read(path: str, limit: int, target: BinaryIO) -> None:
    """Write the content of a file, up to a number of bytes."""
    # A pipe in its place would block.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        target.write(file.read(limit) or b"")


def remove(paths: list[str]) -> None:
    """Remove what is at some paths."""
    for path in paths:
        with _opened_parent(os.path.realpath(os.path.dirname(path)) + "/.") as parent:
            if parent is not None:
                _remove(os.path.basename(path), parent)


def _make_directories(path: str) -> None:
    if not os.path.isdir(path):
        _make_directories(os.path.dirname(path))
        with _opened_parent(os.path.realpath(os.path.dirname(path)) + "/.") as parent:
            # Such as a link that leads nowhere.
            _remove(os.path.basename(path), parent)
        os.mkdir(path)


def main() -> None:
    """Do what the first line of standard input says: commands as JSON, each with its arguments.

    What follows is for ``apply``.
    """
    source, target = sys.stdin.buffer, sys.stdout.buffer
    for command, arguments in json.loads(source.readline()):
        _execute(command, arguments, source, target)
    target.flush()


def _execute(command: str, arguments: dict[str, Any], source: BinaryIO, target: BinaryIO) -> None:
    match command:
        case "prepare":
            prepare(**arguments, target=target)
        case "changed":
            target.write(json.dumps(changed(**arguments)).encode())
        case "collect":
            collect(**arguments, target=target)
        case "apply":
            apply(source, **arguments)
        case "write":
            write(**arguments)
        case "read":
            read(**arguments, target=target)
        case "remove":
            remove(**arguments)
        case "where":
            target.write(os.getcwd().encode())


if __name__ == "__main__":
    main()
