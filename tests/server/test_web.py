"""The page `/web`, what it asks of the server, and who may ask."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import socket
import threading

import httpx
import pytest
from PIL import Image
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from coding_gym_server.server.api.auth import SUBPROTOCOL, TOKEN_SUBPROTOCOL
from coding_gym_server.worker.backends.registry import is_installed
from tests.support.running_server import RunningServer
from tests.support.site_requests import OF_OTHER_SITES, refused_requests

TOKEN = "s3cret/+~€"
WINDOW = "import tkinter; root = tkinter.Tk(); root.geometry('100x80+0+0'); root.configure(bg='red'); root.update()"

PRINTING = """
import sys, time
print("early")
print("warned", file=sys.stderr)
time.sleep(1)
6 * 7
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("open"), "--max-sessions", "6") as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with RunningServer(tmp_path_factory.mktemp("guarded"), "--max-sessions", "6", token=TOKEN) as server:
        yield server


class Connection:
    """A connection like the page's."""

    def __init__(self, server, query="?announce=1", **options):
        self._stack = contextlib.ExitStack()
        connection = connect(f"{server.ws_url}{query}", subprotocols=[SUBPROTOCOL], compression=None, **options)
        self.socket = self._stack.enter_context(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def receive(self):
        return json.loads(self.socket.recv(timeout=20))

    def send(self, kind, **data):
        self.socket.send(json.dumps({"type": kind, "data": data} if data else {"type": kind}))

    def request(self, kind, **data):
        self.send(kind, **data)
        return self.receive()


def test_page_and_its_files_are_public(guarded):
    page = httpx.get(f"{guarded.url}/web/", follow_redirects=True)
    assert page.url == f"{guarded.url}/web"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    for name in ("workbench/app.js", "common/style/base.css", "common/vendor/lit-html/lit-html.js"):
        assert httpx.get(f"{guarded.url}/web/static/{name}").status_code == 200


@pytest.mark.parametrize("path", ["/web/info", "/web/static", "/webs", "/web/../files", "/sessions/x/screen", "/files"])
def test_everything_else_requires_the_token(guarded, path):
    assert httpx.get(f"{guarded.url}{path}").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "workbench/../../../../app.py",
        "workbench/%2e%2e/%2e%2e/assets.py",
        "workbench/..%2f..%2fassets.py",
        "common//etc/passwd",
        "workbench/%00",
        "workbench/index.html/",
        "common/",
        "other/app.js",
    ],
)
def test_no_other_file_is_served(server, path):
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        request = f"GET /web/static/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = connection.makefile("rb").read()
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))


def test_info_describes_the_server(guarded):
    info = httpx.get(f"{guarded.url}/web/info", headers={"authorization": f"Bearer {TOKEN}".encode()}).json()
    backends = {backend["name"]: backend["language"] for backend in info["backends"]}
    assert (backends["python"], backends["bash"]) == ("python", "bash")
    assert backends.get("perl") == ("perl" if is_installed("perl") else None)
    assert "restrictedpython" not in backends
    assert info["interactive_backend"] in backends
    assert info["limits"]["max_sessions"] == 6
    assert info["defaults"]["step_timeout"] == 30


def token_subprotocol(token):
    return TOKEN_SUBPROTOCOL + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


def test_browsers_send_the_token_as_a_subprotocol(guarded):
    with connect(guarded.ws_url, subprotocols=[SUBPROTOCOL, token_subprotocol(TOKEN)], compression=None) as connection:
        assert connection.subprotocol == SUBPROTOCOL
        connection.send('{"type": "state"}')
        assert json.loads(connection.recv())["type"] == "state"


@pytest.mark.parametrize(
    "subprotocols",
    [
        [SUBPROTOCOL],
        [SUBPROTOCOL, token_subprotocol("wrong")],
        [SUBPROTOCOL, TOKEN_SUBPROTOCOL],
        [SUBPROTOCOL, f"{TOKEN_SUBPROTOCOL}!!!"],
        [token_subprotocol(TOKEN)[: len(TOKEN_SUBPROTOCOL) + 4]],
    ],
)
def test_wrong_subprotocols_are_refused(guarded, subprotocols):
    with pytest.raises((InvalidStatus, ConnectionClosedError)):
        connect(guarded.ws_url, subprotocols=subprotocols, compression=None)


