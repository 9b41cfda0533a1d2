# /// script
# requires-python = ">=3.12"
# dependencies = ["httpx==0.28.1", "pyyaml==6.0.3", "omegaconf==2.4.0", "pydantic==2.14.3", "orjson==3.13.0"]
#
# [tool.isolated]
# alone = ["nemo-gym==0.7.0"]
# ///
"""NeMo Gym's sandboxes are those of coding_gym.

Of NeMo Gym, which wants Python 3.13.14, Ray and MLflow, this installs the wheel, and what its package ``sandbox`` imports.
"""

from __future__ import annotations

import asyncio

import pytest
from nemo_gym.sandbox import AsyncSandbox, Sandbox, SandboxCreateError, SandboxResources, SandboxSpec, SandboxStatus
from nemo_gym.sandbox.providers import create_provider, get_provider_class, list_providers
from nemo_gym.sandbox.providers.base import SandboxProvider

from coding_gym.envs.async_coding_env import AsyncCodingEnv
from coding_gym.errors import ConfigurationError
from coding_gym_trainers.nemo_gym import CodingGymProvider
from tests.support.sandbox_faults import kill_sessions, living_children
from tests.support.timing import eventually

CONFIG = {"coding_gym": {"provider": "local", "preload": ()}}


def with_sandbox(test, spec=None):
    async def body():
        async with AsyncSandbox(CONFIG) as sandbox:
            await sandbox.start(spec or SandboxSpec())
            await test(sandbox)

    asyncio.run(body())


def test_provider_is_found_by_entry_point():
    assert "coding_gym" in list_providers()
    assert get_provider_class("coding_gym") is CodingGymProvider
    methods = [name for name in vars(SandboxProvider) if not name.startswith("_") and callable(getattr(SandboxProvider, name))]
    assert len(methods) >= 7
    assert all(callable(getattr(CodingGymProvider, name)) for name in methods)


def test_commands_report_output_and_code():
    async def test(sandbox):
        result = await sandbox.exec("echo 'grüß ✓'; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.return_code, result.error_type) == ("grüß ✓\n", "err\n", 3, None)
        assert (await sandbox.exec("no_such_program")).return_code == 127
        assert (await sandbox.exec("echo $A $B", env={"B": "2"})).stdout == "1 2\n"
        assert (await sandbox.exec("pwd", cwd="/usr")).stdout == "/usr\n"
        assert (await sandbox.exec("head -c 3000000 /dev/zero | tr '\\0' x")).stdout == "x" * 3_000_000
        assert (await sandbox.exec("true", user="root")).return_code == 0
        with pytest.raises(ConfigurationError, match="nobody"):
            await sandbox.exec("true", user="nobody")

    with_sandbox(test, SandboxSpec(env={"A": "1"}))


def test_timeout_kills_keeps_output_and_sandbox():
    async def test(sandbox):
        result = await sandbox.exec("echo begun; sleep 60", timeout_s=0.5)
        assert (result.stdout, result.return_code, result.error_type) == ("begun\n", 125, "timeout")
        assert "timed out after 0.5s" in result.stderr
        assert (await sandbox.exec("echo on")).stdout == "on\n"

    with_sandbox(test)


def test_files_and_working_directory(tmp_path):
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "bytes").write_bytes(b"\xff\x00")

    async def test(sandbox):
        assert (await sandbox.exec("basename $PWD; cat given.txt")).stdout == "work\ngegeben ✓"
        await sandbox.upload(tmp_path / "run.sh", "bin/run.sh")
        assert (await sandbox.exec("./bin/run.sh")).stdout == "ran\n"
        await sandbox.upload(tmp_path / "bytes", "/tmp/bytes")
        await sandbox.download("/tmp/bytes", tmp_path / "new" / "copy")
        assert (tmp_path / "new" / "copy").read_bytes() == b"\xff\x00"
        with pytest.raises(FileNotFoundError):
            await sandbox.download("nowhere", tmp_path / "x")
        assert not (tmp_path / "x").exists()
        with pytest.raises(PermissionError):
            await sandbox.upload(tmp_path / "bytes", "/proc/version")

    with_sandbox(test, SandboxSpec(workdir="/tmp/work", files={"given.txt": "gegeben ✓"}))


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(ports=(8080,)),
        SandboxSpec(entrypoint=["sleep", "1"]),
        SandboxSpec(resources=SandboxResources(gpu=1)),
        SandboxSpec(provider_options={"no_such_option": 1}),
        SandboxSpec(image="some/image"),
        SandboxSpec(workdir="/proc/work"),
        SandboxSpec(env={"A=B": "c"}),
    ],
)
def test_unsupported_specification_is_a_create_error(spec):
    async def test():
        provider = create_provider(CONFIG)
        with pytest.raises(SandboxCreateError):
            await provider.create(spec)
        await provider.aclose()

    asyncio.run(test())


