"""Who may use the server, and malformed requests to it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import struct
import time

import httpx
import pytest

from coding_gym.sandbox.config import SandboxConfig
from coding_gym_e2b.gateway import Gateway
from coding_gym_e2b.settings import GatewaySettings
from plugins.e2b.tests.conftest import KEY
from tests.support.site_requests import OF_OTHER_SITES, refused_requests


@pytest.fixture
def created(control):
    created = control.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60}).json()
    yield created
    control.delete(f"/sandboxes/{created['sandboxID']}")


@pytest.fixture
def envd(served, created):
    headers = {"X-Access-Token": created["envdAccessToken"], "e2b-sandbox-id": created["sandboxID"]}
    with httpx.Client(base_url=served.url, headers=headers) as client:
        yield client


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "e2b_wrong"}, {"X-API-Key": ""}, {"X-API-Key": KEY[:-1]}])
@pytest.mark.parametrize(
    "path",
    [
        *("/v2/sandboxes", "/sandboxes", "/snapshots", "/templates", "/v3/templates", "/unknown"),
        *(
            "/sandboxes%0A",
            "/v2/sandboxes%0a",
            "/snapshots%0A",
            "/templates%0A",
            "/%73andboxes",
            "//sandboxes",
            "/x/../sandboxes",
        ),
    ],
)
def test_control_plane_needs_the_key(served, headers, path):
    assert httpx.get(f"{served.url}{path}", headers=headers).status_code == 401


@pytest.mark.parametrize("path", ["/sandboxes", "/sandboxes%0A", "/v2/sandboxes%0A"])
def test_sandboxes_are_made_with_the_key_only(served, path):
    assert httpx.post(f"{served.url}{path}", json={"templateID": "base"}).status_code == 401


def test_browsers_reach_the_gateway_for_no_page(served):
    def send(method, headers):
        return httpx.request(method, f"{served.url}/sandboxes", headers=headers, json={"templateID": "none"}).status_code

    assert refused_requests(served.url, send, {"X-API-Key": KEY}) == OF_OTHER_SITES


def test_browsers_reach_the_gateway_without_a_key_for_no_page():
    gateway = Gateway(GatewaySettings(config=SandboxConfig(provider="local")))
    url = "http://127.0.0.1:8000"

    def send(method, headers):
        async def request():
            async with httpx.AsyncClient(transport=httpx.ASGITransport(gateway.app), base_url=url) as client:
                return await client.request(method, "/sandboxes", headers=headers, json={"templateID": "none"})

        return asyncio.run(request()).status_code

    assert refused_requests(url, send) == OF_OTHER_SITES


def test_only_uploads_do_without_the_key(served, control):
    control.post("/v3/templates", json={"name": "uploads/x"})
    assert httpx.delete(f"{served.url}/templates/uploads/x").status_code == 401
    assert httpx.get(f"{served.url}/templates/uploads/files/x").status_code == 401
    assert httpx.put(f"{served.url}/templates/uploads/wrong/x", content=b"x").status_code == 401
    assert control.delete("/templates/uploads/x").status_code == 204


def test_envd_needs_the_token_of_the_sandbox(served, created, envd, control):
    other = control.post("/sandboxes", json={"templateID": "base"}).json()
    for token in ("", "wrong", other["envdAccessToken"], KEY):
        answer = envd.post("/filesystem.Filesystem/Stat", json={"path": "/"}, headers={"X-Access-Token": token})
        assert answer.status_code == 401
        assert envd.get("/files?path=x", headers={"X-Access-Token": token}).status_code == 401
    control.delete(f"/sandboxes/{other['sandboxID']}")
    assert envd.post("/filesystem.Filesystem/Stat", json={"path": "/home/user"}).status_code == 200


def test_sandbox_is_found_by_host_or_token(served, created):
    token = {"X-Access-Token": created["envdAccessToken"]}
    host = {"host": f"49983-{created['sandboxID']}.e2b.example"}
    path = f"{served.url}/filesystem.Filesystem/Stat"
    assert httpx.post(path, json={"path": "."}, headers=token).status_code == 200
    assert httpx.post(path, json={"path": "."}, headers={**token, **host}).status_code == 200
    assert httpx.post(path, json={"path": "."}, headers=host).status_code == 401
    assert httpx.post(path, json={"path": "."}).status_code == 502


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/sandboxes", b"{"),
        ("/v2/sandboxes", b'{"timeout": -1}'),
        ("/v2/sandboxes", b'{"timeout": 1e300}'),
        ("/v2/sandboxes", b'{"metadata": {"a": 1}}'),
        ("/v2/sandboxes", b"[" * 100_000),
        ("/v2/sandboxes", b'{"autoPause": true, "autoPauseMemory": false}'),
        ("/v3/templates", b"{}"),
    ],
)
def test_malformed_control_requests_are_refused(control, path, body):
    answer = control.post(path, content=body)
    assert answer.status_code == 400
    assert answer.json()["code"] == 400


def test_fork_counts_are_limited(control, created):
    for count in (0, 21, -1, "2"):
        assert control.post(f"/sandboxes/{created['sandboxID']}/fork", json={"count": count}).status_code == 400


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("application/proto", b""),
        ("application/connect+json", b""),
        ("application/connect+json", b"\x00\x00\x00\x00\x02{}"),
        ("application/connect+json", b"\x01\x00\x00\x00\x02{}"),
        ("application/connect+json", struct.pack(">BI", 0, 2**32 - 1)),
        ("application/connect+json", struct.pack(">BI", 0, 9) + b'{"pid": \xff}'),
    ],
)
def test_malformed_streams_are_refused(envd, kind, body):
    answer = envd.post("/process.Process/Start", content=body, headers={"content-type": kind})
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_argument"


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 30])
def test_malformed_deadlines_are_refused(envd, value):
    body = b'{"process": {"cmd": "true"}}'
    headers = {"content-type": "application/connect+json", "connect-timeout-ms": value}
    answer = envd.post("/process.Process/Start", content=struct.pack(">BI", 0, len(body)) + body, headers=headers)
    assert answer.status_code == 400


def test_malformed_uploads_are_refused(envd):
    post = envd.post("/files?path=x", content=b"not gzip", headers={"content-encoding": "gzip"})
    assert post.status_code == 400
    assert envd.post("/files", content=b"x").status_code == 400
    assert envd.post("/files?path=x", content=b"x", headers={"content-encoding": "br"}).status_code == 400
    form = {"content-type": "multipart/form-data; boundary=b"}
    assert envd.post("/files?path=x", content=b"--b\r\nnonsense", headers=form).status_code == 400
    assert envd.post("/files?path=a%00b", content=b"x").status_code == 400


def test_unknown_routes_are_refused(envd, control):
    assert envd.post("/process.Process/Nothing", json={}).status_code == 401
    assert control.post("/process.Process/Nothing", json={}).status_code == 404
    assert control.get("/sandboxes/none").status_code == 404
    assert control.delete("/templates/none").status_code == 404


def test_only_requests_with_the_token_resume(served, control):
    body = {"templateID": "base", "timeout": 60, "autoPause": True, "autoResume": {"enabled": True}}
    created = control.post("/v2/sandboxes", json=body).json()
    path = f"/sandboxes/{created['sandboxID']}"
    control.post(f"{path}/pause", json={})
    headers = {"e2b-sandbox-id": created["sandboxID"], "X-Access-Token": created["envdAccessToken"]}
    named = {"e2b-sandbox-id": created["sandboxID"]}
    stat = f"{served.url}/filesystem.Filesystem/Stat"
    for given in (named, {**named, "X-Access-Token": "wrong"}):
        assert httpx.post(stat, json={"path": "."}, headers=given).status_code == 401
        assert httpx.get(f"{served.url}/files?path=x", headers=given).status_code == 401
    assert httpx.get(f"{served.url}/files?path=x&signature=v1_wrong", headers=named).status_code == 401
    text = f"x:read::{created['envdAccessToken']}:1"
    signature = "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    query = {"path": "x", "signature": signature, "signature_expiration": "1"}
    assert httpx.get(f"{served.url}/files", params=query, headers=named).status_code == 401
    for given in (named, headers, {"X-Access-Token": created["envdAccessToken"]}):
        assert httpx.get(f"{served.url}/health", headers=given).status_code == 502
    assert control.get(path).json()["state"] == "paused"
    assert httpx.post(stat, json={"path": "."}, headers=headers).status_code == 200
    assert control.get(path).json()["state"] == "running"
    control.delete(path)


def test_stream_of_input_arrives_whole(envd, sandbox):
    handle = sandbox.commands.run("wc -c", background=True, stdin=True)

    def messages():
        for event in ({"start": {"process": {"pid": handle.pid}}}, *[{"data": {"input": {"stdin": "eHh4"}}}] * 20):
            body = json.dumps(event).encode()
            yield struct.pack(">BI", 0, len(body)) + body
            time.sleep(0.01)

    headers = {"content-type": "application/connect+json", "e2b-sandbox-id": sandbox.sandbox_id}
    headers["X-Access-Token"] = sandbox._envd_access_token
    answer = envd.post("/process.Process/StreamInput", content=messages(), headers=headers)
    assert b"error" not in answer.content
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout.strip() == "60"
