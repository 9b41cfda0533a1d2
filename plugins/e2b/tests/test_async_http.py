"""The HTTP client for asyncio, against servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from coding_gym.client.address import Address
from coding_gym.errors import ProtocolError, TransportError, TransportTimeoutError
from coding_gym_e2b.async_http import AsyncHttpClient


def exchange(answer: bytes, use, *, stays_open: bool = False):
    """Run ``use(client)`` with a server that answers each request with some bytes, then closes the connection."""
    requests = []

    handlers = set()

    async def serve(reader, writer):
        handlers.add(asyncio.current_task())
        with contextlib.suppress(OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].split()[0])
            requests.append((head, await reader.readexactly(size)))
            writer.write(answer)
            await writer.drain()
            if stays_open:
                await reader.read()
        writer.transport.abort()

    async def run():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            address = Address.of_url(f"http://127.0.0.1:{port}/prefix", token="secret")
            try:
                return await use(AsyncHttpClient(address, timeout=0.5))
            finally:
                await asyncio.gather(*handlers)

    return asyncio.run(run()), requests


async def read(client, body=b""):
    async with client.request("POST", "/path?q=1", body=body) as response:
        return response.status, await response.read(1000)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ],
)
def test_request_and_response_are_complete(answer):
    result, [(head, body)] = exchange(answer, lambda client: read(client, b"x" * 100_000), stays_open=True)
    assert result == (200, b"hello")
    assert head.startswith(b"POST /prefix/path?q=1 HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret\r\n" in head
    assert body == b"x" * 100_000


def test_refusals_are_responses():
    result, _ = exchange(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", read)
    assert result == (404, b"no")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"])
def test_incomplete_responses_are_errors(answer):
    with pytest.raises(TransportError, match="broke"):
        exchange(answer, read)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"])
def test_malformed_responses_are_errors(answer):
    with pytest.raises(ProtocolError, match="malformed"):
        exchange(answer, read)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\n" + b"X-Filler: y\r\n" * 20_000,
    ],
)
def test_endless_responses_are_errors(answer):
    with pytest.raises(ProtocolError):
        exchange(answer, read)


def test_silent_server_times_out():
    with pytest.raises(TransportTimeoutError, match=r"within 0\.5 s"):
        exchange(b"HTTP/1.1 200 OK\r\n", read, stays_open=True)


def test_lines_are_split_and_bounded():
    async def lines(client, limit):
        async with client.request("GET", "/") as response:
            return [line async for line in response.lines(limit)]

    body = b"one\n\ntwo\nlast"
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    assert exchange(answer, lambda client: lines(client, 10))[0] == [b"one", b"", b"two"]
    with pytest.raises(ProtocolError, match="more than 3 bytes"):
        exchange(answer, lambda client: lines(client, 3))


def test_nobody_listens(tmp_path):
    async def run(address):
        return await read(AsyncHttpClient(address))

    for address in (Address.of_unix_socket(str(tmp_path / "none")), Address.of_url("http://127.0.0.1:1")):
        with pytest.raises(TransportError, match="No connection"):
            asyncio.run(run(address))


def test_server_that_reads_nothing_is_given_up():
    async def post():
        handlers, given_up = set(), asyncio.Event()

        async def ignore(reader, writer):
            handlers.add(asyncio.current_task())
            await given_up.wait()
            writer.transport.abort()

        async with await asyncio.start_server(ignore, "127.0.0.1", 0, limit=1) as server:
            port = server.sockets[0].getsockname()[1]
            client = AsyncHttpClient(Address.of_url(f"http://127.0.0.1:{port}", token="secret"), timeout=0.2)
            with pytest.raises(TransportTimeoutError, match="did not answer"):
                await read(client, bytes(64 << 20))
            given_up.set()
            await asyncio.gather(*handlers)

    asyncio.run(asyncio.wait_for(post(), 20))
