"""Messages between the server and the launcher, which reports errors by ``ipc.messages.Failed``."""

from __future__ import annotations

from typing import ClassVar

import msgspec

__all__ = ["KillZygote", "StartZygote", "ZygoteStarted"]


class StartZygote(msgspec.Struct, tag=True):
    """Request to the launcher: start a zygote. Passes the zygote's channel and its stderr.

    Attributes:
        heap_bytes: Bytes to reserve for small objects.
        configuration: The zygote's configuration as JSON.
        environment: Its environment variables.
    """

    DESCRIPTORS: ClassVar[int] = 2

    heap_bytes: int
    configuration: str
    environment: dict[str, str]


class KillZygote(msgspec.Struct, tag=True):
    """Request to the launcher: kill a zygote that it has started. It has no response.

    Attributes:
        pid: Process id of the zygote.
    """

    pid: int


class ZygoteStarted(msgspec.Struct, tag=True):
    """Response to ``StartZygote``.

    Attributes:
        pid: Process id of the zygote.
    """

    pid: int
