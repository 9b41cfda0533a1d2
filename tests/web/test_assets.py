"""The routes of pages' files."""

from __future__ import annotations

import asyncio
import gzip
import re

import httpx
import pytest
from starlette.applications import Starlette

from coding_gym_server.web.assets import COMMON, asset_route, page_route

MODULE = "// module\n" * 200


@pytest.fixture
def get(tmp_path):
    folder = tmp_path / "page"
    (folder / "parts").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Page</title>")
    (folder / "app.js").write_text(MODULE)
    (folder / "parts" / "ä.js").write_text("export const a = 1;\n")
    (folder / "notes.md").write_text("not served")
    (tmp_path / "secret.js").write_text("// outside\n")
    app = Starlette(routes=[page_route("/web", folder / "index.html"), asset_route("/web/static/page", folder)])

    def send(path: str, method: str = "GET", **headers: str) -> httpx.Response:
        async def request() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
                return await client.request(method, path, headers={n.replace("_", "-"): v for n, v in headers.items()})

        return asyncio.run(request())

    return send


def test_page_runs_no_script_but_its_own_modules(get):
    response = get("/web")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"


def test_module_is_compressed_if_the_client_accepts_it(get):
    compressed = get("/web/static/page/app.js", accept_encoding="gzip")
    assert compressed.headers["content-encoding"] == "gzip"
    assert int(compressed.headers["content-length"]) == len(gzip.compress(MODULE.encode(), mtime=0))
    assert compressed.text == MODULE
    plain = get("/web/static/page/app.js", accept_encoding="identity")
    assert "content-encoding" not in plain.headers
    assert plain.text == MODULE
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"


def test_unchanged_file_is_not_sent_again(get):
    etag = get("/web/static/page/app.js").headers["etag"]
    again = get("/web/static/page/app.js", if_none_match=etag)
    assert (again.status_code, again.content) == (304, b"")


def test_file_of_a_subfolder_with_any_name_is_served(get):
    assert get("/web/static/page/parts/ä.js").text == "export const a = 1;\n"


@pytest.mark.parametrize(
    "name", ["../secret.js", "%2e%2e/secret.js", "..%2fsecret.js", "parts/../../secret.js", "notes.md", "parts", ""]
)
def test_nothing_else_is_served(get, name):
    assert get(f"/web/static/page/{name}").status_code == 404


def test_method_other_than_get_is_refused(get):
    assert get("/web", "POST").status_code == 405


def test_common_files_load_nothing_from_elsewhere():
    for path in COMMON.rglob("*"):
        if path.suffix in {".js", ".css"} and "vendor" not in path.parts:
            assert not re.search(r"https?://|@import|url\(", path.read_text()), path


def test_imports_of_common_modules_exist():
    for path in COMMON.rglob("*.js"):
        for target in re.findall(r"""(?:from\s*|import\s*)["'](\.[^"']+)["']""", path.read_text()):
            assert (path.parent / target).is_file(), f"{path.name} imports {target}"


def test_vendored_libraries_have_their_licenses():
    assert all((library / "LICENSE").is_file() for library in (COMMON / "vendor").iterdir())
