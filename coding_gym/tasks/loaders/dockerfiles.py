"""What Dockerfiles of task folders have that sessions do not."""

from __future__ import annotations

import re

__all__ = ["has_entry_point"]


def has_entry_point(dockerfile: str) -> bool:
    """Return whether the last stage of a Dockerfile has an entry point of its own."""
    stage = re.split(r"^\s*FROM\s", dockerfile, flags=re.MULTILINE | re.IGNORECASE)[-1]
    found = re.findall(r"^\s*ENTRYPOINT\s+(.+)$", stage, re.MULTILINE | re.IGNORECASE)
    return bool(found) and found[-1].strip() not in ("[]", '[""]')
