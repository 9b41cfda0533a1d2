"""The fields of a JSON body, each fault described as pydantic describes it, for clients that read such descriptions."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from coding_gym_server.api.codec import BadRequestError
from coding_gym_server.protocol import ErrorCode

__all__ = ["Fields"]


class Fields:
    """Takes fields out of a body and collects what is wrong with them, for ``check``.

    Args:
        body: A JSON object; nothing at all counts as ``{}``.

    Raises:
        BadRequestError: It is no JSON object.
    """

    def __init__(self, body: bytes) -> None:
        self._faults: list[dict[str, Any]] = []
        try:
            document = msgspec.json.decode(body or b"{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            self._note("json_invalid", [], f"JSON decode error: {error}", {})
            document = {}
        if not isinstance(document, dict):
            self._note("model_attributes_type", [], "Input should be a valid dictionary", document)
        self.check()
        self._document = document

    def string(self, name: str, *, optional: bool = False) -> str | None:
        """Return a string; None for one that may be missing, or has a fault."""
        if name not in self._document:
            if not optional:
                self._note("missing", [name], "Field required", self._document)
            return None
        value = self._document[name]
        if isinstance(value, str) or (value is None and optional):
            return value
        self._note("string_type", [name], "Input should be a valid string", value)
        return None

    def variables(self, name: str) -> dict[str, str]:
        """Return environment variables."""
        value = self._document.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._note("dict_type", [name], "Input should be a valid dictionary", value)
            return {}
        for key, item in value.items():
            if not isinstance(item, str):
                self._note("string_type", [name, key], "Input should be a valid string", item)
            elif not key or "=" in key or "\0" in key + item:
                self._note("value_error", [name, key], "No environment variable can have that name or value", item)
        return value

    def seconds(self, name: str) -> float | None:
        """Return a positive number; None if it is missing or has a fault."""
        value = self._document.get(name)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and value > 0 and math.isfinite(value):
            return float(value)
        self._note("greater_than", [name], "Input should be a number greater than 0", value)
        return None

    def check(self) -> None:
        """Find out whether all fields are as they should be.

        Raises:
            BadRequestError: They are not.
        """
        if self._faults:
            raise BadRequestError(ErrorCode.VALIDATION_ERROR, "Invalid request", self._faults)

    def _note(self, kind: str, location: list[str], message: str, value: Any) -> None:
        self._faults.append({"type": kind, "loc": ["body", *location], "msg": message, "input": value})
