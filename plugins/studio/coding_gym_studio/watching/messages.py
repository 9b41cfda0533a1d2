"""Messages between a trainer and ``coding-gym watch``: requests, and a response to each, over a Unix socket.

A message is its length, four bytes in network order, and msgpack. The trainer sends nothing unasked but ``Farewell``, so that a
slow reader lets no data pile up there.
"""

from __future__ import annotations

import socket
import struct

import msgspec

__all__ = [
    "VERSION",
    "Changes",
    "ChangesRequest",
    "Farewell",
    "Hello",
    "History",
    "HistoryRequest",
    "PoolRow",
    "Reply",
    "Request",
    "ScreenReply",
    "ScreenRequest",
    "SessionRow",
    "StepRow",
    "Summary",
    "receive",
    "send",
]

VERSION = 1
"""Version of these messages."""

_LENGTH = struct.Struct("!I")
_LARGEST = 64 << 20


class SessionRow(msgspec.Struct, array_like=True):
    """State of a session.

    Attributes:
        id: Its number in the trainer's process.
        kind: Id of the environment.
        language: Language of its actions.
        group: Number of its vector environment; None for a single environment.
        index: Its index there, or among the single environments.
        has_screen: Whether it has a screen.
        state: ``idle``, ``waiting``, ``resetting``, ``running``, ``ended`` or ``closed``.
        since: When that state began, in seconds since the epoch.
        label: Name of the episode, such as the id of its task; None without one.
        episodes: Number of its episodes.
        steps: Number of steps of the episode.
        all_steps: Number of all its steps.
        action: The last action, clipped.
        outcome: Outcome of the last step; None before the first.
        reward: Reward of the last step.
        episode_return: Sum of the rewards of the episode.
        tests: Numbers of passed and of all hidden tests of the last graded step.
        seconds: Duration of the last step.
        picture: Number of the screen's current picture, 0 if it is black.
    """

    id: int
    kind: str
    language: str
    group: int | None
    index: int
    has_screen: bool
    state: str
    since: float
    label: str | None
    episodes: int
    steps: int
    all_steps: int
    action: str
    outcome: str | None
    reward: float
    episode_return: float
    tests: tuple[int, int] | None
    seconds: float
    picture: int


class StepRow(msgspec.Struct):
    """A step of a session, with texts cut in the middle.

    Attributes:
        number: Number of the step in its episode, from 1.
        episode: Number of the episode, from 1.
        action: The action.
        stdout: Its output.
        stderr: Its error output.
        exit_code: Its exit code.
        outcome: Its outcome.
        reward: Its reward.
        tests: Numbers of passed and of all hidden tests; None if it was not graded.
        seconds: Its duration.
        at: When it ended, in seconds since the epoch.
    """

    number: int
    episode: int
    action: str
    stdout: str
    stderr: str
    exit_code: int
    outcome: str
    reward: float
    tests: tuple[int, int] | None
    seconds: float
    at: float


class PoolRow(msgspec.Struct, kw_only=True):
    """State of a pool of sandboxes; see ``PoolStats``."""

    sandboxes: int
    idle: int
    busy: int
    starting: int
    waiting: int
    waits: int
    wait_seconds: float
    lost: int
    failed: int


class Summary(msgspec.Struct, kw_only=True):
    """Figures of a process.

    Attributes:
        now: The time, in seconds since the epoch.
        rate: Steps per second of the last seconds.
        minute_rate: Steps per second of the last minute, or since the first step.
        rates: Steps of each of the last seconds, at most 120, the oldest first.
        steps: Number of all steps.
        episodes: Number of all episodes.
        outcomes: Number of all steps by outcome.
        minute_outcomes: Number of steps of the last minute by outcome.
        step_seconds: Durations of recent steps in ascending order: a sample of at most 80, with the longest.
        reset_seconds: The same of recent resets, including waits.
        wait_seconds: The same of recent waits for sandboxes.
        waits: Number of all waits.
        pools: The pools of the process.
    """

    now: float
    rate: float
    minute_rate: float
    rates: list[int]
    steps: int
    episodes: int
    outcomes: dict[str, int]
    minute_outcomes: dict[str, int]
    step_seconds: list[float]
    reset_seconds: list[float]
    wait_seconds: list[float]
    waits: int
    pools: list[PoolRow]


class ChangesRequest(msgspec.Struct, tag="changes"):
    """Asks for the sessions that have changed since the last request of the connection."""


class HistoryRequest(msgspec.Struct, tag="history"):
    """Asks for the last steps of a session."""

    session: int


class ScreenRequest(msgspec.Struct, tag="screen"):
    """Asks for the screen of a session, as of its last step or reset."""

    session: int


class Hello(msgspec.Struct, tag="hello", kw_only=True):
    """The first message, sent by the trainer.

    Attributes:
        version: Version of the messages.
        name: Name of the trainer.
        pid: Id of the process.
        root: Id of the trainer's first process, which differs from ``pid`` in its workers.
        command: Its command line, clipped.
        started: When it began to publish, in seconds since the epoch.
    """

    version: int
    name: str
    pid: int
    root: int
    command: str
    started: float


class Changes(msgspec.Struct, tag="changes"):
    """Changes since the last request of the connection, which the first contains all sessions of.

    Attributes:
        sessions: Sessions that have changed.
        removed: Numbers of sessions that are gone.
        summary: Figures of the process.
    """

    sessions: list[SessionRow]
    removed: list[int]
    summary: Summary


class History(msgspec.Struct, tag="history"):
    """The last steps of a session, the oldest first."""

    steps: list[StepRow]


class ScreenReply(msgspec.Struct, tag="screen"):
    """The screen of a session.

    Attributes:
        number: Number of the picture.
        width: Width in pixels.
        height: Height in pixels.
        rgb: Its RGB pixels, compressed with Zstandard; None if the screen is black.
    """

    number: int
    width: int
    height: int
    rgb: bytes | None


class Farewell(msgspec.Struct, tag="farewell"):
    """The last message, sent when the trainer ends in an orderly way.

    Attributes:
        changes: The last changes.
    """

    changes: Changes


Request = ChangesRequest | HistoryRequest | ScreenRequest
Reply = Hello | Changes | History | ScreenReply | Farewell

_encoder = msgspec.msgpack.Encoder()


def send(connection: socket.socket, message: Request | Reply) -> None:
    """Send a message.

    Raises:
        OSError: If the connection fails, or its timeout expires.
    """
    data = _encoder.encode(message)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> bytes | None:
    """Receive an encoded message; None if the other end has closed the connection.

    Raises:
        OSError: If the connection fails, its timeout expires, or a message is too long.
    """
    head = _receive_exactly(connection, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > _LARGEST:
        message = f"Expected a message of at most {_LARGEST} bytes, got {length}"
        raise ConnectionError(message)
    return _receive_exactly(connection, length)


def _receive_exactly(connection: socket.socket, count: int) -> bytes | None:
    chunks = bytearray()
    while len(chunks) < count:
        chunk = connection.recv(min(count - len(chunks), 1 << 20))
        if not chunk:
            return None
        chunks += chunk
    return bytes(chunks)
