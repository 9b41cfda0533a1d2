"""The doors of an environment."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from coding_gym.doors.exchanges import DoorLog, RawHeaders, Recording
from coding_gym.doors.targets import DoorTarget, check_port, check_target

if TYPE_CHECKING:
    from coding_gym.client.address import Address
    from coding_gym.doors.streams import DoorLink, DoorStream

__all__ = ["Door", "Doors"]


class Door:
    """A port of a session's loopback interface that leads to the trainer's side.

    Args:
        doors: What it belongs to.
        port: The port.
        target: Where it leads to.

    Attributes:
        port: The port.
        target: Where it leads to.
        log: The HTTP requests of the episode and their responses.
        connections: Number of connections of the episode.
    """

    def __init__(self, doors: Doors, port: int, target: DoorTarget) -> None:
        self._doors = doors
        self.port = check_port(port)
        check_target(target)
        self.target = target
        self.log = DoorLog()
        self.connections = 0

    @property
    def url(self) -> str:
        """URL of the door for programs of the session."""
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, stream: DoorStream) -> None:
        """Serve a connection of the session to its end.

        Raises:
            OSError: If it is broken.
        """
        # Most environments have no doors.
        from coding_gym.doors.serving import serve

        self.connections += 1
        await serve(self.target, stream, self.port, self._record)

    def _record(self, method: bytes, target: bytes, headers: RawHeaders) -> Recording:
        return self.log.record(self._doors.step, method, target, headers)

    def __repr__(self) -> str:
        return f"<Door {self.port} to {self.target}>"


class Doors(Mapping[int, Door]):
    """The doors of one environment, by port.

    Args:
        targets: Where they lead to.

    Raises:
        ConfigurationError: If a port or a target is invalid.

    Attributes:
        step: Number of steps of the episode that have begun.
    """

    def __init__(self, targets: Mapping[int, DoorTarget]) -> None:
        self._doors = {port: Door(self, port, target) for port, target in targets.items()}
        self._link: DoorLink | None = None
        self.step = 0

    def __getitem__(self, port: int) -> Door:
        return self._doors[port]

    def __iter__(self) -> Iterator[int]:
        return iter(self._doors)

    def __len__(self) -> int:
        return len(self._doors)

    def __repr__(self) -> str:
        return f"<Doors {sorted(self._doors)}>"

    @property
    def targets(self) -> dict[int, DoorTarget]:
        """Where they lead to."""
        return {port: door.target for port, door in self._doors.items()}

    def add(self, port: int, target: DoorTarget) -> Door:
        """Add a door, or let one lead elsewhere.

        Raises:
            ConfigurationError: If the port or the target is invalid.
        """
        door = self._doors[port] = Door(self, port, target)
        return door

    @contextlib.contextmanager
    def adding(self, port: int, target: DoorTarget) -> Iterator[Door]:
        """Add a door for a block that opens it; if that fails, all is as before. See ``add``."""
        before = self._doors.copy()
        try:
            yield self.add(port, target)
        except BaseException:
            self._doors = before
            raise

    def begin_episode(self) -> None:
        """Forget the last episode."""
        self.step = 0
        for door in self._doors.values():
            door.log.clear()
            door.connections = 0

    def connect(self, address: Address, session_id: str | None) -> None:
        """Serve the doors of a session, unless they are served already.

        Raises:
            TransportError: If the server does not permit it.
        """
        if session_id is not None and self._doors and (self._link is None or self._link.is_lost):
            # Most environments have no doors.
            from coding_gym.doors.streams import DoorLink

            self._link = DoorLink(address, session_id, self._serve)

    def disconnect(self) -> None:
        """End all connections. Idempotent."""
        link, self._link = self._link, None
        if link is not None:
            link.close()

    async def _serve(self, port: int, stream: DoorStream) -> None:
        door = self._doors.get(port)
        if door is not None:
            await door.serve(stream)
