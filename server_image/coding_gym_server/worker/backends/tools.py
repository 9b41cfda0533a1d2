"""Functions that backends with an import allowlist provide to user code instead of the modules that they block."""

from __future__ import annotations

import json
import sys
import traceback
from typing import Any

from coding_gym_server.worker.backends.python import users_frames

__all__ = ["format_exc", "safe_json_dumps"]


def format_exc() -> str:
    """Return the traceback of the exception being handled, as ``traceback.format_exc()`` does, without backend frames."""
    error = sys.exc_info()[1]
    if error is None:
        return "NoneType: None\n"
    return "".join(traceback.format_exception(type(error), error, users_frames(error)))


def safe_json_dumps(value: Any) -> str:
    """Serialize a value as JSON, with the ``repr`` of any object that is not JSON-serializable."""
    return json.dumps(value, default=repr)
