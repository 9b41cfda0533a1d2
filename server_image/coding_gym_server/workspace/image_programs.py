"""How programs of a session run in a container of another image: as the engine runs those of that image."""

from __future__ import annotations

import msgspec

from coding_gym_server.linux.accounts import Account, find_account
from coding_gym_server.workspace.layout import PRIVATE, Layout

__all__ = ["ImagePrograms", "programs_of"]

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The engine's default."""


class ImagePrograms(msgspec.Struct, kw_only=True, frozen=True):
    """User and directories of programs.

    Attributes:
        account: The user.
        layout: The directories, and the environment variables.
    """

    account: Account
    layout: Layout


def programs_of(environment: dict[str, str], user: str, directory: str, *, host_name: str) -> ImagePrograms:
    """Return what programs have that an engine runs with the settings of an image.

    Args:
        environment: Environment variables of the image.
        user: User of the image, and perhaps the group behind a colon, each a name or an id; root if empty.
        directory: Working directory of the image; ``/`` if empty.
        host_name: Name of the container.

    Raises:
        ValueError: If the image has no such user or group.
    """
    account = find_account(user)
    variables = {"PATH": _PATH, "HOSTNAME": host_name, "HOME": account.home, **environment}
    layout = Layout(
        work=directory or "/",
        home=variables["HOME"],
        temporary=PRIVATE.temporary,
        authority=PRIVATE.authority,
        environment=variables,
    )
    return ImagePrograms(account=account, layout=layout)
