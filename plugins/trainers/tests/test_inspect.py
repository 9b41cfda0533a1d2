"""The sandbox provider for Inspect passes Inspect's own conformance tests."""

from __future__ import annotations

import contextlib
import errno

import pytest

pytest.importorskip("inspect_ai", reason="Inspect is not installed: pip install 'coding-gym[inspect]'")

import anyio
from inspect_ai.util import OutputLimitExceededError, SandboxUnavailableError
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.limits import override_sandbox_output_limit
from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

from coding_gym.errors import ConfigurationError
from coding_gym_trainers.inspect import CodingGymSandbox, CodingGymSandboxConfig
from tests.support.built_images import removed_afterwards

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("docker_engine")]

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

    async def check(sandbox, names):
        for name in names:
            try:
                await getattr(self_check, name)(sandbox)
            except BaseException as error:
                failures[name] = repr(error)

    async def check_all():
        async with opened() as sandbox, anyio.create_task_group() as tasks:
            # Checks of timeouts wait for several seconds.
            waiting = [name for name in CHECKS if "timeout" in name]
            for names in (sorted(set(CHECKS) - set(waiting)), *([name] for name in waiting)):
                tasks.start_soon(check, sandbox, names)

    anyio.run(check_all)
    assert failures == {}
    assert len(CHECKS) >= 43


async def raised(kind, work):
    with pytest.raises(kind) as caught:
        await work
    return caught.value


def test_image_of_dockerfile(docker_engine, tmp_path):
    (tmp_path / "Dockerfile").write_text(
        "FROM debian:trixie-slim\nRUN useradd -m other\nCOPY given.txt /srv/\nWORKDIR /srv\nENV A=b\n"
    )
    (tmp_path / "given.txt").write_text("given")

    async def check():
        environments = await CodingGymSandbox.sample_init("task", str(tmp_path / "Dockerfile"), {})
        try:
            sandbox = environments["default"]
            assert (await sandbox.exec(["sh", "-c", "cat given.txt; id -un; echo $A"])).stdout == "givenroot\nb\n"
            assert (await sandbox.exec(["id", "-un"], user="other")).stdout == "other\n"
            await sandbox.write_file("/etc/made", "made")
            assert await sandbox.read_file("/etc/made") == "made"
        finally:
            await CodingGymSandbox.sample_cleanup("task", None, environments, False)

    with removed_afterwards(docker_engine, tmp_path):
        anyio.run(check)


def test_compose_file_is_refused(tmp_path):
    (tmp_path / "compose.yaml").write_text("services: {}\n")

    async def check():
        with pytest.raises(ConfigurationError, match="the path of a Dockerfile, whose sandbox has no further services"):
            await CodingGymSandbox.sample_init("task", str(tmp_path / "compose.yaml"), {})

    anyio.run(check)


def test_errors_are_those_that_inspect_expects():
    async def check():
        async with opened() as sandbox:
            error = await raised(TimeoutError, sandbox.exec(["sh", "-c", "echo partial; sleep 60"], timeout=1))
            assert error.truncated_output == "partial\n"
            with override_sandbox_output_limit(100):
                error = await raised(OutputLimitExceededError, sandbox.exec(["sh", "-c", "seq 1000; echo err >&2"]))
            assert error.truncated_output.startswith("1\n2\n")
            assert error.truncated_output.endswith("err\n")
            await raised(PermissionError, sandbox.exec(["/etc/passwd"]))
            for arguments in ({"cmd": ["echo", "a\0"]}, {"cmd": ["env"], "env": {"A": "\0"}}, {"cmd": ["pwd"], "cwd": "\0"}):
                assert "embedded null byte" in str(await raised(ValueError, sandbox.exec(**arguments)))
            result = await sandbox.exec(["echo", "x" * (17 << 20)])
            assert (result.success, result.returncode, result.stderr) == (False, 126, "echo: Argument list too long\n")

    anyio.run(check)


def test_file_errors_name_reason_and_file():
    async def check():
        async with opened(disk="8m") as sandbox:
            # The names must not be mistaken for the reasons.
            await sandbox.exec(["mkdir", "No such file or directory"])
            for file, kind, number in (
                ("Is a directory", FileNotFoundError, errno.ENOENT),
                ("No such file or directory", IsADirectoryError, errno.EISDIR),
                ("/etc/shadow", PermissionError, errno.EACCES),
                ("x" * 300, OSError, errno.ENAMETOOLONG),
            ):
                error = await raised(kind, sandbox.read_file(file))
                assert (error.errno, error.filename) == (number, file)
            assert (await raised(OSError, sandbox.write_file("large", bytes(16 << 20)))).errno == errno.ENOSPC
            await sandbox.exec(["rm", "large"])
            await sandbox.write_file("binary", b"\xff")
            await raised(UnicodeDecodeError, sandbox.read_file("binary"))

    anyio.run(check)


def test_process_that_cannot_start_is_unavailable():
    async def check():
        async with opened() as sandbox:
            started = [sandbox._env.processes.start("sleep 60") for _ in range(64)]
            error = await raised(SandboxUnavailableError, sandbox.exec(["true"]))
            assert "runs 64 processes already" in str(error)
            started[0].kill()
            started[0].wait()
            assert (await sandbox.exec(["true"])).success

    anyio.run(check)


def test_program_lost_with_its_session_is_unavailable():
    async def check():
        async with opened() as sandbox, anyio.create_task_group() as tasks:

            async def run():
                error = await raised(SandboxUnavailableError, sandbox.exec(["sh", "-c", "touch started; sleep 60"]))
                assert "the session was reset" in str(error)

            tasks.start_soon(run)
            while not (await sandbox.exec(["test", "-e", "started"])).success:
                await anyio.sleep(0.05)
            await sandbox._env.reset()

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
