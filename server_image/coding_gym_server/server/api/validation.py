"""Validation of JSON body fields, with errors in pydantic's format for clients that parse it."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from coding_gym_server.protocol import ErrorCode
from coding_gym_server.server.api.codec import BadRequestError

__all__ = ["BodyValidator"]


class BodyValidator:
    """Extracts fields from a JSON body and collects their validation errors, which ``check`` raises.

    Args:
        body: The encoded JSON object; an empty body is treated as ``{}``.

    Raises:
        BadRequestError: If the body is not a JSON object.
    """

    def __init__(self, body: bytes) -> None:
        self._details: list[dict[str, Any]] = []
        try:
            document = msgspec.json.decode(body or b"{}")
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            self._add("json_invalid", [], f"JSON decode error: {error}", {})
            document = {}
        if not isinstance(document, dict):
            self._add("model_attributes_type", [], "Input should be a valid dictionary", document)
        self.check()
        self._document = document

    def string(self, name: str, *, optional: bool = False) -> str | None:
        """Return a string field, or None if it is absent, null or invalid.

        Args:
            name: The name of the field.
            optional: Whether the field may be absent or null; otherwise that is a validation error.
        """
        if name not in self._document:
            if not optional:
                self._add("missing", [name], "Field required", self._document)
            return None
        value = self._document[name]
        if isinstance(value, str) or (value is None and optional):
            return value
        self._add("string_type", [name], "Input should be a valid string", value)
        return None

    def variables(self, name: str) -> dict[str, str]:
        """Return a field with environment variables; empty if it is absent, null or not an object."""
        value = self._document.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._add("dict_type", [name], "Input should be a valid dictionary", value)
            return {}
        for key, item in value.items():
            if not isinstance(item, str):
                self._add("string_type", [name, key], "Input should be a valid string", item)
            elif not key or "=" in key or "\0" in key + item:
                self._add("value_error", [name, key], "No environment variable can have that name or value", item)
        return value

    def seconds(self, name: str) -> float | None:
        """Return a field with a positive number of seconds, or None if it is absent, null or invalid."""
        value = self._document.get(name)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and value > 0 and math.isfinite(value):
            return float(value)
        self._add("greater_than", [name], "Input should be a number greater than 0", value)
        return None

    def flag(self, name: str) -> bool:
        """Return a Boolean field, or False if it is absent, null or invalid."""
        value = self._document.get(name)
        if value is not None and not isinstance(value, bool):
            self._add("bool_type", [name], "Input should be a valid boolean", value)
        return value is True

    def check(self) -> None:
        """Raise the validation errors that have been collected.

        Raises:
            BadRequestError: If a field is missing or invalid.
        """
        if self._details:
            raise BadRequestError(ErrorCode.VALIDATION_ERROR, "Invalid request", self._details)

    def _add(self, kind: str, location: list[str], message: str, value: Any) -> None:
        self._details.append({"type": kind, "loc": ["body", *location], "msg": message, "input": value})