def test_subprotocol_is_no_token_of_http_requests(guarded):
    response = httpx.get(f"{guarded.url}/web/info", headers={"sec-websocket-protocol": token_subprotocol(TOKEN)})
    assert response.status_code == 401


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({}, True),
        ({"origin": "http://127.0.0.1:{port}"}, True),
        ({"origin": "http://127.0.0.1:{port}", "sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"origin": "http://127.0.0.1:1"}, False),
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, False),
        ({"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"}, False),
        ({"host": "evil.example", "origin": "http://evil.example"}, False),
        ({"host": "evil.example", "sec-fetch-site": "same-origin"}, False),
        ({"host": "localhost:{port}", "origin": "http://localhost:{port}"}, True),
        ({"host": "box:{port}", "origin": "http://box:{port}"}, True),
        ({"host": "[::1]:{port}", "origin": "http://[::1]:{port}"}, True),
        ({"host": "box.example"}, True),
    ],
)
def test_only_own_pages_of_browsers_may_change_anything(server, headers, is_allowed):
    headers = {name: value.format(port=server.port) for name, value in headers.items()}
    response = httpx.post(f"{server.url}/step", json={"action": {"code": "1"}}, headers=headers)
    assert response.status_code == (200 if is_allowed else 403), response.text
    # The library for WebSockets sets the header Host itself.
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        handshake = {"host": f"127.0.0.1:{server.port}", "upgrade": "websocket", "connection": "Upgrade"}
        handshake |= {"sec-websocket-version": "13", "sec-websocket-key": base64.b64encode(bytes(16)).decode(), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in handshake.items())
        connection.sendall(f"GET /ws HTTP/1.1\r\n{lines}\r\n".encode())
        status = connection.recv(100)
    assert status.startswith(b"HTTP/1.1 101" if is_allowed else b"HTTP/1.1 403")


def test_browsers_reach_the_server_for_its_own_pages_only(server, guarded):
    def send(method, headers):
        return httpx.request(method, f"{server.url}/execute", headers=headers).status_code

    assert refused_requests(server.url, send) == OF_OTHER_SITES

    def send_guarded(method, headers):
        return httpx.request(method, f"{guarded.url}/execute", headers=headers).status_code

    token = {"authorization": f"Bearer {TOKEN}".encode()}
    assert refused_requests(guarded.url, send_guarded, token) == OF_OTHER_SITES


@pytest.mark.parametrize("path", ["/files", "/web/info", "/web"])
def test_rebound_names_may_not_read_either(server, path):
    as_browser = {"host": "evil.example", "user-agent": "Mozilla/5.0 (X11; Linux x86_64)"}
    response = httpx.get(f"{server.url}{path}", headers=as_browser)
    assert response.status_code == 403
    assert "start the server with a token" in response.json()["detail"]
    assert httpx.get(f"{server.url}{path}", headers={"host": "evil.example"}).status_code == 200


def test_address_alone_leads_to_the_page(server):
    response = httpx.get(server.url, follow_redirects=True)
    assert (response.url.path, response.status_code) == ("/web", 200)
    assert httpx.post(server.url).status_code == 405


def test_files_of_programs_are_documents_without_rights(server):
    address = f"{server.url}/files/evil.html"
    httpx.put(address, content=b"<script>fetch('/execute', {method: 'POST'})</script>").raise_for_status()
    headers = httpx.get(address).headers
    policy = [part.strip() for part in headers["content-security-policy"].split(";")]
    # Neither scripts nor the origin of the server, for documents; no use as a script of another site's page.
    assert "sandbox" in policy
    assert "default-src 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert httpx.delete(address).status_code == 204


