# /// script
# dependencies = ["httpx==0.28.1", "swe-rex==1.4.0"]
# ///
"""SWE-ReX's runtime and deployment run in a sandbox, as its own runtime on this machine does."""

from __future__ import annotations

import asyncio
import gc

import pytest
from swerex.deployment.abstract import AbstractDeployment
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)
from swerex.runtime.local import LocalRuntime

from coding_gym.code_interpreter import CodeInterpreter
from coding_gym.errors import ConfigurationError, TransportError
from coding_gym_trainers.swerex import SandboxDeployment, SandboxRuntime
from tests.support.sandbox_faults import kill_sandbox, living_children
from tests.support.timing import eventually

DEFAULT = CreateBashSessionRequest()


@pytest.fixture(scope="module")
def interpreter():
    with CodeInterpreter(provider="local", backend="python", preload=()) as interpreter:
        yield interpreter


@pytest.fixture
def check(interpreter):
    """Function that runs a coroutine function with a runtime that has a session."""

    def run(test):
        async def body():
            runtime = SandboxRuntime(interpreter)
            await runtime.create_session(DEFAULT)
            await test(runtime)

        try:
            asyncio.run(body())
        finally:
            for context in interpreter.contexts.list():
                interpreter.contexts.delete(context)

    return run


async def run(runtime, command, **options):
    return await runtime.run_in_session(BashAction(command=command, **{"timeout": 20, **options}))


def test_interfaces_are_complete():
    assert issubclass(SandboxRuntime, AbstractRuntime)
    assert not SandboxRuntime.__abstractmethods__
    assert issubclass(SandboxDeployment, AbstractDeployment)
    assert not SandboxDeployment.__abstractmethods__


def test_session_keeps_directory_and_variables(check):
    async def test(runtime):
        await run(runtime, "mkdir -p sub && cd sub\nexport NAME='zwölf ✓'\nlater() { echo \"$NAME\"; }")
        assert (await run(runtime, "pwd | sed 's|.*/||'; later")).output == "sub\nzwölf ✓\n"
        await run(runtime, "exit 0")
        assert (await run(runtime, "later # comment")).output == "zwölf ✓\n"
        assert (await run(runtime, "cat <<'EOF'\n$NAME\nEOF")).output == "$NAME\n"
        assert (await run(runtime, "")).output == ""

    check(test)


async def run_locally(command):
    """Run a command in a session of SWE-ReX's own runtime, which takes its prompt for output if the machine is busy."""
    for _ in range(5):
        local = LocalRuntime()
        await local.create_session(CreateBashSessionRequest(startup_timeout=10))
        observation = await run(local, command, check="silent")
        await local.close()
        if observation.exit_code is not None:
            break
    return observation


def test_observations_equal_those_of_local_runtime(check):
    commands = [
        "echo hi",
        "echo out; echo err >&2; echo out",
        "(exit 3)",
        "false | true",
        "printf 'no newline'",
        "no_such_program 2>/dev/null",
        "x=1; for i in 1 2 3; do x=$((x * 2)); done; echo $x",
        "test -t 0",
    ]

    async def test(runtime):
        for command in commands[:-1]:
            ours, theirs = await run(runtime, command, check="silent"), await run_locally(command)
            assert (ours.exit_code, ours.output.split()) == (theirs.exit_code, theirs.output.split()), command
        # A difference on purpose: no terminal.
        assert (await run(runtime, commands[-1], check="silent")).exit_code == 1

    check(test)


def test_check_decides_about_exit_codes(check):
    async def test(runtime):
        with pytest.raises(NonZeroExitCodeError, match=r"(?s)sorry: .* failed with exit code 1\..*partial"):
            await run(runtime, "echo partial; false", error_msg="sorry")
        assert (await run(runtime, "false", check="silent")).exit_code == 1
        assert (await run(runtime, "false", check="ignore")).exit_code is None
        with pytest.raises(BashIncorrectSyntaxError) as caught:
            await run(runtime, "touch made; if true; then")
        assert "syntax error" in caught.value.extra_info["bash_stderr"]
        assert (await run(runtime, "test -e made", check="silent")).exit_code == 1

    check(test)


def test_timeout_leaves_session_usable(check):
    async def test(runtime):
        await run(runtime, "kept=1; cd /")
        for command in ("echo begun; sleep 60", "echo begun; while :; do :; done", "echo begun; trap '' INT; sleep 60"):
            with pytest.raises(CommandTimeoutError, match="begun"):
                await run(runtime, command, timeout=0.5)
            await runtime.run_in_session(BashInterruptAction())
            assert (await run(runtime, "pwd", check="silent")).exit_code == 0

    check(test)


def test_timeout_of_zero_leaves_session_usable(check):
    async def test(runtime):
        await run(runtime, "kept=2; cd /")
        with pytest.raises(CommandTimeoutError):
            await run(runtime, "sleep 60", timeout=0)
        assert (await run(runtime, "echo $kept $PWD")).output == "2 /\n"

    check(test)


