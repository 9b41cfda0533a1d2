"""Processes and files of an episode, from each form of environment."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import gymnasium as gym
import pytest

from coding_gym import AsyncCodingEnv, CodeInterpreter, branching
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError
from tests.support.sandbox_faults import kill_sandbox
from tests.support.timing import eventually

OPTIONS = {"screen": None, "step_timeout": 20}
WAIT_FOR_GO = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\n"


@pytest.fixture(scope="module")
def shared(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, **OPTIONS).unwrapped) as env:
        yield env


@pytest.fixture
def env(shared):
    shared.reset(seed=1)
    return shared


def test_exec_returns_result(env):
    result = env.exec("echo out; echo err >&2; exit 2", env={"A": "b"}, timeout=10)
    assert (result.exit_code, result.stdout_text, result.stderr_text) == (2, "out\n", "err\n")


def test_exec_requires_reset(pool):
    with closing(gym.make("CodingEnv-v0", pool=pool, **OPTIONS).unwrapped) as env, pytest.raises(gym.error.ResetNeeded):
        env.exec("true")


def test_exec_in_lost_sandbox_is_transport_error():
    with closing(gym.make("CodingEnv-v0", provider="local", preload=(), **OPTIONS).unwrapped) as env:
        env.reset(seed=1)
        process = env.processes.start("sleep 60")
        kill_sandbox(env.sandbox)
        with pytest.raises(TransportError):
            process.wait()
        with pytest.raises(TransportError):
            env.exec("true")
        env.reset(seed=2)
        assert env.exec("echo again").stdout == b"again\n"


def test_invalid_arguments_are_configuration_errors(env):
    with pytest.raises(ConfigurationError, match="timeout_s"):
        env.exec("true", timeout="soon")


def test_files_are_shared_with_code(env):
    env.files.write("a/b.txt", "text")
    assert env.step("open('a/b.txt').read()")[0]["stdout"] == "'text'\n"
    env.step("open('c', 'wb').write(bytes(range(256)))")
    assert env.files.read("c") == bytes(range(256))
    assert [(entry.name, entry.type) for entry in env.files.list()] == [("a", "dir"), ("c", "file")]
    env.files.remove("a")
    assert env.exec("ls").stdout == b"c\n"


def test_usual_places_belong_to_the_session(env, provider):
    """Programs expect to write data in ``/mnt`` and ``/data``, which an image may have."""
    places = [place for place in ("/mnt", "/data") if os.path.isdir(place) or provider == "docker"]
    assert places
    for place in places:
        assert env.exec(f'test -z "$(ls -A {place})" && mkdir {place}/deep && echo kept > {place}/deep/file').exit_code == 0
    with branching.clone_state(env) as snapshot:
        env.exec(f"rm -r {' '.join(f'{place}/deep' for place in places)}")
        branching.restore_state(env, snapshot)
        for place in places:
            assert env.step(f"open('{place}/deep/file').read()")[0]["stdout"] == "'kept\\n'\n"
    env.reset(seed=2)
    for place in places:
        assert env.exec(f"ls -A {place}; touch {place}/new").stdout == b""


def test_files_outside_workspace_are_refused(env):
    env.step("import os; os.symlink('/etc', 'link')")
    for path in ("../x", "/etc/passwd", "link/passwd"):
        with pytest.raises(ProtocolError):
            env.files.read(path)


def test_directories_are_uploaded_and_downloaded(env, tmp_path):
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "one").write_text("1")
    (source / "deep" / "er" / "two \u00fc").write_bytes(os.urandom(1 << 20))
    env.files.upload(source, "copy")
    assert env.exec("find copy -type f | wc -l").stdout == b"2\n"
    env.files.download("copy", tmp_path / "target")
    for name in ("one", "deep/er/two \u00fc"):
        assert (tmp_path / "target" / name).read_bytes() == (source / name).read_bytes()
    env.files.download("copy/one", tmp_path / "new" / "file")
    assert (tmp_path / "new" / "file").read_text() == "1"


def test_executable_files_stay_executable(env, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name, mode in (("run", 0o755), ("plain", 0o644)):
        (source / name).write_text("#!/bin/sh\necho ran\n")
        (source / name).chmod(mode)
    env.files.upload(source, "copy")
    env.files.upload(source / "run", "alone")
    assert env.exec("copy/run && ./alone && ! test -x copy/plain").stdout == b"ran\nran\n"
    assert [(entry.name, entry.is_executable) for entry in env.files.list("copy")] == [("plain", False), ("run", True)]
    env.files.download("copy", tmp_path / "back")
    env.files.download("alone", tmp_path / "file")
    assert os.access(tmp_path / "back" / "run", os.X_OK)
    assert os.access(tmp_path / "file", os.X_OK)
    assert not os.access(tmp_path / "back" / "plain", os.X_OK)
    # A new content does not change the mode.
    env.files.write("copy/run", "#!/bin/sh\necho again\n")
    assert env.exec("copy/run").stdout == b"again\n"


def test_download_leaves_out_what_cannot_be_read(env, tmp_path):
    env.step(
        "import os; os.makedirs('d/deep'); os.mkfifo('d/fifo'); os.symlink('missing', 'd/dangling')\n"
        "os.symlink('/etc/passwd', 'd/deep/outside')\n"
        "for path in ('d/a', 'd/z', 'd/deep/file', 'd/empty'): open(path, 'w').write(path * (path != 'd/empty'))"
    )
    unreadable = env.files.download("d", tmp_path / "d")
    assert sorted(unreadable) == ["d/dangling", "d/deep/outside", "d/fifo"]
    assert "Not a file" in unreadable["d/fifo"]
    found = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"d/a": "d/a", "d/z": "d/z", "d/deep/file": "d/deep/file", "d/empty": ""}
    with pytest.raises(ProtocolError, match="Not a file"):
        env.files.download("d/fifo", tmp_path / "fifo")
    assert not (tmp_path / "fifo").exists()


def test_download_follows_no_loops_and_is_bounded(env, tmp_path):
    env.step("import os; os.mkdir('d'); [os.symlink('.', f'd/{n}') for n in 'abc']; open('d/file', 'w').write('x')")
    env.files.download("d", tmp_path / "d")
    assert os.listdir(tmp_path / "d") == ["file"]
    env.step("os.truncate('d/file', 1 << 26)")
    with pytest.raises(ProtocolError, match="max_bytes"):
        env.files.download("d", tmp_path / "e", max_bytes=5 << 20)


def test_missing_files_are_not_found(env, tmp_path):
    with pytest.raises(FileNotFoundError):
        env.files.read("missing")
    with pytest.raises(FileNotFoundError):
        env.files.download("missing", tmp_path / "target")
    with pytest.raises(FileNotFoundError):
        env.files.upload(tmp_path / "missing", "x")


def test_reset_forgets_processes_and_files(env):
    env.files.write("file", "x")
    process = env.processes.start("sleep 60")
    env.reset(seed=2)
    assert env.processes.list() == []
    assert env.files.list() == []
    assert process.wait().signal == 9


def test_async_exec_runs_beside_step(pool):
    async def run():
        async with AsyncCodingEnv(pool=pool, **OPTIONS) as env:
            step = asyncio.create_task(env.step(f"{WAIT_FOR_GO}'cell'"))
            await asyncio.sleep(0.1)
            results = await asyncio.gather(*(env.exec(f"echo {number}") for number in range(5)))
            assert not step.done()
            await asyncio.to_thread(env.files.write, "go", "")
            assert (await step)[0]["stdout"] == "'cell'\n"
            return [result.stdout_text for result in results]

    assert asyncio.run(run()) == [f"{number}\n" for number in range(5)]


def test_async_execs_leave_other_threads_free(pool):
    count = 8
    wait = "touch started.{}; while ! test -e go; do sleep 0.05; done; echo {}"

    async def run():
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        async with asyncio.timeout(60), AsyncCodingEnv(pool=pool, **OPTIONS) as env:
            running = [asyncio.create_task(env.exec(wait.format(number, number))) for number in range(count)]
            while len(await asyncio.to_thread(env.files.list)) < count:
                await asyncio.sleep(0.05)
            await asyncio.to_thread(env.files.write, "go", "")
            return [result.stdout_text for result in await asyncio.gather(*running)]

    assert asyncio.run(run()) == [f"{number}\n" for number in range(count)]


def test_async_exec_raises_errors_of_its_thread(pool):
    async def run():
        async with AsyncCodingEnv(pool=pool, **OPTIONS) as env:
            with pytest.raises(ConfigurationError, match="timeout_s"):
                await env.exec("true", timeout="soon")

    asyncio.run(run())


def test_canceled_async_exec_kills_process(pool):
    async def run():
        async with AsyncCodingEnv(pool=pool, **OPTIONS) as env:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await env.exec("echo $$ > pid; exec sleep 61")
            pid = env.files.read_text("pid").strip()
            return await asyncio.to_thread(lambda: eventually(lambda: env.processes.run(["kill", "-0", pid]).exit_code != 0))

    assert asyncio.run(run())


def test_code_interpreter_runs_processes(sandbox_of):
    with CodeInterpreter(provider="local", preload=()) as interpreter:
        interpreter.files.write("file", "text")
        assert interpreter.run_process("cat file; pwd").stdout_text.startswith("text")
        interpreter.execute("open('other', 'w').write('cell')")
        assert interpreter.run_process(["cat", "other"]).stdout == b"cell"
        context = interpreter.contexts.create()
        process = interpreter.processes(context).start("sleep 60")
        interpreter.contexts.delete(context)
        assert process.wait().lost == "all processes of the session were killed: the context was deleted"
        with pytest.raises(ProtocolError, match="not found"):
            interpreter.run_process("true", context=context)
