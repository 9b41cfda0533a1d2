"""OpenAPI document of OpenEnv's routes, generated from the types of the protocol."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from coding_gym_server.protocol import ObservationData, ResetOptions, Seconds, SessionState, StepAction

__all__ = ["HttpStep", "json_schema", "openapi_document"]

_REFERENCE = "#/components/schemas/{name}"


class HttpStep(msgspec.Struct, kw_only=True):
    """The body of ``POST /step``; unknown keys are ignored.

    Attributes:
        action: The action to execute.
        timeout_s: Wall-clock limit in seconds; takes precedence over the timeout of the action.
        request_id: Accepted and ignored, for compatibility with OpenEnv.
    """

    action: StepAction
    timeout_s: Seconds | None = None
    request_id: Annotated[str, msgspec.Meta(max_length=255)] | None = None


def json_schema(kind: type) -> dict[str, Any]:
    """Return the self-contained JSON Schema of a type, with its definitions and an object at the top level."""
    schema = msgspec.json.schema(kind)
    definitions = schema["$defs"]
    top = definitions.pop(kind.__name__)
    return {**top, "$defs": definitions} if definitions else dict(top)


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of OpenEnv's routes."""
    (step, reset, observation, state), components = msgspec.json.schema_components(
        [HttpStep, ResetOptions, ObservationData, SessionState], ref_template=_REFERENCE
    )
    anything: dict[str, Any] = {"type": "object"}
    guarded = {"401": _content("The server requires a token", anything)}
    bounded = {**guarded, "413": _content("The body is too large", anything)}
    refused = {**bounded, "422": _content("The body is invalid", anything), "503": _content("No session is free", anything)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "coding_gym", "version": "1.0.0"},
        "paths": {
            "/health": {"get": _operation("Health of the server", anything)},
            "/metadata": {"get": _operation("Metadata of the environment", anything, refused=guarded)},
            "/schema": {"get": _operation("JSON Schemas of action, observation and state", anything, refused=guarded)},
            "/state": {"get": _operation("The state of a fresh episode", state, refused=guarded)},
            "/reset": {"post": _operation("Begin an episode", observation, reset, refused, required=False)},
            "/step": {"post": _operation("Run code in a new session", observation, step, refused)},
            "/mcp": {"post": _operation("JSON-RPC 2.0 of the Model Context Protocol", anything, {}, bounded, required=False)},
        },
        "components": {"schemas": components},
    }


def _operation(
    summary: str,
    answer: dict[str, Any],
    body: dict[str, Any] | None = None,
    refused: dict[str, Any] | None = None,
    *,
    required: bool = True,
) -> dict[str, Any]:
    operation: dict[str, Any] = {"summary": summary, "responses": {"200": _content("OK", answer), **(refused or {})}}
    if body is not None:
        operation["requestBody"] = {"required": required, "content": {"application/json": {"schema": body}}}
    return operation


def _content(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
