"""How programs of a session run in a container of another image: as the engine runs those of that image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from coding_gym_server.workspace.layout import PRIVATE, Layout

__all__ = ["ImagePrograms", "programs_of"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The engine's default."""

_PASSWD_FIELDS, _GROUP_FIELDS = 7, 4


class ImagePrograms(msgspec.Struct, kw_only=True, frozen=True):
    """User and directories of programs.

    Attributes:
        user: Id of the user.
        group: Id of its group.
        groups: Ids of its supplementary groups.
        layout: The directories, and the environment variables.
    """

    user: int
    group: int
    groups: tuple[int, ...]
    layout: Layout


def programs_of(
    environment: dict[str, str], user: str, directory: str, *, host_name: str, root: Path = Path("/")
) -> ImagePrograms:
    """Return what programs have that an engine runs with the settings of an image.

    Args:
        environment: Environment variables of the image.
        user: User of the image, and perhaps the group behind a colon, each a name or an id; root if empty.
        directory: Working directory of the image; ``/`` if empty.
        host_name: Name of the container.
        root: Directory with the files of the image.

    Raises:
        ValueError: If the image has no such user or group.
    """
    name, _, group_name = user.partition(":")
    users = list(_entries(root / "etc/passwd", _PASSWD_FIELDS))
    groups = list(_entries(root / "etc/group", _GROUP_FIELDS))
    entry = _find(users, name or "0")
    if entry is None and name and not name.isdecimal():
        message = f"the image's user is {name!r}, whom its /etc/passwd does not have"
        raise ValueError(message)
    if entry is None:
        members, user_id, group_id, home = "", int(name or 0), 0, "/"
    else:
        members, user_id, group_id, home = entry[0], int(entry[2]), int(entry[3]), entry[5]
    others = tuple(int(group[2]) for group in groups if members and members in group[3].split(","))
    if group_name:
        group = _find(groups, group_name)
        if group is None and not group_name.isdecimal():
            message = f"the image's group is {group_name!r}, which its /etc/group does not have"
            raise ValueError(message)
        group_id, others = int(group_name if group is None else group[2]), ()
    variables = {"PATH": _PATH, "HOSTNAME": host_name, "HOME": home or "/", **environment}
    layout = Layout(
        work=directory or "/",
        home=variables["HOME"],
        temporary=PRIVATE.temporary,
        authority=PRIVATE.authority,
        environment=variables,
    )
    return ImagePrograms(user=user_id, group=group_id, groups=others, layout=layout)


def _find(entries: list[list[str]], name: str) -> list[str] | None:
    """Return the entry of a user or group by its name or id."""
    return next((entry for entry in entries if entry[0] == name or entry[2] == name), None)


def _entries(path: Path, fields: int) -> Iterator[list[str]]:
    """Yield the entries of a file such as ``/etc/passwd``, which may be missing, with all of their fields."""
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines():
        entry = line.split(":")
        ids = entry[2:4] if fields == _PASSWD_FIELDS else entry[2:3]
        if ids and all(part.isdecimal() for part in ids):
            yield [*entry, *[""] * (fields - len(entry))]