def test_interrupt_and_cancellation_end_running_command(check):
    async def test(runtime):
        await run(runtime, "kept=1")
        for end in ("interrupt", "cancel"):
            running = asyncio.create_task(run(runtime, f"touch {end}; sleep 60; echo never", check="silent", timeout=None))
            while (await runtime.execute(Command(command=["test", "-e", end]))).exit_code != 0:
                await asyncio.sleep(0.05)
            if end == "cancel":
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            else:
                await runtime.run_in_session(BashInterruptAction())
                observation = await running
                assert (observation.exit_code, "never" in observation.output) == (130, False)
            assert (await run(runtime, "echo $kept")).output == "1\n"

    check(test)


def test_killed_shell_is_reported_and_replaced(check):
    async def test(runtime):
        observation = await run(runtime, "echo before; kill -9 $$", check="silent")
        assert (observation.exit_code, observation.output.splitlines()[0]) == (137, "before")
        assert (await run(runtime, "echo after")).output == "after\n"

    check(test)


def test_sessions_share_files_only(check):
    async def test(runtime):
        with pytest.raises(SessionExistsError):
            await runtime.create_session(DEFAULT)
        (await runtime.write_file(WriteFileRequest(path="rc", content="X=sourced; echo hello\n")))
        created = await runtime.create_session(CreateBashSessionRequest(session="two", startup_source=["rc"]))
        assert created.output == "hello\n"
        assert (await run(runtime, "echo $X", session="two")).output == "sourced\n"
        assert (await run(runtime, "echo $X; cat rc")).output == "\nX=sourced; echo hello\n"
        await runtime.close_session(CloseBashSessionRequest(session="two"))
        for call in (run(runtime, "true", session="two"), runtime.close_session(CloseBashSessionRequest(session="two"))):
            with pytest.raises(SessionDoesNotExistError):
                await call

    check(test)


def test_interactive_actions_are_refused(check):
    async def test(runtime):
        for options in ({"is_interactive_command": True}, {"is_interactive_quit": True}, {"expect": [">>>"]}):
            with pytest.raises(ConfigurationError, match="interactive"):
                await run(runtime, "python3", **options)

    check(test)


def test_execute_runs_programs(check):
    async def test(runtime):
        async def execute(command, **options):
            response = await runtime.execute(Command(command=command, **options))
            return response.exit_code, response.stdout, response.stderr

        assert await execute(["printf", "%s", "a b"]) == (0, "a b", "")
        assert await execute("echo $0 out; echo err >&2; exit 3", shell=True) == (3, "sh out\n", "err\n")
        assert await execute("echo out; echo err >&2", shell=True, merge_output_streams=True) == (0, "out\nerr\n", "")
        assert await execute("echo $A; pwd", shell=True, env={"A": "ä"}, cwd="/usr") == (0, "ä\n/usr\n", "")
        assert (await execute(["no_such_program"]))[0] == 127
        assert len((await execute(["head", "-c", "3000000", "/dev/zero"]))[1]) == 3_000_000
        with pytest.raises(CommandTimeoutError):
            await execute(["sleep", "60"], timeout=0.3)
        with pytest.raises(NonZeroExitCodeError, match=r"sorry: .* failed with exit code 1"):
            await execute(["false"], check=True, error_msg="sorry")

    check(test)


def test_large_outputs_are_cut(check):
    async def test(runtime):
        output = (await run(runtime, "head -c 30000000 /dev/zero | tr '\\0' x")).output
        assert 1_000_000 < len(output) < 10_000_000
        assert (await run(runtime, "echo on")).output == "on\n"

    check(test)


def test_files(check, tmp_path):
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "bytes").write_bytes(b"\xff\x00")
    (tmp_path / "tree" / "run.sh").write_text("echo ran\n")
    (tmp_path / "tree" / "run.sh").chmod(0o755)
    (tmp_path / "one.txt").write_text("one")

    async def test(runtime):
        await runtime.write_file(WriteFileRequest(path="deep/er/ü.txt", content="ünï ✓"))
        assert (await runtime.read_file(ReadFileRequest(path="deep/er/ü.txt"))).content == "ünï ✓"
        for path, kind in (("nowhere", FileNotFoundError), ("deep", IsADirectoryError)):
            with pytest.raises(kind) as caught:
                await runtime.read_file(ReadFileRequest(path=path))
            assert caught.value.filename == path
        with pytest.raises(PermissionError):
            await runtime.write_file(WriteFileRequest(path="/proc/version", content="x"))
        await runtime.upload(UploadRequest(source_path=str(tmp_path / "tree"), target_path="copy"))
        assert (await run(runtime, "./copy/run.sh; od -An -tx1 copy/inner/bytes")).output == "ran\n ff 00\n"
        with pytest.raises(UnicodeDecodeError):
            await runtime.read_file(ReadFileRequest(path="copy/inner/bytes"))
        lenient = await runtime.read_file(ReadFileRequest(path="copy/inner/bytes", errors="replace"))
        assert lenient.content == "\N{REPLACEMENT CHARACTER}\0"
        await runtime.upload(UploadRequest(source_path=str(tmp_path / "one.txt"), target_path="copy"))
        await runtime.upload(UploadRequest(source_path=str(tmp_path / "one.txt"), target_path="renamed.txt"))
        assert (await run(runtime, "cat copy/one.txt renamed.txt")).output == "oneone"
        with pytest.raises(FileNotFoundError):
            await runtime.upload(UploadRequest(source_path=str(tmp_path / "nowhere"), target_path="x"))

    check(test)


