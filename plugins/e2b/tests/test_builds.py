"""Builds of templates: their ends, and what is left of them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from coding_gym.client.address import Address
from coding_gym.sandbox.config import SandboxConfig
from coding_gym_e2b.control_messages import BuildSource, BuildStep, NewTemplate
from coding_gym_e2b.failures import ApiError
from coding_gym_e2b.registry import SandboxRegistry
from coding_gym_e2b.sandbox import Lifecycle
from coding_gym_e2b.settings import GatewaySettings
from coding_gym_e2b.templates import Templates

SOURCE = BuildSource()


class Session:
    """A session on no server."""

    address = Address("http://127.0.0.1:9")
    id = "s"
    is_lost = False

    def close(self):
        self.is_lost = True


class FalseHosts:
    """Hosts whose sessions are on no server.

    Attributes:
        sessions: All sessions so far.
        released: Number of those that have been released.
        may_fork: Set while sessions can be copied.
        error: What opening a session raises.
    """

    def __init__(self):
        self.sessions = []
        self.released = 0
        self.may_fork = asyncio.Event()
        self.may_fork.set()
        self.error = None

    async def open(self, image, *, is_own, is_root=False):
        if self.error is not None:
            raise self.error
        return SimpleNamespace(config=SandboxConfig()), self._add()

    async def fork(self, host, session, count):
        await self.may_fork.wait()
        if session.is_lost:
            raise ApiError(500, "copied a session that has ended")
        return [self._add() for _ in range(count)]

    def release(self, host, *, is_fork=False):
        self.released += 1

    @property
    def living(self):
        return [session for session in self.sessions if not session.is_lost]

    def _add(self):
        self.sessions.append(Session())
        return self.sessions[-1]


class Builder:
    """Templates on false hosts."""

    def __init__(self):
        self.hosts = FalseHosts()
        self.registry = SandboxRegistry(self.hosts)
        self.templates = Templates(GatewaySettings(config=SandboxConfig()), self.registry)

    async def build(self, name="made", source=SOURCE, **options):
        template = self.templates.add(NewTemplate(name=name, **options))
        self.templates.build(template, source)
        while template.status == "building":
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        return template

    async def create(self, name="made"):
        return await self.templates.create(name, Lifecycle(template_id=name), timeout=60, is_own=False)


def run(scenario):
    async def run_scenario():
        builder = Builder()
        await asyncio.wait_for(scenario(builder), 10)
        assert builder.hosts.released == len(builder.hosts.sessions) - len(builder.hosts.living)
        builder.registry.close()
        await builder.templates.close()
        assert builder.hosts.living == []

    asyncio.run(run_scenario())


@pytest.mark.parametrize("error", [ValueError("odd"), MemoryError(), asyncio.CancelledError()])
def test_unexpected_error_fails_the_build(error):
    async def scenario(builder):
        builder.hosts.error = error
        template = await builder.build()
        assert template.status == "error"
        assert type(error).__name__ in template.reason
        assert template.log[-1]["level"] == "error"

    run(scenario)


def test_unexpected_error_of_a_step_frees_the_sandbox(monkeypatch):
    async def run_step(*_, **__):
        raise RecursionError("deep")

    async def scenario(builder):
        monkeypatch.setattr("coding_gym_e2b.templates.run_step", run_step)
        template = await builder.build(source=BuildSource(steps=[BuildStep(type="RUN", args=["true"])]))
        assert (template.status, builder.hosts.living) == ("error", [])

    run(scenario)


def test_sandbox_that_cannot_begin_leaves_nothing():
    """Neither the build, whose snapshot was taken, nor the sandbox of a client."""

    async def scenario(builder):
        # There is no server to ask.
        template = await builder.build(source=BuildSource(ready_cmd="true"))
        assert template.status == "error"
        assert builder.hosts.living == []
        await builder.build()
        builder.templates.get("made").start = "true"
        living = builder.hosts.living
        with pytest.raises(ApiError, match="does not start"):
            await builder.create()
        assert builder.hosts.living == living

    run(scenario)


def test_snapshot_of_a_deleted_template_is_freed():
    async def scenario(builder):
        builder.hosts.may_fork.clear()
        building = asyncio.create_task(builder.build())
        while not builder.hosts.sessions:
            await asyncio.sleep(0)
        await asyncio.sleep(0.01)
        assert builder.templates.delete("made")
        builder.hosts.may_fork.set()
        assert (await building).status == "error"
        assert builder.hosts.living == []
        assert not builder.templates.exists("made")

    run(scenario)


def test_rebuilt_template_frees_the_old_snapshot_after_its_last_copy():
    async def scenario(builder):
        old = await builder.build()
        assert len(builder.hosts.living) == 1
        builder.hosts.may_fork.clear()
        creating = [asyncio.create_task(builder.create()) for _ in range(3)]
        await asyncio.sleep(0.01)
        rebuilding = asyncio.create_task(builder.build())
        await asyncio.sleep(0.01)
        builder.hosts.may_fork.set()
        sandboxes = await asyncio.gather(*creating)
        new = await rebuilding
        assert (new.status, new.id, old.source) == ("ready", old.id, None)
        # The new snapshot, and the sandboxes made of the old one.
        assert len(builder.hosts.living) == 4
        for sandbox in sandboxes:
            builder.registry.kill(sandbox)
        assert builder.hosts.living == [new.source.session]

    run(scenario)


def test_failed_rebuild_keeps_the_template():
    async def scenario(builder):
        old = await builder.build()
        broken = await builder.build(source=BuildSource(steps=[BuildStep(type="ODD")]))
        waiting = builder.templates.add(NewTemplate(name="made"))
        assert [build.status for build in (old, broken, waiting)] == ["ready", "error", "waiting"]
        assert builder.templates.get("made") is old
        assert builder.templates.get_build(old.id, broken.build_id) is broken
        await builder.create()
        assert builder.templates.delete("made")
        assert not builder.templates.exists("made")
        await asyncio.sleep(0.01)
        assert len(builder.hosts.living) == 1

    run(scenario)


def test_build_is_kept_while_one_of_its_names_needs_it():
    async def scenario(builder):
        first = await builder.build(tags=["v1"])
        second = await builder.build(tags=["v2"])
        assert [builder.templates.get(name) for name in ("made", "made:v1", "made:v2")] == [second, first, second]
        assert len(builder.hosts.living) == 2
        await builder.build(tags=["v1", "v2"])
        assert len(builder.hosts.living) == 1

    run(scenario)


def test_newer_build_is_not_replaced_by_an_older_one_that_ends_later():
    async def scenario(builder):
        builder.hosts.may_fork.clear()
        older, newer = (builder.templates.add(NewTemplate(name="made")) for _ in range(2))
        builder.templates.build(newer, SOURCE)
        builder.templates.build(older, SOURCE)
        await asyncio.sleep(0.01)
        builder.hosts.may_fork.set()
        await asyncio.sleep(0.01)
        assert (older.status, newer.status) == ("ready", "ready")
        assert builder.templates.get("made") is newer
        assert builder.hosts.living == [newer.source.session]

    run(scenario)


def test_build_begins_once():
    async def scenario(builder):
        template = await builder.build()
        with pytest.raises(ApiError, match="begun already"):
            builder.templates.build(template, SOURCE)
        assert template.status == "ready"

    run(scenario)


def test_past_builds_are_forgotten_in_the_end(monkeypatch):
    async def scenario(builder):
        monkeypatch.setattr("coding_gym_e2b.templates._MAX_PAST", 2)
        usable = await builder.build("kept")
        builds = [await builder.build(f"b{n}", BuildSource(from_template="none")) for n in range(4)]
        assert [builder.templates.get(f"b{n}") for n in range(4)] == [None, None, *builds[2:]]
        assert builder.templates.get("kept") is usable

    run(scenario)
