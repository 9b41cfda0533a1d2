"""Connections of strangers, who have no key: more than the gateway has descriptors, and they keep nobody out."""

from __future__ import annotations

import contextlib
import resource
import socket

import httpx
import psutil
import pytest

from plugins.e2b.tests.conftest import ServedE2B
from tests.support.timing import eventually

DESCRIPTORS = 400
STRANGERS = 900
BEGINNINGS = {
    "nothing": b"",
    "a request that needs no key": b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "a wrong key": b"GET /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Key: x\r\n\r\n",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    served = ServedE2B(tmp_path_factory.mktemp("e2b"), "--provider", "local", "--option", "disk=64m")
    psutil.Process(served.process.pid).rlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    yield served
    assert served.stop() == 0, served.log.read_text()


@pytest.mark.parametrize("name", BEGINNINGS)
def test_strangers_keep_no_client_out(served, control, name):
    url = httpx.URL(served.url)
    gateway = psutil.Process(served.process.pid)
    before = gateway.num_fds()
    with contextlib.ExitStack() as stack:
        for _ in range(STRANGERS):
            stranger = stack.enter_context(socket.create_connection((url.host, url.port)))
            # The gateway may have closed it already.
            with contextlib.suppress(OSError):
                stranger.sendall(BEGINNINGS[name])
        created = control.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60}, timeout=60)
        assert created.status_code == 201, created.text
        headers = {"X-Access-Token": created.json()["envdAccessToken"]}
        assert httpx.get(f"{served.url}/envs", headers=headers, timeout=60).status_code == 200
        # Also those that were not too many.
        assert eventually(lambda: gateway.num_fds() < before + DESCRIPTORS // 8)
        control.delete(f"/sandboxes/{created.json()['sandboxID']}")
