"""OpenAPI document of the HTTP routes, generated from the types of the protocol."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from coding_gym_server.protocol import ObservationData, ResetOptions, Seconds, SessionState, StepAction
from coding_gym_server.protocol.processes import (
    CompletedProcess,
    ProcessInfo,
    ProcessRequest,
    SignalRequest,
    TerminalSize,
)

__all__ = ["HttpStep", "json_schema", "openapi_document"]

_REFERENCE = "#/components/schemas/{name}"
_PROCESS_TYPES = (ProcessRequest, CompletedProcess, ProcessInfo, SignalRequest, TerminalSize)


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
    """Return the OpenAPI 3.1 document of the server."""
    (step, reset, observation, state, *processes), components = msgspec.json.schema_components(
        [HttpStep, ResetOptions, ObservationData, SessionState, *_PROCESS_TYPES], ref_template=_REFERENCE
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
            **_interpreter_paths(refused),
            **_file_paths("/files", guarded),
            **_file_paths("/sessions/{session}/files", guarded),
            **_process_paths("/sessions/{session}", guarded, *processes),
            **_process_paths("/contexts/{session}", guarded, *processes),
        },
        "components": {"schemas": components},
    }


def _interpreter_paths(refused: dict[str, Any]) -> dict[str, Any]:
    string, strings = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}
    context = {
        "type": "object",
        "properties": {"id": string, "language": string, "cwd": string},
        "required": ["id", "language", "cwd"],
    }
    execution = {
        "type": "object",
        "properties": {
            "code": string,
            "context_id": _or_null(string),
            "language": _or_null(string),
            "env_vars": _or_null(strings),
            "timeout": _or_null({"type": "number", "exclusiveMinimum": 0}),
            "quotes": _or_null({"type": "boolean"}),
        },
        "required": ["code"],
    }
    creation = {"type": "object", "properties": {"language": _or_null(string), "cwd": _or_null(string)}}
    missing = {"404": _text("Context not found")}
    failed = {"500": _text("Unknown language, or its interpreter does not start")}
    execute = _operation("Run code and stream its output, one JSON object per line", string, execution)
    execute["responses"] = {
        "200": {"description": "OK", "content": {"application/x-ndjson": {"schema": string}}},
        **refused,
        **missing,
        **failed,
        "400": _text("A context and a language are mutually exclusive"),
    }
    create = _operation(
        "Start an interpreter", context, creation, {**refused, **failed, "400": _text("Not a directory")}, required=False
    )
    name = _parameter("id", "path")
    return {
        "/execute": {"post": execute},
        "/contexts": {
            "get": _operation("All contexts", {"type": "array", "items": context}, refused={"401": refused["401"]}),
            "post": create,
        },
        "/contexts/{id}/restart": {
            "post": {
                **_operation("Restart the context", {"type": "null"}, refused={**refused, **missing, **failed}),
                "parameters": [name],
            }
        },
        "/contexts/{id}/interrupt": {
            "post": {
                **_operation("Interrupt what runs in the context", {"type": "null"}, refused={**refused, **missing}),
                "parameters": [name],
            }
        },
        "/contexts/{id}": {
            "delete": {
                **_operation("End a context", {"type": "null"}, refused={**refused, **missing, **failed}),
                "parameters": [name],
            }
        },
    }


def _process_paths(
    prefix: str,
    guarded: dict[str, Any],
    request: dict[str, Any],
    completed: dict[str, Any],
    info: dict[str, Any],
    signal: dict[str, Any],
    terminal: dict[str, Any],
) -> dict[str, Any]:
    refused = {
        **guarded,
        "404": _text("The session or process does not exist"),
        "413": _content("The body is too large", {"type": "object"}),
        "422": _text("The body is invalid"),
        "503": _text("The session cannot start a process"),
    }
    starting = {**refused, "429": _text("The session has too many processes")}
    possible = {**refused, "409": _text("The state of the process does not permit it")}
    events = {"200": {"description": "Events", "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}
    done = {"204": {"description": "Done"}}
    session, process = _parameter("session", "path"), _parameter("process", "path")
    one = f"{prefix}/processes/{{process}}"
    start = _operation("Start a process and stream its events, one JSON object per line", {}, request)
    send = {"required": True, "content": {"application/octet-stream": {}}}
    changes = {"signal": ("Send a signal", signal), "terminal": ("Resize the terminal", terminal)}
    return {
        f"{prefix}/exec": {"parameters": [session], "post": _operation("Run a process", completed, request, starting)},
        f"{prefix}/processes": {
            "parameters": [session],
            "get": _operation("List the processes", {"type": "array", "items": info}, refused=refused),
            "post": {**start, "responses": {**events, **starting}},
        },
        one: {
            "parameters": [session, process],
            "get": {"summary": "Stream the events of a process", "responses": {**events, **refused}},
        },
        f"{one}/stdin": {
            "parameters": [session, process, {**_parameter("end", "query"), "required": False}],
            "post": {"summary": "Write to stdin", "requestBody": send, "responses": {**done, **possible}},
        },
        **{
            f"{one}/{name}": {
                "parameters": [session, process],
                "post": {**_operation(summary, {}, body), "responses": {**done, **possible}},
            }
            for name, (summary, body) in changes.items()
        },
    }


def _file_paths(prefix: str, guarded: dict[str, Any]) -> dict[str, Any]:
    wrong = {**guarded, "400": _text("The path is outside the workspace, or of another type"), "404": _text("Not found")}
    binary = {"description": "The content", "content": {"application/octet-stream": {}}}
    listing = {"type": "object", "properties": {"path": {"type": "string"}, "entries": {"type": "array"}}}
    session = {"parameters": [_parameter("session", "path")]} if "{session}" in prefix else {}
    path = _parameter("path", "path")
    body = {"required": True, "content": {"application/octet-stream": {}}}
    return {
        prefix: {
            **session,
            "get": {
                **_operation("List a directory", listing, refused=wrong),
                "parameters": [{**_parameter("path", "query"), "required": False}],
            },
        },
        f"{prefix}/{{path}}": {
            "parameters": [*session.get("parameters", []), path],
            "get": {"summary": "Download", "responses": {"200": binary, "206": binary, **wrong, "416": _text("No such range")}},
            "put": {
                "summary": "Upload",
                "requestBody": body,
                "responses": {"200": {"description": "Overwritten"}, "201": {"description": "Created"}, **wrong},
            },
            "delete": {"summary": "Delete", "responses": {"204": {"description": "Deleted"}, **wrong}},
        },
    }


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": True, "schema": {"type": "string"}}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _text(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"text/plain": {"schema": {"type": "string"}}}}


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
