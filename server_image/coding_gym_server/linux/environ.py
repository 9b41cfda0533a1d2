"""Temporary changes of the process environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

__all__ = ["temporary_environ"]


@contextlib.contextmanager
def temporary_environ(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables and restore their previous values on exit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
