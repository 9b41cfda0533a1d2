"""The Model Context Protocol, which this environment does not offer: the answers that say so."""

from __future__ import annotations

from typing import Any

__all__ = ["answer_mcp"]

_INVALID_REQUEST = -32600
_INTERNAL_ERROR = -32603


def answer_mcp(call: Any) -> dict[str, Any]:
    """Answer a JSON-RPC 2.0 request as OpenEnv's server does for an environment without tools."""
    valid = isinstance(call, dict) and call.get("jsonrpc") == "2.0" and isinstance(call.get("method"), str)
    code, message = (_INTERNAL_ERROR, "Environment does not support MCP") if valid else (_INVALID_REQUEST, "Invalid Request")
    identifier = call.get("id") if isinstance(call, dict) else None
    return {"jsonrpc": "2.0", "id": identifier, "error": {"code": code, "message": message}}
