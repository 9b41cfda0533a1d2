from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from coding_gym_studio.guard import Guard, new_token
from tests.support.site_requests import OF_OTHER_SITES, refused_requests

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
    )

    async def get(path="/api", *, method="GET", token: str | None = TOKEN, **headers: str) -> int:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ADDRESS) as client:
            return (await client.request(method, path, headers=given)).status_code

    return lambda *arguments, **options: asyncio.run(get(*arguments, **options))


def test_token_is_required(get):
    assert [get(token=token) for token in (TOKEN, None, "", "t0k3", "t0k3nn")] == [200, 401, 401, 401, 401]


def test_page_and_assets_need_no_token(get):
    paths = ("/", "/static/a.js", "/api", "/other")
    assert [get(path, token=None) for path in paths] == [200, 200, 401, 401]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "["])
def test_rebound_names_get_no_data(get, host):
    assert (get(token=None, Host=host), get("/", token=None, Host=host)) == (401, 200)


def test_browsers_reach_the_server_for_its_own_pages_only(get):
    def send(method, headers):
        return get(method=method, token=None, **headers)

    assert refused_requests(ADDRESS, send, {"authorization": f"Bearer {TOKEN}"}) == OF_OTHER_SITES


def test_tokens_differ():
    assert len({new_token() for _ in range(100)}) == 100
