from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from coding_gym_studio.guard import Guard, new_token

TOKEN = "t0k3n"
ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture
def get():
    """Return the status of a request to a guarded application."""

    async def answer(request):
        return PlainTextResponse("secret")

    app = Guard(
        Starlette(routes=[Route("/", answer), Route("/static/a.js", answer), Route("/api", answer)]),
        token=TOKEN,
        hosts=["box.example"],
    )

    async def get(path="/api", *, token: str | None = TOKEN, **headers: str) -> int:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ADDRESS) as client:
            return (await client.get(path, headers=given)).status_code

    return lambda *arguments, **options: asyncio.run(get(*arguments, **options))


def test_token_is_required(get):
    assert [get(token=token) for token in (TOKEN, None, "", "t0k3", "t0k3nn")] == [200, 401, 401, 401, 401]


def test_page_and_assets_need_no_token(get):
    paths = ("/", "/static/a.js", "/api", "/other")
    assert [get(path, token=None) for path in paths] == [200, 200, 401, 401]


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "box.example", "10.0.0.3:80"])
def test_own_names_are_admitted(get, host):
    assert get(Host=host) == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "a@evil.example", "["])
def test_rebound_names_are_refused(get, host):
    assert (get(Host=host), get("/", Host=host)) == (421, 421)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://localhost:8000", "http://["]
)
def test_other_origins_are_refused(get, origin):
    assert get(Origin=origin) == 403
    assert get(Sec_Fetch_Site="same-origin", Origin=ADDRESS) == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_can_link_to_the_page_only(get, site):
    opened = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert get("/", token=None, **opened) == 200
    assert get("/api", **opened) == 403
    assert get("/", Sec_Fetch_Site=site) == 403
    assert get("/", **{**opened, "Sec_Fetch_Dest": "iframe"}) == 403
    assert get("/static/a.js", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script") == 403


def test_tokens_differ():
    assert len({new_token() for _ in range(100)}) == 100