def test_resources_limit_sandbox():
    async def test(sandbox):
        config = sandbox._handle.raw.env.config
        assert (config.cpu, config.mem, config.start_timeout) == (1.0, "512m", 50)

    with_sandbox(test, SandboxSpec(resources={"cpu": 1, "memory_mib": 512}, ready_timeout_s=50, ttl_s=60))


def test_lost_and_closed_sandboxes_are_reported():
    async def test():
        provider = create_provider(CONFIG)
        one, other = await provider.create(SandboxSpec()), await provider.create(SandboxSpec())
        assert await provider.status(one) == SandboxStatus.RUNNING
        one.raw.env.sandbox.close()
        assert await provider.status(one) == SandboxStatus.ERROR
        lost = await provider.exec(one, "echo hi")
        assert (lost.return_code, lost.error_type) == (125, "sandbox")
        await provider.close(one)
        await provider.close(one)
        assert await provider.status(one) == SandboxStatus.STOPPED
        assert (await provider.exec(one, "echo hi")).error_type == "sandbox"
        await provider.aclose()
        await provider.aclose()
        assert await provider.status(other) == SandboxStatus.STOPPED

    asyncio.run(test())


def test_lost_session_is_reported():
    async def test(sandbox):
        kill_sessions(sandbox._handle.raw.env.sandbox)
        for _ in range(2):
            result = await sandbox.exec("echo hi")
            assert (result.return_code, result.error_type) == (125, "sandbox")

    with_sandbox(test)


def test_command_that_exceeds_limit_is_no_error_of_the_sandbox():
    async def test(sandbox):
        result = await sandbox.exec("for i in $(seq 200); do sleep 60 & done; wait")
        assert (result.return_code, result.error_type) == (137, None)
        assert "the sandbox's limit is 60" in result.stderr
        assert (await sandbox.exec("echo on")).stdout == "on\n"

    with_sandbox(test, SandboxSpec(provider_options={"pids_limit": 60}))


def test_sandbox_that_is_not_created_is_removed(monkeypatch):
    async def test():
        provider = create_provider(CONFIG)
        before = living_children()
        with pytest.raises(SandboxCreateError):
            await provider.create(SandboxSpec(env={"A=B": "c"}))
        assert eventually(lambda: not living_children() - before)
        begun = asyncio.Event()

        async def hang(*_, **__):
            begun.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(AsyncCodingEnv, "exec", hang)
        creating = asyncio.create_task(provider.create(SandboxSpec(workdir="/tmp/work")))
        await begun.wait()
        assert living_children() - before
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        assert eventually(lambda: not living_children() - before)

    asyncio.run(test())


def test_synchronous_sandbox_works():
    with Sandbox(CONFIG) as sandbox:
        sandbox.start(SandboxSpec())
        assert sandbox.exec("echo hi").stdout == "hi\n"
        assert sandbox.status() == SandboxStatus.RUNNING
