"""Validation of JSON body fields, with errors in pydantic's format for clients that parse it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from coding_gym_server.protocol import ErrorCode
from coding_gym_server.protocol.errors import DECODING_ERRORS
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
        except DECODING_ERRORS as error:
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

    def number(self, name: str, default: float, *, is_integer: bool = False) -> float:
        """Return a field with a number, or the default if it is absent or invalid. Numbers in strings count, as in pydantic.

        Args:
            name: The name of the field.
            default: The default.
            is_integer: Whether it must be an integer.
        """
        if name not in self._document:
            return default
        value = self._document[name]
        kind, noun = ("int", "integer") if is_integer else ("float", "number")
        if isinstance(value, str):
            problem, reason = f"{kind}_parsing", f", unable to parse string as {'an' if is_integer else 'a'} {noun}"
        elif is_integer and isinstance(value, float):
            problem, reason = "int_from_float", ", got a number with a fractional part"
        else:
            problem, reason = f"{kind}_type", ""
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            with contextlib.suppress(ValueError, OverflowError):
                number = float(int(value)) if is_integer and isinstance(value, str) else float(value)
                if math.isfinite(number) and not (is_integer and number % 1):
                    return number
        self._add(problem, [name], f"Input should be a valid {noun}{reason}", value)
        return default

    def choice(self, name: str, values: Sequence[str], *, default: str | None = None) -> str:
        """Return a field with one of several values.

        Args:
            name: The name of the field.
            values: The values.
            default: The value if it is absent; None if it may not be.
        """
        if name not in self._document:
            if default is None:
                self._add("missing", [name], "Field required", self._document)
            return default or ""
        value = self._document[name]
        if isinstance(value, str) and value in values:
            return value
        quoted = [repr(one) for one in values]
        expected = " or ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
        self._add("literal_error", [name], f"Input should be {expected}", value, expected=expected)
        return ""

    def strings(self, name: str, *, optional: bool = True) -> list[str]:
        """Return a field with a list of strings; empty if it is absent or invalid.

        Args:
            name: The name of the field.
            optional: Whether the field may be absent; otherwise that is a validation error.
        """
        if name not in self._document:
            if not optional:
                self._add("missing", [name], "Field required", self._document)
            return []
        value = self._document[name]
        if not isinstance(value, list):
            self._add("list_type", [name], "Input should be a valid list", value)
            return []
        for index, item in enumerate(value):
            if not isinstance(item, str):
                self._add("string_type", [name, index], "Input should be a valid string", item)
        return value

    def texts(self, name: str) -> dict[str, str | None]:
        """Return a field with strings or nulls by name; empty if it is absent or invalid."""
        value = self._document.get(name, {})
        if not isinstance(value, dict):
            self._add("dict_type", [name], "Input should be a valid dictionary", value)
            return {}
        for key, item in value.items():
            if item is not None and not isinstance(item, str):
                self._add("string_type", [name, key], "Input should be a valid string", item)
        return value

    def check(self) -> None:
        """Raise the validation errors that have been collected.

        Raises:
            BadRequestError: If a field is missing or invalid.
        """
        if self._details:
            raise BadRequestError(ErrorCode.VALIDATION_ERROR, "Invalid request", self._details)

    def _add(self, kind: str, location: list[str | int], message: str, value: Any, **context: str) -> None:
        detail = {"type": kind, "loc": ["body", *location], "msg": message, "input": value}
        self._details.append({**detail, "ctx": context} if context else detail)
