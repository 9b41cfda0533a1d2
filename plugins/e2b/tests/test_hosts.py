"""The containers, or local sandboxes, behind E2B's sandboxes: their number, their end, and that of the server."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest

from plugins.e2b.tests.conftest import KEY, ServedE2B
from tests.cli.conftest import environment
from tests.support.requirements import import_extra
from tests.support.running_server import gone_within
from tests.support.timing import eventually

e2b = import_extra("e2b")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def small(tmp_path):
    small = ServedE2B(tmp_path, "--provider", "local", "--sessions", "1", "--hosts", "2")
    yield small
    if small.process.poll() is None:
        assert small.stop() == 0


@pytest.fixture
def options(small):
    return {"api_url": small.url, "sandbox_url": small.url, "api_key": KEY}


def servers(small):
    return psutil.Process(small.process.pid).children()


def test_hosts_are_started_up_to_the_limit_and_removed(small, options):
    first = e2b.Sandbox.create(**options)
    second = e2b.Sandbox.create(metadata={"coding-gym/own-container": "true"}, **options)
    assert len(servers(small)) == 2
    with pytest.raises(e2b.RateLimitException, match="raise --hosts or --sessions"):
        e2b.Sandbox.create(**options)
    # Forks do not count.
    assert all(fork.kill() for fork in first.fork(count=2))
    second.kill()
    assert eventually(lambda: len(servers(small)) == 1)
    first.kill()
    assert e2b.Sandbox.create(**options).commands.run("echo again").stdout == "again\n"


def test_sandboxes_of_a_dead_host_are_gone_and_new_ones_start(small, options):
    sandbox = e2b.Sandbox.create(**options)
    snapshot = sandbox.create_snapshot()
    for process in psutil.Process(small.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert eventually(lambda: not sandbox.is_running())
    assert e2b.Sandbox.list(**options).next_items() == []
    with pytest.raises(e2b.SandboxException, match="not found"):
        e2b.Sandbox.create(snapshot.snapshot_id, **options)
    assert e2b.Sandbox.create(**options).commands.run("echo again").stdout == "again\n"


def test_lost_sandboxes_take_no_places(small, options):
    lost = [e2b.Sandbox.create(**options) for _ in range(2)]
    for process in psutil.Process(small.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    # Requests that name a sandbox do not make the server look at the others.
    for sandbox in lost:
        headers = {"e2b-sandbox-id": sandbox.sandbox_id}
        assert eventually(lambda headers=headers: httpx.get(f"{small.url}/health", headers=headers).status_code == 502)
    new = [e2b.Sandbox.create(**options) for _ in range(2)]
    assert [sandbox.commands.run("echo again").stdout for sandbox in new] == ["again\n"] * 2


def test_all_places_can_be_taken_at_once(tmp_path):
    served = ServedE2B(tmp_path, "--provider", "local", "--sessions", "8", "--hosts", "1")
    try:
        with httpx.Client(base_url=served.url, headers={"X-API-Key": KEY}, timeout=60) as client, ThreadPoolExecutor(8) as pool:
            for _ in range(2):
                answers = list(pool.map(lambda _: client.post("/sandboxes", json={"templateID": "base"}), range(8)))
                assert [answer.status_code for answer in answers] == [201] * 8, answers[-1].text
                for answer in answers:
                    client.delete(f"/sandboxes/{answer.json()['sandboxID']}")
    finally:
        assert served.stop() == 0


def test_stopped_server_leaves_nothing_behind(small, options):
    sandbox = e2b.Sandbox.create(**options)
    sandbox.commands.run("sleep 600", background=True)
    processes = psutil.Process(small.process.pid).children(recursive=True)
    assert processes
    assert small.stop() == 0
    assert gone_within(processes) == []
    assert "Traceback" not in small.log.read_text()


def test_printed_lines_work_when_pasted(served):
    """The shared server's, in a shell."""
    exports, code = (served.lines[served.lines.index(title) + 1] for title in ("In a shell:", "In Python:"))
    pasted = subprocess.run(
        ["bash", "-c", f"{exports}; {shlex.join([sys.executable, '-c', code])}"],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert pasted.stdout == "hello\n\n", pasted.stderr


def test_open_server_beyond_this_machine_is_refused():
    done = subprocess.run(
        [sys.executable, "-m", "coding_gym", "serve", "--e2b", "--host", "0.0.0.0", "--port", "0"],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 1
    assert "without a token" in done.stderr
