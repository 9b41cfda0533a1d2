"""What clients may put on the disk of the server: files for templates, and forms."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from coding_gym.sandbox.config import SandboxConfig
from coding_gym_e2b import uploads as uploads_module
from coding_gym_e2b.failures import ApiError, api_response
from coding_gym_e2b.file_transfer import upload
from coding_gym_e2b.gateway import Gateway
from coding_gym_e2b.settings import GatewaySettings
from coding_gym_e2b.spool import Spool
from plugins.e2b.tests.conftest import KEY
from tests.support.requirements import import_extra

import_extra("python_multipart")


async def parts(*sizes):
    for size in sizes:
        yield b"x" * size
        await asyncio.sleep(0)


async def size_of(uploads, digest):
    async with uploads.read(digest) as chunks:
        return sum([len(chunk) async for chunk in chunks])


@pytest.fixture
def uploads(monkeypatch):
    monkeypatch.setattr(uploads_module, "_LARGEST", 100)
    monkeypatch.setattr(uploads_module, "_TOTAL", 250)
    monkeypatch.setattr(uploads_module, "_MAX_ARCHIVES", 5)
    uploads = uploads_module.Uploads()
    yield uploads
    uploads.close()
    assert uploads._spool.used == 0


def test_archive_that_is_too_large_is_refused(uploads):
    async def scenario():
        await uploads.add("a", parts(50, 50))
        for name in "ab":
            with pytest.raises(ApiError, match="must not exceed 100 bytes") as caught:
                await uploads.add(name, parts(50, 50, 1))
            assert caught.value.status == 413
        assert "b" not in uploads
        assert await size_of(uploads, "a") == 100

    asyncio.run(scenario())


def test_oldest_archives_make_room_for_new_ones(uploads):
    async def scenario():
        for name in "ab":
            await uploads.add(name, parts(100))
        # Used last.
        assert await size_of(uploads, "a") == 100
        await uploads.add("c", parts(100))
        assert [name in uploads for name in "abc"] == [True, False, True]
        for number in range(9):
            await uploads.add(f"small{number}", parts(0))
        assert [f"small{number}" in uploads for number in range(9)] == [False] * 4 + [True] * 5

    asyncio.run(scenario())


def test_archive_is_read_to_its_end_though_it_is_replaced(uploads, monkeypatch):
    monkeypatch.setattr(uploads_module, "_PART_BYTES", 10)

    async def scenario():
        await uploads.add("a", parts(100))
        async with uploads.read("a") as chunks:
            assert len(await anext(chunks)) == 10
            await uploads.add("a", parts(7))
            await uploads.add("b", parts(100))
            # It takes its space until it has been read.
            with pytest.raises(ApiError, match="of all clients together must not exceed 250 bytes"):
                await asyncio.gather(uploads.add("c", parts(100)), uploads.add("d", parts(100)))
            assert len([chunk async for chunk in chunks]) == 9
        await uploads.add("e", parts(100))
        assert await size_of(uploads, "e") == 100

    asyncio.run(scenario())


def test_concurrent_uploads_share_the_limit(uploads):
    async def scenario():
        adding = (uploads.add(name, parts(*[10] * 10)) for name in "abcdef")
        results = await asyncio.gather(*adding, return_exceptions=True)
        refused = [result for result in results if result is not None]
        assert 2 <= len(refused) < 6
        assert all(isinstance(result, ApiError) and result.status == 413 for result in refused)

    asyncio.run(scenario())


def test_address_permits_the_upload_of_one_archive():
    async def scenario():
        gateway = Gateway(GatewaySettings(config=SandboxConfig(), token=KEY))
        transport = httpx.ASGITransport(gateway.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            key = {"X-API-Key": KEY}
            template = (await client.post("/v3/templates", json={"name": "t"}, headers=key)).json()["templateID"]
            urls = {}
            for digest in ("first", "second"):
                answer = await client.get(f"/templates/{template}/files/{digest}", headers=key)
                assert answer.json()["present"] is False
                urls[digest] = answer.json()["url"]
            for url in (urls["first"].replace("first", "second"), urls["first"].replace("first", "third")):
                assert (await client.put(url, content=b"x")).status_code == 401
            assert (await client.put(urls["first"], content=b"x")).status_code == 200
            present = [
                (await client.get(f"/templates/{template}/files/{name}", headers=key)).json()["present"] for name in urls
            ]
            assert present == [True, False]
        await gateway.close()

    asyncio.run(scenario())


class FalseFiles:
    """Files that can be written once ``may_write`` is set."""

    def __init__(self):
        self.may_write = asyncio.Event()
        self.may_write.set()

    async def write(self, path, chunks, metadata, *, user):
        assert user == ""
        await self.may_write.wait()
        return {"path": path, "size": sum([len(chunk) async for chunk in chunks])}


@contextlib.asynccontextmanager
async def forms(spool, files):
    async def handle(request):
        return await upload(request, SimpleNamespace(files=files, is_root=False), spool)

    app = Starlette(
        routes=[Route("/files", handle, methods=["POST"])], exception_handlers={ApiError: lambda _, error: api_response(error)}
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


def test_form_that_is_too_large_is_refused():
    async def scenario():
        spool = Spool("Forms", largest=300_000, total=400_000, advice=": send them one by one")
        files = FalseFiles()
        async with forms(spool, files) as client:
            for sizes in ((300_000,), (1000, 299_000), *[(1000,) * 300] * 2):
                form = [("file", (f"f{n}", b"x" * size)) for n, size in enumerate(sizes)]
                answer = await client.post("/files", files=form)
                assert answer.status_code == 413, sizes
                assert answer.json()["message"] == "Forms must not exceed 300000 bytes: send them one by one"
                assert spool.used == 0
            answer = await client.post("/files", files={"file": ("f", b"x" * 200_000)})
            assert answer.json() == [{"path": "f", "size": 200_000}]
            assert spool.used == 0

    asyncio.run(scenario())


def test_forms_share_the_limit_until_they_are_written():
    async def scenario():
        spool = Spool("Forms", largest=300_000, total=400_000)
        files = FalseFiles()
        files.may_write.clear()
        async with forms(spool, files) as client:
            form = {"file": ("f", b"x" * 250_000)}
            first = asyncio.create_task(client.post("/files", files=form))
            while spool.used < 250_000:
                await asyncio.sleep(0.01)
            refused = await client.post("/files", files=form)
            assert (refused.status_code, "of all clients together" in refused.text) == (413, True)
            files.may_write.set()
            assert (await first).status_code == 200
            assert (await client.post("/files", files=form)).status_code == 200
            assert spool.used == 0

    asyncio.run(asyncio.wait_for(scenario(), 30))
