"""Functions that the backends with a whitelist give to user code, in the place of modules that they keep from it."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from coding_gym_server.backends.python import users_frames

__all__ = ["format_exc", "safe_json_dumps"]


def format_exc() -> str:
    """Return the traceback of the exception that is being handled, as ``traceback.format_exc()`` does."""
    error = sys.exc_info()[1]
    if error is None:
        return "NoneType: None\n"
    return "".join(traceback.format_exception(type(error), error, users_frames(error)))


def safe_json_dumps(value: Any) -> str:
    """Return a value as JSON, with the ``repr`` of what JSON cannot hold in its place."""
    return json.dumps(value, default=repr)
