"""The sandbox provider for Inspect passes Inspect's own conformance tests."""

from __future__ import annotations

import contextlib

import pytest

pytest.importorskip("inspect_ai", reason="Inspect is not installed: pip install 'coding-gym[inspect]'")

import anyio
from inspect_ai.util import SandboxUnavailableError
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

from coding_gym.errors import ConfigurationError
from coding_gym.integrations.inspect import CodingGymSandbox, CodingGymSandboxConfig

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

NEEDS_ROOT = {"test_exec_as_user"}
CHECKS = sorted(set(self_check.__all__) - NEEDS_ROOT)


@contextlib.asynccontextmanager
async def opened(**options):
    config = CodingGymSandboxConfig(provider="docker", **options)
    environments = await CodingGymSandbox.sample_init("task", config, {})
    try:
        yield environments["default"]
    finally:
        await CodingGymSandbox.sample_cleanup("task", config, environments, False)


def test_provider_is_registered():
    assert registry_find_sandboxenv("coding_gym") is CodingGymSandbox


def test_provider_passes_conformance_suite():
    failures = {}

    async def check_all():
        async with opened() as sandbox:
            for name in CHECKS:
                try:
                    await getattr(self_check, name)(sandbox)
                except BaseException as error:
                    failures[name] = repr(error)

    anyio.run(check_all)
    assert failures == {}
    assert len(CHECKS) >= 43


def test_other_users_are_unsupported():
    async def check():
        async with opened() as sandbox:
            await self_check.test_exec_as_nonexistent_user(sandbox)

    anyio.run(check)


def test_lost_sandbox_is_unavailable():
    async def check():
        async with opened() as sandbox:
            await sandbox._env.aclose()
            with pytest.raises(SandboxUnavailableError):
                await sandbox.exec(["true"])

    anyio.run(check)


@pytest.mark.parametrize("config", ["compose.yaml", CodingGymSandboxConfig(no_such_option=1)])
def test_invalid_configuration_is_refused(config):
    with pytest.raises(ConfigurationError):
        anyio.run(CodingGymSandbox.sample_init, "task", config, {})
