"""E2B's control plane: templates."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coding_gym_e2b.control_messages import BuildSource, NewTemplate, read_json
from coding_gym_e2b.failures import ApiError
from coding_gym_e2b.templates import Template, Templates
from coding_gym_server.server.api.admission import admit

__all__ = ["template_routes"]

_UPLOADS = "/templates/uploads/"


def template_routes(templates: Templates) -> tuple[Route, list[Route]]:
    """Return the route of uploads, whose addresses permit one upload without the API key, and the other routes for templates.

    Args:
        templates: The templates.
    """
    secret = secrets.token_bytes(32)

    async def create(request: Request) -> Response:
        template = templates.add(await read_json(request, NewTemplate))
        described = _described(template) | {"tags": ["default"], "aliases": [template.names[0]], "public": False}
        return JSONResponse(described | {"names": list(template.names)}, 202)

    async def build(request: Request) -> Response:
        source = await read_json(request, BuildSource)
        templates.build(_build(request), source)
        return Response(status_code=202)

    async def status(request: Request) -> Response:
        template = _build(request)
        offset = int(text) if (text := request.query_params.get("logsOffset", "0")).isdecimal() and len(text) < 10 else 0
        entries = template.log[offset:]
        answer: dict[str, Any] = {**_described(template), "status": template.status, "logEntries": entries}
        answer["logs"] = [entry["message"] for entry in entries]
        if template.status == "error":
            answer["reason"] = {"message": template.reason, "logEntries": []}
        return JSONResponse(answer)

    async def alias(request: Request) -> Response:
        name = request.path_params["alias"]
        if not templates.exists(name):
            message = f"template {name[:100]!r} not found"
            raise ApiError(404, message)
        template = templates.get(name)
        return JSONResponse({"templateID": name if template is None else template.id, "public": False})

    async def files(request: Request) -> Response:
        digest = request.path_params["hash"]
        url = request.url.replace(path=f"{_UPLOADS}{_permit(digest)}/{digest}", query="")
        return JSONResponse({"present": digest in templates.uploads, "url": str(url)}, 201)

    async def upload(request: Request) -> Response:
        digest, permit = request.path_params["hash"], request.path_params["permit"]
        if not hmac.compare_digest(permit.encode(errors="surrogatepass"), _permit(digest).encode()):
            raise ApiError(401, "The address of the upload is wrong")
        admit(request.scope)
        await templates.uploads.add(digest, request.stream())
        return Response(status_code=200)

    async def list_all(_: Request) -> Response:
        return JSONResponse(templates.list_all())

    async def delete(request: Request) -> Response:
        name = request.path_params["template"]
        if not templates.delete(name):
            message = f"template {name[:100]!r} not found"
            raise ApiError(404, message)
        return Response(status_code=204)

    def _permit(digest: str) -> str:
        """Return what permits the upload of one archive."""
        return hmac.new(secret, digest.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()

    def _build(request: Request) -> Template:
        build = templates.get_build(request.path_params["template"], request.path_params["build"])
        if build is None:
            raise ApiError(404, "There is no such build")
        return build

    one = "/templates/{template}"
    return Route(f"{_UPLOADS}{{permit}}/{{hash}}", upload, methods=["PUT"]), [
        Route("/templates", list_all, methods=["GET"]),
        Route("/templates/aliases/{alias:path}", alias, methods=["GET"]),
        Route("/v3/templates", create, methods=["POST"]),
        Route(f"/v2{one}/builds/{{build}}", build, methods=["POST"]),
        Route(f"{one}/builds/{{build}}/status", status, methods=["GET"]),
        Route(f"{one}/files/{{hash}}", files, methods=["GET"]),
        Route("/templates/{template:path}", delete, methods=["DELETE"]),
    ]


def _described(template: Template) -> dict[str, Any]:
    return {"templateID": template.id, "buildID": template.build_id}
