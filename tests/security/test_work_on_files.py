"""Work of the server on the files of an episode ends with the episode: none reaches those of the next one."""

from __future__ import annotations

import contextlib
import http.client
import select
import socket

import pytest

MANY = 60_000
LISTINGS = 60
COPIED = 40_000


@pytest.fixture
def sandbox(sandbox_of):
    """Sandbox in which the next episode of a session has the executor of the last one."""
    return sandbox_of(provider="local", sessions=8, spare_workers=0)


@pytest.fixture
def request_of(sandbox):
    """Function that sends an HTTP request, and returns its connection."""
    with contextlib.ExitStack() as stack:

        def send(method, path, body=b""):
            connection = http.client.HTTPConnection("sandbox")
            stack.callback(connection.close)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(sandbox.address.socket_path)
            connection.request(method, path, body=body, headers=sandbox.address.headers)
            return connection

        yield send


def make_files(session, count, directory):
    code = f"import os\nos.mkdir({directory!r})\nfor n in range({count}): open(f'{directory}/{{n}}', 'w').close()"
    assert session.run(code, 60).exit_code == 0


def test_requests_of_an_episode_do_not_reach_the_next_one(session, request_of):
    session.reset()
    make_files(session, MANY, "many")
    files = f"/sessions/{session.id}/files"
    listings = [request_of("GET", f"{files}?path=many") for _ in range(LISTINGS)]
    put = request_of("PUT", f"{files}/helper.py", b"planted = True")
    get = request_of("GET", f"{files}/secret")
    delete = request_of("DELETE", f"{files}/kept")
    # The server has received all of them when it answers the first.
    select.select([listing.sock for listing in listings], [], [])
    session.reset(files={"secret": "the next one's", "kept": ""})
    # Those that had begun, and those that had not.
    assert {listing.getresponse().status for listing in listings} == {200, 409}
    for connection in (put, get, delete):
        response = connection.getresponse()
        assert response.status == 409
        assert b"episode has ended" in response.read()
    assert session.run("import os; print(sorted(os.listdir()))").stdout == "['kept', 'secret']\n"
    assert session.http.files.read("secret") == b"the next one's"


def test_restored_files_do_not_reach_other_sessions(sandbox_of, connect):
    sandbox = sandbox_of(provider="local", sessions=16)
    owner = connect(sandbox)
    owner.reset()
    make_files(owner, COPIED, "foreign")
    # The client disconnects while they are copied. Others get what this frees.
    owner._session.ask_restore(owner.clone())
    owner.close()
    others = [connect(sandbox) for _ in range(10)]
    for other in others:
        other.reset()
    for _ in range(3):
        assert {other.run("import os; print(os.listdir())").stdout for other in others} == {"[]\n"}


def test_listings_of_one_session_do_not_delay_others(session, request_of, open_session):
    session.reset()
    make_files(session, MANY, "many")
    listings = [request_of("GET", f"/sessions/{session.id}/files?path=many") for _ in range(LISTINGS)]
    other = open_session()
    other.reset(files={"file": "own"})
    assert other.http.files.read("file") == b"own"
    answered, _, _ = select.select([listing.sock for listing in listings], [], [], 0)
    assert len(answered) < LISTINGS // 2
