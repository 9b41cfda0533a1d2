"""Users of a file system, as an engine finds them there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Account", "find_account"]

_LARGEST_ID = (1 << 32) - 2
_PASSWD_FIELDS, _GROUP_FIELDS = 7, 4


class Account(NamedTuple):
    """User with its groups.

    Attributes:
        user: Id of the user.
        group: Id of its group.
        groups: Ids of its supplementary groups.
        home: Its home directory.
    """

    user: int
    group: int
    groups: tuple[int, ...]
    home: str


def find_account(name: str, *, root: str = "/") -> Account:
    """Return a user of a file system; the id of one that does not exist has the group 0 and the home directory ``/``.

    Args:
        name: Name or id of the user, and perhaps that of the group behind a colon; root if empty.
        root: Root directory of the file system.

    Raises:
        ValueError: If there is no such user or group.
    """
    name, _, group_name = name.partition(":")
    users = list(_entries(f"{root}/etc/passwd", _PASSWD_FIELDS))
    groups = list(_entries(f"{root}/etc/group", _GROUP_FIELDS))
    entry = _find(users, name or "0")
    if entry is not None:
        user, group, home, member = int(entry[2]), int(entry[3]), entry[5], entry[0]
    elif _is_id(name) or not name:
        user, group, home, member = int(name or 0), 0, "", ""
    else:
        message = f"the user {name!r} is not in /etc/passwd"
        raise ValueError(message)
    if not group_name:
        others = tuple(int(other[2]) for other in groups if member and member in other[3].split(","))
        return Account(user, group, others, home or "/")
    found = _find(groups, group_name)
    if found is None and not _is_id(group_name):
        message = f"the group {group_name!r} is not in /etc/group"
        raise ValueError(message)
    return Account(user, int(group_name if found is None else found[2]), (), home or "/")


def _find(entries: list[list[str]], name: str) -> list[str] | None:
    """Return the entry of a user or group by its name or id."""
    return next((entry for entry in entries if entry[0] == name or entry[2] == name), None)


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(_LARGEST_ID)) and int(text) <= _LARGEST_ID


def _entries(path: str, fields: int) -> Iterator[list[str]]:
    """Yield the entries of a file such as ``/etc/passwd``, which may be missing, with all of their fields."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        entry = line.split(":")
        ids = entry[2:4] if fields == _PASSWD_FIELDS else entry[2:3]
        if ids and all(map(_is_id, ids)):
            yield [*entry, *[""] * (fields - len(entry))]