def test_calls_at_a_time_start_one_session(interpreter):
    async def test():
        runtime = SandboxRuntime(interpreter)
        before = len(interpreter.contexts.list())
        started = await asyncio.gather(*(runtime.create_session(DEFAULT) for _ in range(3)), return_exceptions=True)
        assert sorted(type(each).__name__ for each in started) == ["CreateBashSessionResponse", *["SessionExistsError"] * 2]
        responses = await asyncio.gather(*(runtime.execute(Command(command=["echo", str(n)])) for n in range(3)))
        assert [response.stdout for response in responses] == ["0\n", "1\n", "2\n"]
        # Those of the session and of the programs.
        assert len(interpreter.contexts.list()) == before + 2

    asyncio.run(test())


def test_end_of_bash_is_told(check):
    async def test(runtime):
        observation = await run(runtime, "kept=1; echo begun; exec false", check="silent")
        assert observation.exit_code == 137
        assert observation.output.startswith("begun\n")
        assert "variables are lost" in observation.output
        assert (await run(runtime, "echo $kept")).output == "\n"

    check(test)


def test_merged_output_says_why_program_did_not_start(check):
    async def test(runtime):
        response = await runtime.execute(Command(command=["true"], cwd="/nowhere", merge_output_streams=True))
        assert (response.exit_code, response.stderr) == (127, "")
        assert "/nowhere" in response.stdout

    check(test)


def test_sandbox_that_is_lost_during_command_is_an_error():
    async def test():
        deployment = SandboxDeployment(provider="local")
        await deployment.start()
        runtime = deployment.runtime
        await runtime.create_session(DEFAULT)
        commands = [
            run(runtime, "touch one; sleep 60", check="silent", timeout=None),
            runtime.execute(Command(command="touch two; sleep 60", shell=True)),
        ]
        tasks = [asyncio.create_task(command) for command in commands]
        for name in ("one", "two"):
            while (await runtime.execute(Command(command=["test", "-e", name]))).exit_code != 0:
                await asyncio.sleep(0.05)
        kill_sandbox(runtime._interpreter.sandbox)
        assert [type(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == [TransportError] * 2
        await deployment.stop()

    asyncio.run(test())


def test_deployment_removes_each_sandbox_that_it_starts():
    async def test():
        before = living_children()
        deployment = SandboxDeployment(provider="local", preload=())
        await asyncio.gather(deployment.start(), deployment.start())
        assert len(living_children() - before) == 1
        await deployment.stop()
        assert eventually(lambda: not living_children() - before)
        starting = asyncio.create_task(deployment.start())
        while not living_children() - before:
            await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await deployment.stop()
        assert eventually(lambda: not living_children() - before)

    asyncio.run(test())


def test_deployment_starts_and_stops():
    async def test():
        deployment = SandboxDeployment(provider="local")
        await deployment.stop()
        with pytest.raises(DeploymentNotStartedError):
            await deployment.is_alive()
        with pytest.raises(DeploymentNotStartedError):
            _ = deployment.runtime
        await deployment.start()
        await deployment.start()
        assert await deployment.is_alive(timeout=10)
        runtime = deployment.runtime
        await runtime.create_session(DEFAULT)
        assert (await run(runtime, "echo hi")).output == "hi\n"
        # The sandbox is lost.
        runtime._interpreter.sandbox.close()
        assert not await runtime.is_alive(timeout=10)
        with pytest.raises(TransportError):
            await run(runtime, "echo hi")
        await deployment.stop()
        await deployment.stop()
        await runtime.close()
        assert not (await runtime.is_alive(timeout=10)).is_alive

    asyncio.run(test())
    gc.collect()


@pytest.mark.docker
def test_image(docker_engine, tmp_path):
    (tmp_path / "given.txt").write_text("given")

    async def test():
        deployment = SandboxDeployment(image="debian:trixie-slim", provider="docker")
        await deployment.start()
        runtime = deployment.runtime
        try:
            await runtime.create_session(DEFAULT)
            assert (await run(runtime, "id -un; pwd; command -v python3; echo $?")).output == "root\n/\n1\n"
            await runtime.write_file(WriteFileRequest(path="/srv/made", content="made"))
            await runtime.upload(UploadRequest(source_path=str(tmp_path), target_path="/srv/folder"))
            assert (await run(runtime, "cat /srv/made /srv/folder/given.txt")).output == "madegiven"
            assert (await runtime.read_file(ReadFileRequest(path="/srv/made"))).content == "made"
        finally:
            await deployment.stop()

    asyncio.run(test())
