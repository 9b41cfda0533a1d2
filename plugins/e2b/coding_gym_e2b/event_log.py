"""Log of an E2B sandbox, as E2B's control plane returns it."""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime
from typing import Any

__all__ = ["EventLog", "as_line", "timestamp"]

_MAX_ENTRIES = 1000
_SHOWN_CHARS = 2000


class EventLog:
    """Bounded log of events: the newest replace the oldest."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, dict[str, Any]]] = deque(maxlen=_MAX_ENTRIES)

    def write(self, message: str, level: str = "info", **fields: object) -> None:
        """Add an entry.

        Args:
            message: The event.
            level: ``debug``, ``info``, ``warn`` or ``error``.
            **fields: Details.
        """
        now = datetime.now(UTC)
        details = {name: str(value)[:_SHOWN_CHARS] for name, value in fields.items()}
        entry = {"timestamp": timestamp(now), "level": level, "message": message, "fields": details}
        self._entries.append((int(now.timestamp() * 1000), entry))

    def entries(
        self, *, start: int | None = None, limit: int | None = None, newest_first: bool = False
    ) -> list[dict[str, Any]]:
        """Return entries.

        Args:
            start: Moment of the first one in milliseconds since the epoch; of the last one if the newest come first.
            limit: Maximum number.
            newest_first: Whether they are in reverse order.
        """
        found = [
            entry for moment, entry in self._entries if start is None or (moment <= start if newest_first else moment >= start)
        ]
        return (found[::-1] if newest_first else found)[:limit]


def as_line(entry: dict[str, Any]) -> dict[str, str]:
    """Return an entry as a line of JSON with a time."""
    line = {"level": entry["level"], "logger": "envd", "message": entry["message"], **entry["fields"]}
    return {"timestamp": entry["timestamp"], "line": json.dumps(line)}


def timestamp(moment: datetime) -> str:
    """Return a time as E2B's API has it."""
    return moment.isoformat().replace("+00:00", "Z")
