"""Error responses to Model Context Protocol requests, which this environment does not support, over every transport."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.websockets import WebSocket

from coding_gym_server.protocol.errors import DECODING_ERRORS

__all__ = ["answer_mcp", "answer_mcp_text", "mcp_endpoint"]

_PARSE_ERROR = -32700
_INVALID_REQUEST = -32600
_METHOD_NOT_FOUND = -32601
_INVALID_PARAMS = -32602
_INTERNAL_ERROR = -32603

_METHODS = ("tools/list", "tools/call", "openenv/session/create", "openenv/session/close")


def answer_mcp(call: Any) -> dict[str, Any]:
    """Return the response of OpenEnv's server to a JSON-RPC 2.0 request, for an environment without tools."""
    identifier = call.get("id") if isinstance(call, dict) else None
    if isinstance(identifier, dict | list):
        # Not valid in JSON-RPC. It may also be nested so deeply that it can be decoded, but not encoded.
        identifier = None
    if not isinstance(call, dict) or call.get("jsonrpc") != "2.0" or not isinstance(call.get("method"), str):
        return _error(_INVALID_REQUEST, "Invalid Request", identifier)
    if not isinstance(call.get("params", {}), dict):
        return _error(_INVALID_PARAMS, "Params must be an object", identifier)
    if call["method"] not in _METHODS:
        return _error(_METHOD_NOT_FOUND, "Method not found", identifier)
    return _error(_INTERNAL_ERROR, "Environment does not support MCP", identifier)


def answer_mcp_text(text: str | bytes) -> bytes:
    """Return the encoded response to an encoded request."""
    try:
        call = msgspec.json.decode(text)
    except DECODING_ERRORS:
        return msgspec.json.encode(_error(_PARSE_ERROR, "Parse error", None))
    return msgspec.json.encode(answer_mcp(call))


async def mcp_endpoint(websocket: WebSocket) -> None:
    """Respond to requests over a WebSocket until the client disconnects."""
    await websocket.accept()
    while (event := await websocket.receive())["type"] == "websocket.receive":
        await websocket.send_text(answer_mcp_text(event.get("text") or event.get("bytes") or b"").decode())


def _error(code: int, message: str, identifier: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}}
