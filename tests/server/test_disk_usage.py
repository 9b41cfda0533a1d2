from __future__ import annotations

import asyncio
import os

from coding_gym_server.linux.disk_usage import measure
from coding_gym_server.server import disk_watch
from coding_gym_server.server.disk_watch import DiskWatch


def test_files_are_counted_once(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert measure(descriptor) == (0, 0)
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "a/b/file").write_bytes(bytes(1 << 20))
        os.link(tmp_path / "a/b/file", tmp_path / "a/other")
        (tmp_path / "a/sparse").touch()
        os.truncate(tmp_path / "a/sparse", 1 << 40)
        (tmp_path / "loop").symlink_to(tmp_path)
        size, count = measure(descriptor)
    finally:
        os.close(descriptor)
    assert count == 6
    assert 1 << 20 <= size < 2 << 20


class Group:
    is_recycling = False

    def __init__(self, used):
        self.used = used
        self.reasons = []

    async def measure_disk(self):
        if isinstance(self.used, Exception):
            raise self.used
        return self.used

    def kill_with_reason(self, reason):
        self.reasons.append(reason)


def test_those_beyond_a_limit_are_killed(monkeypatch):
    monkeypatch.setattr(disk_watch, "_INTERVAL", 0.001)
    groups = [Group(used) for used in (None, (100, 10), TimeoutError(), (101, 1), (1, 11))]

    async def watch():
        task = asyncio.create_task(DiskWatch(lambda: groups, max_bytes=100, max_inodes=10).run())
        while not groups[-1].reasons:
            await asyncio.sleep(0.001)
        task.cancel()

    asyncio.run(watch())
    assert [group.reasons[:1] for group in groups] == [
        *([], [], []),
        ["101 bytes of changed files; the disk has 100"],
        ["11 changed files and directories; the limit is 10"],
    ]