def test_names_are_free_with_a_token(guarded):
    headers = {"host": "gym.example", "origin": "https://gym.example", "authorization": f"Bearer {TOKEN}".encode()}
    assert httpx.post(f"{guarded.url}/step", json={"action": {"code": "1"}}, headers=headers).status_code == 200
    headers["origin"] = "https://evil.example"
    assert httpx.post(f"{guarded.url}/step", json={"action": {"code": "1"}}, headers=headers).status_code == 403


def test_session_is_announced_on_request_only(server):
    with Connection(server) as page:
        identifier = page.receive()["data"]["session"]
        assert page.socket.response.headers["coding-gym-session"] == identifier
        assert httpx.get(f"{server.url}/sessions/{identifier}/files").json()["entries"] == []
    with Connection(server, query="") as other:
        assert other.request("state")["type"] == "state"


def test_output_arrives_while_the_step_runs(server):
    with Connection(server) as page:
        page.receive()
        page.request("reset", results=True)
        page.send("step", code=PRINTING, stream=True)
        early = page.receive()
        assert early == {"type": "output", "data": {"stdout": "early\n", "stderr": "warned\n"}}
        observation = page.receive()["data"]["observation"]
        assert (observation["stdout"], observation["stderr"]) == ("early\n42\n", "warned\n")
        assert [result["texts"]["text/plain"] for result in observation["metadata"]["results"]] == ["42"]


def test_streamed_output_is_bounded(server):
    with Connection(server) as page:
        page.receive()
        page.request("reset")
        page.send("step", code="import time; print('x' * 3_000_000); time.sleep(0.5)", stream=True)
        sent = 0
        while (message := page.receive())["type"] == "output":
            sent += len(message["data"].get("stdout", ""))
        assert 0 < sent <= 1 << 18
        assert 0 < len(message["data"]["observation"]["stdout"]) <= 16_384


def test_step_does_not_stream_by_default(server):
    with Connection(server) as page:
        page.receive()
        assert page.request("step", code="print(1); import time; time.sleep(0.3)")["type"] == "observation"


@pytest.fixture
def page_with_screen(server, xvfb):
    with Connection(server) as page:
        identifier = page.receive()["data"]["session"]
        page.request("reset", screen=[120, 100])
        page.address = f"{server.url}/sessions/{identifier}/screen"
        yield page


def test_screen_is_a_picture_with_a_tag(page_with_screen):
    empty = httpx.get(page_with_screen.address)
    assert (empty.headers["content-type"], empty.headers["coding-gym-windows"]) == ("image/png", "0")
    picture = Image.open(io.BytesIO(empty.content))
    assert (picture.size, picture.getextrema()) == ((120, 100), ((0, 0), (0, 0), (0, 0)))
    page_with_screen.request("step", code=WINDOW)
    red = httpx.get(page_with_screen.address, headers={"if-none-match": empty.headers["etag"]})
    assert red.headers["coding-gym-windows"] == "1"
    assert Image.open(io.BytesIO(red.content)).getpixel((50, 40)) == (255, 0, 0)
    same = httpx.get(page_with_screen.address, headers={"if-none-match": f'"other", {red.headers["etag"]}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", red.headers["etag"])


def test_screen_can_be_seen_during_a_step(page_with_screen):
    page_with_screen.send("step", code=f"{WINDOW}\nimport time; time.sleep(3)")
    done = threading.Event()

    def is_red():
        picture = Image.open(io.BytesIO(httpx.get(page_with_screen.address).content))
        return picture.getpixel((50, 40)) == (255, 0, 0)

    while not is_red():
        assert not done.wait(0.05)
    with pytest.raises(TimeoutError):
        page_with_screen.socket.recv(timeout=0.1)
    assert page_with_screen.receive()["type"] == "observation"


def test_missing_screen_is_explained(server):
    with Connection(server) as page:
        address = f"{server.url}/sessions/{page.receive()['data']['session']}/screen"
        page.request("reset", screen=None)
        response = httpx.get(address)
        assert response.status_code == 422
        assert "reset it with a screen" in response.json()["detail"][0]["msg"]
    assert httpx.get(f"{server.url}/sessions/nobody/screen").status_code == 404
