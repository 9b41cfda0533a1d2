"""Files with E2B's SDK."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from coding_gym_e2b.failures import Code, RpcError
from coding_gym_e2b.files import SessionFiles
from coding_gym_server.protocol.processes import ProcessOutput, ProcessStarted
from tests.support.requirements import import_extra

e2b = import_extra("e2b")

pytestmark = pytest.mark.filterwarnings("ignore")


def test_large_file_survives_the_round_trip(sandbox):
    content = os.urandom(5_000_001)
    sandbox.files.write("deep/below/large.bin", io.BytesIO(content))
    assert sandbox.files.read("deep/below/large.bin", format="bytes") == content


def test_many_files_are_written_at_once(sandbox):
    infos = sandbox.files.write_files([{"path": f"many/{n}.txt", "data": str(n)} for n in range(20)])
    assert [info.path for info in infos] == [f"/home/user/many/{n}.txt" for n in range(20)]
    assert sandbox.files.read("many/19.txt") == "19"


def test_odd_names_are_kept(sandbox):
    for name in ("a b", "ü'\"$x", "new\nline", "%2F", "-rf"):
        sandbox.files.write(f"odd/{name}", name)
        assert sandbox.files.read(f"odd/{name}") == name
    assert len(sandbox.files.list("odd")) == 5


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/shadow", "/proc/1/environ", "/root/x", "/home/user/../other"])
def test_paths_have_the_permissions_of_the_user(sandbox, path):
    with pytest.raises((e2b.SandboxException, e2b.InvalidArgumentException)):
        sandbox.files.write(path, "x")


def test_link_to_foreign_file_is_not_read(sandbox):
    sandbox.commands.run("ln -s /etc/shadow link")
    with pytest.raises(e2b.SandboxException):
        sandbox.files.read("link")
    assert sandbox.files.get_info("link").symlink_target == "/etc/shadow"


def test_directory_fifo_and_device_are_not_read(sandbox):
    sandbox.commands.run("mkdir folder; mkfifo pipe")
    for name in ("folder", "pipe", "/dev/zero"):
        with pytest.raises(e2b.InvalidArgumentException):
            sandbox.files.read(name)


def test_full_disk_is_reported(sandbox):
    with pytest.raises(e2b.NotEnoughSpaceException):
        sandbox.files.write("large", io.BytesIO(bytes(80 << 20)))
    sandbox.files.remove("large")
    sandbox.files.write("small", "x")


def test_watcher_sees_changes_by_commands(sandbox):
    sandbox.files.make_dir("watched/inner")
    watcher = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.commands.run("cd watched; echo x > inner/a; mv inner/a b; chmod 600 b; rm b; mkdir c; echo y > c/d")
    seen = {(event.type.value, event.name) for event in watcher.get_new_events()}
    assert {("create", "c"), ("create", "c/d"), ("write", "c/d")} <= seen
    sandbox.commands.run("mv watched/c/d watched/e; rm -r watched/c")
    seen = {(event.type.value, event.name) for event in watcher.get_new_events()}
    assert seen == {("rename", "c/d"), ("create", "e"), ("remove", "c")}
    watcher.stop()
    with pytest.raises(e2b.SandboxException):
        watcher.get_new_events()


def test_watcher_survives_a_fork(sandbox):
    sandbox.files.make_dir("watched")
    watcher = sandbox.files.watch_dir("watched")
    sandbox.fork()[0].kill()
    sandbox.files.write("watched/a", "x")
    assert [event.name for event in watcher.get_new_events()] == ["a", "a", "a"]


def test_signed_urls_are_for_one_file_operation_and_time(sandbox):
    sandbox.files.write("shared.txt", "content")
    sandbox.files.write("other.txt", "content")
    url = sandbox.download_url("shared.txt", use_signature_expiration=60)
    assert httpx.get(url).text == "content"
    for wrong in (
        url.replace("shared.txt", "other.txt"),
        url.replace("signature_expiration=", "signature_expiration=1"),
        url.partition("&signature")[0],
        sandbox.download_url("shared.txt", use_signature_expiration=-60),
    ):
        assert httpx.get(wrong).status_code in (401, 502)
    assert httpx.post(url, content=b"x", headers={"content-type": "application/octet-stream"}).status_code == 401
    upload = sandbox.upload_url("new.txt", use_signature_expiration=60)
    assert httpx.post(upload, files={"file": ("new.txt", b"uploaded")}).status_code == 200
    assert sandbox.files.read("new.txt") == "uploaded"


def test_files_are_accessible_during_forks(sandbox):
    sandbox.files.make_dir("watched")
    watcher = sandbox.files.watch_dir("watched")
    sandbox.files.write("watched/before", "x")
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(sandbox.files.write, f"f{n}", str(n)) for n in range(20)]
        forks = [sandbox.fork()[0] for _ in range(3)]
        assert [read.result().name for read in reads] == [f"f{n}" for n in range(20)]
    assert "before" in [event.name for event in watcher.get_new_events()]
    for fork in forks:
        fork.kill()


class FalseServer:
    """Server of a session whose program answers what it likes."""

    def __init__(self, answers):
        self.answers = answers
        self.requests = []
        self.written = asyncio.Event()

    async def request(self, method, path, body=b""):
        self.requests.append(path)
        if path.endswith("/stdin"):
            self.written.set()
        return b""

    @contextlib.asynccontextmanager
    async def stream(self, method, path, body=b""):
        yield self

    async def lines(self, limit):
        encode = msgspec.json.encode
        yield encode(ProcessStarted(id="p", pid=7))
        await self.written.wait()
        for answer in self.answers:
            yield encode(answer)
        await asyncio.sleep(3600)


@pytest.mark.parametrize(
    ("answer", "is_killed"),
    [
        (b"{", True),
        (b'{"id": 1, "result": {}}', False),
        (b'{"id": 1, "result": []}', False),
        (b'{"id": 1, "result": null}', False),
        (b'{"id": 9, "result": []}\n{"id": 1, "result": {"data": 5, "size": 1}}', False),
        (b'{"id": 1, "result": {"data": "AAAAA", "size": 1}}', False),
        (b'{"id": 1, "result": {"data": "AAAA", "size": "x"}}', False),
        (None, True),
    ],
)
def test_false_answers_of_the_sandbox_are_errors(answer, is_killed):
    output = ProcessOutput(skipped_stdout=1) if answer is None else ProcessOutput(stdout=answer + b"\n")
    server = FalseServer([output])

    async def read():
        files = SessionFiles(server)
        with pytest.raises(RpcError) as caught:
            _ = [part async for part in files.read("x")]
        await asyncio.sleep(0.01)
        files.close()
        return caught.value

    error = asyncio.run(asyncio.wait_for(read(), 10))
    assert error.code in (Code.INTERNAL, Code.UNAVAILABLE)
    assert ("/processes/p/signal" in server.requests) is is_killed


def test_program_that_is_deaf_hangs_no_fork(monkeypatch):
    monkeypatch.setattr("coding_gym_e2b.files._STOP_SECONDS", 0.05)
    monkeypatch.setattr("coding_gym_e2b.files._ANSWER_SECONDS", 0.3)
    server = FalseServer([])

    async def fork():
        files = SessionFiles(server)
        calls = [asyncio.create_task(files.call("usage")) for _ in range(3)]
        await asyncio.sleep(0.05)
        async with files.stopped():
            assert "/processes/p/signal" in server.requests
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, RpcError) for result in results), results
        files.close()

    asyncio.run(asyncio.wait_for(fork(), 10))


def test_program_that_starts_is_known_once_it_runs():
    """A pause must not stop it."""

    class SlowServer(FalseServer):
        async def lines(self, limit):
            await asyncio.sleep(0.1)
            async for line in super().lines(limit):
                yield line

    async def scenario():
        files = SessionFiles(SlowServer([ProcessOutput(stdout=b'{"id": 1, "result": {}}\n')]))
        assert await files.process() == ""
        call = asyncio.create_task(files.call("usage"))
        await asyncio.sleep(0.01)
        assert await files.process() == "p"
        assert await call == {}
        files.close()
        await asyncio.sleep(0.01)
        assert await files.process() == ""

    asyncio.run(asyncio.wait_for(scenario(), 10))
