"""Hosts that start or answer slowly."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from types import SimpleNamespace

import httpx
import psutil
import pytest

from coding_gym.errors import SandboxStartError, TransportError, TransportTimeoutError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_e2b.failures import ApiError
from coding_gym_e2b.hosts import Hosts
from coding_gym_e2b.settings import GatewaySettings
from plugins.e2b.tests.conftest import KEY, ServedE2B
from tests.support.requirements import import_extra


class FalseSession:
    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.is_closed = False

    @property
    def is_lost(self):
        return self.is_closed or not self.sandbox.lives

    async def reset(self, options, *, timeout):
        pass

    def close(self):
        self.is_closed = True


class FalseSandbox:
    """A sandbox whose connections fail as ``error`` says."""

    description = "false"

    def __init__(self):
        self.address = self
        self.lives = True
        self.error = None

    async def connect_async(self, *, timeout, fork_of=None):
        await asyncio.sleep(0)
        if not self.lives:
            raise TransportError("refused")
        if self.error is not None:
            raise self.error
        return FalseSession(self)

    def close(self):
        self.lives = False


@pytest.fixture
def started(monkeypatch):
    """What has been started, and how: ``start`` is called before each."""
    started = SimpleNamespace(sandboxes=[], threads=set(), start=lambda: None)

    def start_sandbox(config):
        started.threads.add(threading.current_thread())
        started.start()
        started.sandboxes.append(FalseSandbox())
        return started.sandboxes[-1]

    def connect(sandbox, **options):
        return sandbox.connect_async(**options)

    monkeypatch.setattr("coding_gym.sandbox.managed.start_sandbox", start_sandbox)
    monkeypatch.setattr("coding_gym_e2b.hosts.AsyncSession", SimpleNamespace(connect=connect))
    return started


def run(scenario, *, hosts=1, sessions=8):
    async def run_scenario():
        made = Hosts(GatewaySettings(config=SandboxConfig(sessions=sessions), hosts=hosts))
        try:
            await asyncio.wait_for(scenario(made), 20)
        finally:
            await made.close()

    asyncio.run(run_scenario())


async def open_session(hosts, *, is_own=False):
    return (await hosts.open(None, is_own=is_own))[1]


@pytest.mark.parametrize("error", [TransportTimeoutError("No connection within 5 s"), TransportError("busy")])
def test_host_that_answers_too_late_keeps_its_sessions(started, error):
    async def scenario(hosts):
        session = await open_session(hosts)
        (sandbox,) = started.sandboxes
        sandbox.error = error
        for _ in range(3):
            with pytest.raises(ApiError, match=str(error)) as caught:
                await open_session(hosts)
            assert caught.value.status == 503
        assert sandbox.lives
        assert not session.is_lost
        sandbox.error = None
        # No refused one takes a place.
        others = [await open_session(hosts) for _ in range(7)]
        assert {other.sandbox for other in others} == {sandbox}

    run(scenario)


def test_host_that_has_ended_is_replaced_once(started):
    async def scenario(hosts):
        await open_session(hosts)
        started.sandboxes[0].lives = False
        await asyncio.gather(*(open_session(hosts) for _ in range(5)))
        assert [sandbox.lives for sandbox in started.sandboxes] == [False, True]

    run(scenario)


def test_end_that_is_noticed_late_costs_no_request(started):
    async def scenario(hosts):
        session = await open_session(hosts)
        sandbox = started.sandboxes[0]
        sandbox.error = TransportError("refused")
        asyncio.get_running_loop().call_later(0.02, setattr, sandbox, "lives", False)
        assert (await open_session(hosts)).sandbox is started.sandboxes[1]
        assert session.is_lost

    run(scenario)


def test_failed_start_is_shared_by_those_who_wait(started):
    def fail():
        time.sleep(0.1)
        starts.append(1)
        raise SandboxStartError("no image")

    starts = []
    started.start = fail

    async def scenario(hosts):
        opening = (open_session(hosts) for _ in range(8))
        results = await asyncio.gather(*opening, return_exceptions=True)
        assert {(type(result), str(result)) for result in results} == {(ApiError, "No sandbox could be started: no image")}
        assert len(starts) == 1
        started.start = lambda: None
        await open_session(hosts)

    run(scenario)


def test_starting_hosts_leave_the_threads_of_the_event_loop_free(started):
    released = threading.Event()
    started.start = released.wait

    async def scenario(hosts):
        opening = [asyncio.create_task(open_session(hosts, is_own=True)) for _ in range(100)]
        try:
            await asyncio.sleep(0.05)
            thread = await asyncio.wait_for(asyncio.to_thread(threading.current_thread), 5)
        finally:
            released.set()
        await asyncio.gather(*opening)
        assert thread not in started.threads
        assert len(started.sandboxes) == 100

    run(scenario, hosts=100)


@pytest.mark.filterwarnings("ignore")
def test_server_that_stops_for_a_while_is_kept(tmp_path):
    e2b = import_extra("e2b")
    served = ServedE2B(tmp_path, "--provider", "local", "--sessions", "2", "--hosts", "1")
    try:
        sandbox = e2b.Sandbox.create(api_url=served.url, sandbox_url=served.url, api_key=KEY)
        sandbox.files.write("kept", "x")
        (server,) = psutil.Process(served.process.pid).children()
        stopped = [server, *server.children(recursive=True)]
        for process in stopped:
            process.suspend()
        try:
            answer = httpx.post(f"{served.url}/sandboxes", json={}, headers={"X-API-Key": KEY}, timeout=60)
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.resume()
        assert (answer.status_code, "is busy" in answer.text) == (503, True)
        assert sandbox.files.read("kept") == "x"
        assert httpx.post(f"{served.url}/sandboxes", json={}, headers={"X-API-Key": KEY}, timeout=60).status_code == 201
        sandbox.kill()
    finally:
        assert served.stop() == 0
