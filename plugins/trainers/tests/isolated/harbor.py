# /// script
# requires-python = ">=3.12"
# dependencies = ["harbor==0.26.0", "httpx==0.28.1"]
# ///
"""Harbor's trials run in sandboxes: its own oracle solves a task, and its own verifier grades it."""

from __future__ import annotations

import asyncio
import contextlib
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from harbor.environments.base import SandboxBuildFailedError
    from harbor.environments.factory import EnvironmentFactory
    from harbor.models.task.config import EnvironmentConfig as TaskEnvironmentConfig
    from harbor.models.task.config import NetworkMode, NetworkPolicy
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.models.trial.paths import TrialPaths
    from harbor.trial.trial import Trial

from coding_gym.errors import ConfigurationError, ProviderError, TransportError
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym_trainers.harbor import SandboxEnvironment
from tests.support.built_images import removed_afterwards
from tests.support.sandbox_faults import kill_sessions

pytestmark = [
    pytest.mark.docker,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

IMPORT_PATH = "coding_gym_trainers.harbor:SandboxEnvironment"
DOCKERFILE = """FROM {base}
USER 0
RUN mkdir -p /app/data && echo 'given ✓' > /app/data/given.txt && echo '#!/bin/sh' > /app/tool && chmod 755 /app/tool
WORKDIR /app
"""
SOLVE = "#!/bin/bash\ncp /app/data/given.txt /app/answer.txt\n"
TEST = """#!/bin/bash
if [ "$(cat /app/answer.txt)" = "given ✓" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


@pytest.fixture(params=["debian", "default"])
def base(docker_engine, request):
    """Image that that of the task is based on."""
    return "debian:trixie-slim" if request.param == "debian" else ensure_image(docker_engine, None)


@pytest.fixture(scope="module", autouse=True)
def without_leftovers(docker_engine):
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def task(tmp_path, base, docker_engine, without_leftovers):
    """Directory of a task that its solution solves."""
    directory = tmp_path / "copy-given"
    files = {
        "task.toml": 'version = "1.0"\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 60\n',
        "instruction.md": "Copy /app/data/given.txt to /app/answer.txt.\n",
        "environment/Dockerfile": DOCKERFILE.format(base=base),
        "solution/solve.sh": SOLVE,
        "tests/test.sh": TEST,
    }
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(content)
    without_leftovers.enter_context(removed_afterwards(docker_engine, directory / "environment"))
    return directory


@pytest.fixture
def make(task, tmp_path):
    """Function that returns the environment of the task."""

    def make(config=None, **options):
        paths = TrialPaths(trial_dir=tmp_path / "trial")
        paths.mkdir()
        return EnvironmentFactory.create_environment_from_config(
            EnvironmentConfig(import_path=IMPORT_PATH, kwargs=options.pop("kwargs", {})),
            environment_dir=task / "environment",
            environment_name="copy-given",
            session_id="copy-given__test__env",
            trial_paths=paths,
            task_env_config=config or TaskEnvironmentConfig(),
            **options,
        )

    return make


def run_trial(task, tmp_path, agent):
    async def body():
        config = TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=tmp_path / "trials",
            agent=AgentConfig(name=agent),
            environment=EnvironmentConfig(import_path=IMPORT_PATH),
        )
        return await (await Trial.create(config)).run()

    return asyncio.run(body())


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
def test_trial_is_graded(task, tmp_path, agent, reward):
    result = run_trial(task, tmp_path, agent)
    assert result.exception_info is None
    assert result.verifier_result.rewards == {"reward": reward}


def with_environment(environment, test):
    async def body():
        await environment.start(force_build=False)
        try:
            await test(environment)
        finally:
            await environment.stop(delete=True)

    asyncio.run(body())


PLACES = ("/data", "/srv", "/var/log/app", "/home/agent", "/home/user/project", "/root", "/tmp/work", "/opt/tool", "/mnt/set")


@pytest.mark.parametrize("workdir", ["/app", "/srv", "/home/user/project", "/tmp/work"])
def test_files_of_image_are_there(make, task, base, workdir):
    """The images of other tasks have files anywhere, many of which only root can read."""
    making = [f"mkdir -p {place}; echo {place} > {place}/given; chmod 600 {place}/given; chmod 700 {place}" for place in PLACES]
    (task / "environment/Dockerfile").write_text(f"FROM {base}\nUSER 0\nRUN {'; '.join(making)}\nWORKDIR {workdir}\n")

    async def test(environment):
        files = [f"{place}/given" for place in PLACES]
        result = await environment.exec(f"cat {' '.join(files)}; pwd; touch new", user="root")
        assert (result.stdout.split(), result.return_code, result.stderr) == ([*PLACES, workdir], 0, "")

    with_environment(make(), test)


def test_environment_runs_commands(make):
    async def test(environment):
        result = await environment.exec("pwd; cat data/given.txt; echo err >&2; exit 3")
        assert (result.stdout, result.stderr, result.return_code) == ("/app\ngiven ✓\n", "err\n", 3)
        assert (await environment.exec("test -x /app/tool && touch /app/new && cat /app/data/given.txt")).return_code == 0
        assert (await environment.exec("echo $A; pwd", cwd="/usr", env={"A": "ä"})).stdout == "ä\n/usr\n"
        assert (await environment.exec("head -c 3000000 /dev/zero | tr '\\0' x")).stdout == "x" * 3_000_000
        assert (await environment.exec("id -u", user="root")).stdout == "0\n"
        assert (await environment.exec("id -un; touch /app/data/mine", user="nobody")).stdout == "nobody\n"
        assert (await environment.exec("id -u", user=1234)).stdout == "1234\n"
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await environment.exec("sleep 60", timeout_sec=1)
        assert (await environment.exec("echo on")).stdout == "on\n"
        assert (await environment.empty_dirs(["/logs/verifier"])).return_code == 0
        assert await environment.is_dir("/logs/verifier")
        assert environment._env.config.mem == "700m"

    with_environment(make(TaskEnvironmentConfig(memory_mb=700, cpus=0.5)), test)


def test_files_are_copied(make, tmp_path):
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "bytes").write_bytes(b"\xff\x00")
    (source / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "run.sh").chmod(0o755)

    async def test(environment):
        await environment.upload_dir(source, "/tests")
        await environment.upload_file(source / "run.sh", "/solution/ü/run.sh")
        assert (await environment.exec("/tests/run.sh; /solution/ü/run.sh")).stdout == "ran\nran\n"
        await environment.exec("cd /tests && mkfifo pipe && ln -s /etc/passwd out && ln -s run.sh in && mkdir empty")
        await environment.download_dir("/tests", tmp_path / "copy")
        found = sorted(str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*"))
        assert found == ["empty", "in", "inner", "inner/bytes", "run.sh"]
        assert (tmp_path / "copy" / "inner" / "bytes").read_bytes() == b"\xff\x00"
        await environment.download_file("/tests/run.sh", tmp_path / "new" / "one.sh")
        assert (tmp_path / "new" / "one.sh").read_text() == "#!/bin/sh\necho ran\n"
        for path in ("/tests/nowhere", "/nowhere/at/all"):
            with pytest.raises(FileNotFoundError):
                await environment.download_file(path, tmp_path / "x")
            with pytest.raises(FileNotFoundError):
                await environment.download_dir(path, tmp_path / "x")
        with pytest.raises(FileNotFoundError):
            await environment.download_dir("/tests/run.sh", tmp_path / "x")
        await environment.upload_file(source / "run.sh", "/usr/run.sh")
        assert (await environment.exec("/usr/run.sh")).stdout == "ran\n"

    with_environment(make(), test)


def test_directories_of_task_are_emptied_and_come_back(make, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "test.sh").write_text("")

    async def test(environment):
        # As between the steps of a task of several, and after an agent that cleans up.
        for disturb in ("mkdir -p /tests; touch /tests/planted /app/planted", "rm -rf /tmp/* /tests /logs"):
            await environment.exec(disturb, cwd="/", user="root")
            for reset in (
                environment.empty_dirs(["/tests", "/app"], chmod=False),
                environment.reset_dirs(remove_dirs=["/tests"], create_dirs=["/tests"]),
                environment.ensure_dirs(["/logs/verifier"]),
            ):
                result = await reset
                assert (result.stderr, result.return_code) == ("", 0)
            await environment.upload_dir(tmp_path / "source", "/tests")
            await environment.upload_file(tmp_path / "source" / "test.sh", "/solution/solve.sh")
            listed = await environment.exec("ls /tests /solution; ls -A; touch /logs/verifier/reward.txt")
            assert listed.stdout == "/solution:\nsolve.sh\n\n/tests:\ntest.sh\n"
            assert (listed.stderr, listed.return_code) == ("", 0)

    with_environment(make(), test)


def test_lost_session_is_an_error(make):
    async def test(environment):
        kill_sessions(environment._env.sandbox)
        for _ in range(2):
            with pytest.raises(TransportError):
                await environment.exec("true")

    with_environment(make(), test)


def test_prebuilt_image_gets_files_of_environment(make, task, base):
    (task / "environment" / "Dockerfile").unlink()
    (task / "environment" / "given.txt").write_text("given")

    async def test(environment):
        assert (await environment.exec("cat given.txt")).stdout == "given"
        assert (await environment.exec("mkdir -p /logs /tests && touch /logs/x /tests/x")).return_code == 0

    with_environment(make(TaskEnvironmentConfig(docker_image=base)), test)


def test_image_that_does_not_build_is_reported(make, task):
    (task / "environment" / "Dockerfile").write_text("FROM scratch\nCOPY nowhere /\n")
    with pytest.raises(SandboxBuildFailedError, match="failed to build"):
        asyncio.run(make().start(force_build=False))


def test_compose_and_unsupported_policies_are_refused(make, task):
    with pytest.raises(ValueError, match="allowlist"):
        make(network_policy=NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.org"]))
    make(network_policy=NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
    (task / "environment" / "docker-compose.yaml").write_text("services: {}\n")
    with pytest.raises(ConfigurationError, match="one container"):
        make()


def test_life_cycle_is_checked(make):
    async def test():
        environment = make()
        await environment.stop(delete=True)
        with pytest.raises(ConfigurationError, match="not started"):
            await environment.exec("true")
        await environment.start(force_build=False)
        environment._env.sandbox.close()
        with pytest.raises(TransportError):
            await environment.exec("true")
        await environment.stop(delete=False)
        await environment.stop(delete=True)
        with pytest.raises(TransportError, match="stopped"):
            await environment.exec("true")

    asyncio.run(test())


def test_invalid_options_of_sandbox_are_refused(make):
    with pytest.raises(ConfigurationError, match="no_such_option"):
        asyncio.run(make(kwargs={"sandbox": {"no_such_option": 1}}).start(force_build=False))


def test_name_and_capabilities():
    assert EnvironmentFactory.get_environment_class(import_path=IMPORT_PATH) is SandboxEnvironment
    assert SandboxEnvironment.type() == "coding_gym"
    assert not SandboxEnvironment.__abstractmethods__
    assert issubclass(ProviderError, RuntimeError)
