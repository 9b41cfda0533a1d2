"""E2B's control plane with its SDK: sandboxes, forks, snapshots."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import httpx
import pytest

from coding_gym.sandbox.config import SandboxConfig
from coding_gym_e2b.event_log import EventLog
from coding_gym_e2b.hosts import Hosts
from coding_gym_e2b.registry import SandboxRegistry
from coding_gym_e2b.sandbox import Lifecycle
from coding_gym_e2b.settings import GatewaySettings
from tests.support.requirements import import_extra
from tests.support.timing import eventually

e2b = import_extra("e2b")

pytestmark = pytest.mark.filterwarnings("ignore")


def test_sandbox_is_listed_until_killed(sandbox, options):
    query = e2b.SandboxQuery(metadata={"run": "first run"})
    other = e2b.Sandbox.create(metadata={"run": "first run"}, **options)
    assert [info.sandbox_id for info in e2b.Sandbox.list(query=query, **options).next_items()] == [other.sandbox_id]
    assert other.kill()
    assert not other.kill()
    assert e2b.Sandbox.list(query=query, **options).next_items() == []
    assert sandbox.is_running()


def test_time_limit_ends_sandbox(options):
    sandbox = e2b.Sandbox.create(timeout=1, **options)
    assert sandbox.is_running()
    time.sleep(1.5)
    assert not sandbox.is_running()
    with pytest.raises(e2b.SandboxException):
        sandbox.commands.run("true")


def test_paused_sandbox_stops_and_continues(sandbox):
    handle = sandbox.commands.run("for i in $(seq 200); do echo $i >> ticks; sleep 0.05; done", background=True)
    time.sleep(0.3)
    sandbox.pause()
    assert not sandbox.is_running()
    with pytest.raises(e2b.SandboxException):
        sandbox.files.read("ticks")
    time.sleep(0.5)
    sandbox.connect()
    first = len(sandbox.files.read("ticks").split())
    time.sleep(0.5)
    assert len(sandbox.files.read("ticks").split()) > first
    # The half second of the pause has no ticks.
    assert first < 15
    handle.kill()


def test_sandbox_that_pauses_resumes_with_a_request(options):
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    sandbox = e2b.Sandbox.create(timeout=60, lifecycle=lifecycle, **options)
    sandbox.files.write("kept", "x")
    sandbox.set_timeout(1)
    time.sleep(1.3)
    assert sandbox.get_info().state == e2b.SandboxState.PAUSED
    assert sandbox.files.read("kept") == "x"
    assert sandbox.get_info().state == e2b.SandboxState.RUNNING
    sandbox.kill()


def test_paused_sandbox_outlives_a_new_time_limit(sandbox):
    sandbox.files.write("kept", "x")
    sandbox.pause()
    sandbox.set_timeout(1)
    time.sleep(1.3)
    assert sandbox.get_info().state == e2b.SandboxState.PAUSED
    sandbox.connect(timeout=60)
    assert sandbox.files.read("kept") == "x"


def test_calls_for_files_that_have_begun_survive_a_pause(served, sandbox):
    sandbox.files.make_dir("folder")
    handle = sandbox.commands.run("sleep 60", background=True)
    paused, sent = threading.Event(), threading.Event()

    def content():
        for _ in range(3):
            yield bytes(1 << 20)
        sent.set()
        assert paused.wait(30)
        for _ in range(3):
            yield bytes(1 << 20)

    def upload():
        headers = {"X-Access-Token": sandbox._envd_access_token, "e2b-sandbox-id": sandbox.sandbox_id}
        headers["content-type"] = "application/octet-stream"
        return httpx.post(f"{served.url}/files?path=folder/large", content=content(), headers=headers, timeout=30)

    with ThreadPoolExecutor(1) as pool:
        uploading = pool.submit(upload)
        try:
            assert sent.wait(30)
            sandbox.pause()
        finally:
            paused.set()
        answer = uploading.result(60)
    assert answer.status_code == 200, answer.text
    with pytest.raises(e2b.SandboxException):
        sandbox.files.list("folder")
    sandbox.connect()
    assert sandbox.files.get_info("folder/large").size == 6 << 20
    handle.kill()


def test_sandbox_is_not_resumed_before_it_is_paused():
    """In the process of the tests, with processes that take a while."""
    calls = []

    async def process():
        return ""

    async def stop(*, but="", go_on=False):
        calls.append(("begin", go_on))
        await asyncio.sleep(0.02)
        calls.append(("end", go_on))

    async def pause_and_resume():
        registry = SandboxRegistry(Hosts(GatewaySettings(config=SandboxConfig())))
        box = SimpleNamespace(
            id="i",
            is_paused=False,
            timer=None,
            pausing=asyncio.Lock(),
            processes=SimpleNamespace(stop=stop),
            files=SimpleNamespace(process=process),
            end_at=None,
            log=EventLog(),
            set_end=lambda seconds: None,
            lifecycle=Lifecycle(template_id="base"),
        )
        pausing = asyncio.create_task(registry.pause(box))
        await asyncio.sleep(0)
        assert await registry.resume(box, timeout=60)
        await pausing
        assert not box.is_paused
        assert box.timer is not None
        box.timer.cancel()

    asyncio.run(pause_and_resume())
    assert calls == [("begin", False), ("end", False), ("begin", True), ("end", True)]


def test_forks_are_independent(sandbox):
    sandbox.files.write("state", "before")
    first, second = sandbox.fork(count=2)
    first.files.write("state", "first")
    assert [box.files.read("state") for box in (sandbox, first, second)] == ["before", "first", "before"]
    sandbox.kill()
    assert second.files.read("state") == "before"
    grandchild = first.fork()[0]
    assert grandchild.files.read("state") == "first"
    for box in (first, second, grandchild):
        box.kill()


def test_sandbox_with_running_process_is_not_forked(sandbox):
    handle = sandbox.commands.run("sleep 60", background=True)
    with pytest.raises(e2b.SandboxException, match="processes run"):
        sandbox.fork()
    handle.kill()
    (fork,) = sandbox.fork()
    assert fork.is_running()
    fork.kill()


def test_snapshot_outlives_its_sandbox(options):
    sandbox = e2b.Sandbox.create(envs={"TOPIC": "graphs"}, **options)
    sandbox.files.write("data", "1")
    snapshot = sandbox.create_snapshot(name="kept-data")
    sandbox.kill()
    for name in (snapshot.snapshot_id, "kept-data"):
        box = e2b.Sandbox.create(name, **options)
        assert box.files.read("data") == "1"
        assert box.commands.run("echo $TOPIC").stdout == "graphs\n"
        box.kill()
    assert e2b.Sandbox.delete_snapshot(snapshot.snapshot_id, **options)
    with pytest.raises(e2b.SandboxException, match="not found"):
        e2b.Sandbox.create("kept-data", **options)


def test_unknown_template_is_refused(options):
    with pytest.raises(e2b.SandboxException, match="template 'no-such-thing' not found"):
        e2b.Sandbox.create("no-such-thing", **options)


def test_metrics_are_of_now(sandbox):
    (metric,) = sandbox.get_metrics()
    assert metric.mem_used > 0
    assert metric.disk_total > metric.disk_used >= 0


def test_metrics_count_shared_pages_once(sandbox):
    before = sandbox.get_metrics()[0].mem_used
    program = (
        "import os, time; data = bytearray(64 << 20); [os.fork() for _ in range(3)]; "
        "open(f'/tmp/begun-{os.getpid()}', 'w').close(); time.sleep(600)"
    )
    sandbox.commands.run(f'python3 -c "{program}"', background=True)
    assert eventually(lambda: sum(entry.name.startswith("begun-") for entry in sandbox.files.list("/tmp")) == 8)
    assert 60 << 20 < sandbox.get_metrics()[0].mem_used - before < 200 << 20


def test_logs_tell_what_has_happened(sandbox, control):
    began = int(time.time() * 1000)
    sandbox.commands.run("echo hello; exit 0")
    sandbox.commands.run("cat", background=True).kill()
    path = f"/sandboxes/{sandbox.sandbox_id}/logs"
    answer = control.get(path).json()
    entries = answer["logEntries"]
    assert [entry["message"] for entry in entries][:3] == ["sandbox started", "process started", "process ended"]
    assert "echo hello" in entries[1]["fields"]["command"]
    assert entries[2]["fields"]["exit_code"] == "0"
    line = json.loads(answer["logs"][1]["line"])
    assert (line["level"], line["message"]) == ("info", "process started")
    since = control.get(path, params={"start": began, "limit": 1}).json()["logEntries"]
    assert [entry["message"] for entry in since] == ["process started"]
    newest = control.get(f"/v2{path}", params={"direction": "backward", "limit": 2}).json()["logs"]
    assert newest == control.get(f"/v2{path}").json()["logs"][::-1][:2]
    assert control.get("/sandboxes/none/logs").status_code == 404


def test_metrics_count_processes_whatever_their_names(sandbox):
    rename = (
        r"import ctypes, time; ctypes.CDLL(None).prctl(15, b') \xff', 0, 0, 0); print('renamed', flush=True); time.sleep(60)"
    )
    process = sandbox.commands.run(f'python3 -c "{rename}"', background=True)
    assert next(iter(process)) == ("renamed\n", None, None)
    (metric,) = sandbox.get_metrics()
    assert metric.mem_used > 0


def test_files_do_not_leak_between_sandboxes(sandbox, options):
    sandbox.files.write("/tmp/secret", "x")
    other = e2b.Sandbox.create(**options)
    assert not other.files.exists("/tmp/secret")
    assert not other.files.exists("/home/user/secret")
    other.kill()
