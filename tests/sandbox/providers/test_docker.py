from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import psutil
import pytest
from docker.errors import NotFound

from coding_gym.errors import ImageBuildError, ProviderUnavailableError, SandboxStartError
from coding_gym.sandbox import start_sandbox
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker import cleanup, provider
from coding_gym.sandbox.docker import images as image
from coding_gym.sandbox.docker.cleanup import our_containers, remove_orphans
from coding_gym.sandbox.docker.engine import connect_to_engine
from coding_gym.sandbox.docker.provider import LABEL_OWNER
from coding_gym.sandbox.ownership import OwnerProcess
from coding_gym_server.isolation.probe import probe
from coding_gym_server.protocol import ResetOptions
from tests.support.lasting_sandbox import lasting_sandbox

pytestmark = pytest.mark.docker
SMALL = {"cpu": 1.5, "mem": "512m", "pids_limit": 48, "disk": "16m", "inodes": 5000, "shm_size": "8m"}


@pytest.fixture(scope="module", autouse=True)
def _image(docker_engine):
    image.ensure_image(docker_engine, None)


@pytest.fixture
def start(docker_engine):
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(
            contextlib.closing(start_sandbox(SandboxConfig(**{"provider": "docker", "preload": (), **options})))
        )


@pytest.fixture(scope="module")
def small(docker_engine):
    with lasting_sandbox(provider="docker", **SMALL) as sandbox:
        yield sandbox


@pytest.fixture
def run(small):
    with contextlib.closing(small.connect()) as session:
        yield lambda code: run_in(session, code)


def run_in(session, code):
    session.ask_step(textwrap.dedent(code))
    return session.wait(timeout=40).observation


def once(sandbox, code):
    with contextlib.closing(sandbox.connect()) as session:
        return run_in(session, code)


def printed(observation):
    assert observation.stderr == ""
    return observation.stdout.strip()


def containers_of(engine, pid):
    return [container for container, owner in our_containers(engine) if owner.pid == pid]


ATTEMPT = """
    def attempt(action):
        try:
            action()
        except OSError as error:
            return error.strerror or str(error)
        return "done"
"""


# Default configuration


def test_container_is_hardened(small, docker_engine):
    attributes = docker_engine.containers.get(small.container.id).attrs
    host, config = attributes["HostConfig"], attributes["Config"]
    assert host["ReadonlyRootfs"] is True
    assert host["Privileged"] is False
    assert host["CapDrop"] == ["ALL"]
    # The launcher changes users; everything else drops these capabilities.
    assert {name.removeprefix("CAP_") for name in host["CapAdd"]} == {"SETUID", "SETGID"}
    assert any(option.startswith("no-new-privileges") for option in host["SecurityOpt"])
    # A profile of AppArmor would deny the mounts of sessions.
    assert not any("unconfined" in option for option in host["SecurityOpt"] if not option.startswith("apparmor"))
    assert host["NetworkMode"] == "none"
    assert host["PidsLimit"] == 48
    assert host["Memory"] == host["MemorySwap"] == 512 << 20
    assert host["NanoCpus"] == 1_500_000_000
    assert host["ShmSize"] == 8 << 20
    assert host["AutoRemove"] is True
    assert host["IpcMode"] in ("private", "")
    assert host["PidMode"] == ""
    assert not host["Devices"]
    assert OwnerProcess.parse(config["Labels"][LABEL_OWNER]) == OwnerProcess.current()
    assert provider.LABEL_VERSION in config["Labels"]
    for path in ("/workspaces", "/tmp"):
        options = host["Tmpfs"][path].split(",")
        assert f"size={16 << 20}" in options or "size=16m" in options
        assert {"nosuid", "nodev", "nr_inodes=5000"} <= set(options)
    assert [mount["Destination"] for mount in attributes["Mounts"] if mount["Type"] == "bind"] == ["/run/coding-gym"]
    assert not attributes["NetworkSettings"]["Ports"]
    assert small.address.token not in str(attributes)


def test_only_init_is_root(small, docker_engine):
    table = docker_engine.containers.get(small.container.id).top(ps_args="-eo pid,uid,args")
    of_root = [arguments for _, user, arguments in table["Processes"] if user == "0" and "python" in arguments.split()[0]]
    assert not of_root


def assert_no_privilege_is_left(engine, sandbox, reason):
    attributes = engine.containers.get(sandbox.container.id).attrs
    assert not attributes["HostConfig"]["CapAdd"]
    assert attributes["HostConfig"]["SecurityOpt"] == ["no-new-privileges"]
    assert attributes["Config"]["User"] == "10001:10001"
    assert reason in sandbox.health()["isolation"]["shared_user_reason"]
    assert printed(once(sandbox, "import os; print(os.getcwd(), os.getuid())")) == "/home/user 10001"


def without_name(call, profile):
    """Remove a call from a profile, and keep those that it is listed with."""
    for entry in profile["syscalls"]:
        entry["names"] = [name for name in entry["names"] if name != call]
    return json.dumps(profile)


def without(call):
    return functools.partial(without_name, call)


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        (lambda _: "no profile", "Decoding seccomp profile failed"),
        (without("unshare"), "unshare: Operation not permitted"),
        (without("setns"), "setns: Operation not permitted"),
        (without("fsopen"), "fsopen proc: Operation not permitted"),
    ],
    ids=["by the engine", "creation by the kernel", "entry by the kernel", "processes by the kernel"],
)
@pytest.mark.parametrize("transport", ["unix", "tcp"])
def test_refused_users_cost_no_privilege(docker_engine, tmp_path, monkeypatch, caplog, transport, profile, reason):
    """A container whose sessions cannot have users does not keep what they would have required."""
    refused = tmp_path / "seccomp.json"
    refused.write_text(profile(json.loads(provider._SECCOMP_PROFILE.read_text())))
    monkeypatch.setattr(provider, "_SECCOMP_PROFILE", refused)
    monkeypatch.setattr(provider, "_shared_user_reasons", {})
    config = SandboxConfig(provider="docker", preload=(), transport=transport)
    with contextlib.closing(start_sandbox(config)) as sandbox:
        assert_no_privilege_is_left(docker_engine, sandbox, reason)
    assert "no namespaces" in caplog.text
    assert reason in caplog.text


def test_required_isolation_of_a_single_session_is_a_scope(docker_engine, tmp_path, monkeypatch):
    refused = tmp_path / "seccomp.json"
    refused.write_text(without_name("unshare", json.loads(provider._SECCOMP_PROFILE.read_text())))
    monkeypatch.setattr(provider, "_SECCOMP_PROFILE", refused)
    monkeypatch.setattr(provider, "_shared_user_reasons", {})
    config = SandboxConfig(provider="docker", preload=(), isolation="require")
    if probe().missing_scope:
        with pytest.raises(SandboxStartError, match="isolation=require is not available"):
            start_sandbox(config)
    else:
        with contextlib.closing(start_sandbox(config)) as sandbox:
            isolation = sandbox.health()["isolation"]
            assert (isolation["policy"], isolation["session_mounts"], isolation["signal_scope"]) == ("require", False, True)


def test_root_is_not_replaced(docker_engine, tmp_path, monkeypatch):
    refused = tmp_path / "seccomp.json"
    refused.write_text(without_name("unshare", json.loads(provider._SECCOMP_PROFILE.read_text())))
    monkeypatch.setattr(provider, "_SECCOMP_PROFILE", refused)
    with pytest.raises(SandboxStartError, match="root=True is not available: sessions cannot have their own root"):
        start_sandbox(SandboxConfig(provider="docker", preload=(), root=True))


def test_root_without_users_is_refused_early(docker_engine, monkeypatch):
    monkeypatch.setattr(provider, "_shared_user_reasons", {(docker_engine.api.base_url, None): "there are none"})
    with pytest.raises(SandboxStartError, match=r"root=True is not available: .* because there are none"):
        start_sandbox(SandboxConfig(provider="docker", preload=(), root=True))


def test_init_process_reaps_zombies(run):
    # Orphans are reaped, whichever process has PID 1.
    code = """
        import glob, os, subprocess, time
        for _ in range(5):
            subprocess.run(["sh", "-c", "sleep 0.05 & sleep 0.05 & exit"])
        time.sleep(0.5)
        states = [open(p).read().rpartition(")")[2].split()[0] for p in glob.glob("/proc/[0-9]*/stat")]
        print(states.count("Z"))
    """
    assert printed(run(code)) == "0"


def test_image_has_what_agents_ask_for(run):
    code = """
        import getpass, os, pwd, requests, subprocess
        for program in ("git", "curl"):
            subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
        print(getpass.getuser(), pwd.getpwuid(os.getuid())[5:])
    """
    assert printed(run(code)) == "user ('/home/user', '/bin/bash')"


def test_code_runs_unprivileged(run):
    code = """
        import os
        status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
        status = {name: value.strip() for name, value in status.items()}
        print(os.getuid(), os.geteuid(), os.getgid(), *map(status.get, ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp")))
    """
    uid, euid, gid, effective, bounding, no_new, seccomp = printed(run(code)).split()
    assert uid == euid == gid != "0"
    assert int(effective, 16) == int(bounding, 16) == 0
    assert no_new == "1"
    assert seccomp == "2"


@pytest.mark.parametrize(
    "path",
    [
        "/f",
        "/usr/f",
        "/etc/f",
        "/opt/coding-gym/f",
        "/run/coding-gym/f",
        "/workspaces/f",
        "/root/f",
        "/var/tmp/f",
        "/proc/sys/f",
    ],
)
def test_only_workspace_is_writable(run, path):
    answer = printed(run(ATTEMPT + f"    print(attempt(lambda: open({path!r}, 'w')))"))
    assert answer in ("Read-only file system", "Permission denied", "No such file or directory")


def test_programs_cannot_be_replaced(run):
    code = (
        ATTEMPT
        + """
    import os, sys
    print(attempt(lambda: open(sys.executable, "r+b")), attempt(lambda: open(os.__file__, "a")), sep="|")
    """
    )
    assert "done" not in printed(run(code)).split("|")


def test_network_is_unavailable_by_default(run):
    code = (
        ATTEMPT
        + """
    import socket
    print(attempt(lambda: socket.create_connection(("127.0.0.1", 80), 5)))
    print(sorted(name for _, name in socket.if_nameindex()))
    """
    )
    tcp, interfaces = printed(run(code)).splitlines()
    assert tcp == "Connection refused"
    assert interfaces == "['lo']"


def test_full_disk_is_an_observation(run):
    observation = run("with open('f', 'wb') as f:\n    for _ in range(40): f.write(bytes(1 << 20))")
    assert observation.exit_code == 1
    assert "No space left on device" in observation.stderr
    assert printed(run("import os; os.remove('f'); open('g', 'w').write('room again')")) == "10"


def test_too_many_files_are_an_observation(run):
    observation = run("import os\nos.mkdir('many')\nfor n in range(200_000): open(f'many/{n}', 'w').close()")
    assert observation.exit_code in (1, 124)
    assert "No space left" in observation.stderr
    assert printed(run("import shutil; shutil.rmtree('many')")) == ""


def test_number_of_files_is_configured(run):
    code = "import os; print([os.statvfs(path).f_files for path in ('.', '/tmp', '/dev/shm')])"
    assert printed(run(code)) == "[5000, 5000, 5000]"


def test_too_many_processes_are_an_observation(run):
    code = """
        import subprocess
        children = []
        try:
            for _ in range(200):
                children.append(subprocess.Popen(["sleep", "60"]))
        finally:
            print(len(children))
            for child in children:
                child.kill()
                child.wait()
    """
    observation = run(code)
    assert observation.exit_code == 1
    assert "Resource temporarily unavailable" in observation.stderr
    assert 0 < int(observation.stdout) < 48
    assert printed(run("'alive'")) == "'alive'"


def test_fork_bomb_is_survived(small):
    with contextlib.closing(small.connect()) as session:
        session.ask_reset(ResetOptions(step_timeout=1))
        session.wait(timeout=30)
        bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
        assert run_in(session, bomb).exit_code in (1, 124, 137)
        # The last of the forked processes may still print that they were interrupted.
        assert "2" in run_in(session, "2").stdout
    assert printed(once(small, "3")) == "3"


def test_too_much_memory_is_an_observation(run):
    observation = run("x = bytearray(1 << 30); x[::4096] = b'1' * len(x[::4096])")
    assert observation.exit_code in (1, 137)
    assert "MemoryError" in observation.stderr or "out of memory" in observation.stderr
    assert printed(run("3")) == "3"


def test_shared_memory_is_limited(run):
    observation = run("with open('/dev/shm/x', 'wb') as f:\n    for _ in range(20): f.write(bytes(1 << 20))")
    assert "No space left on device" in observation.stderr


# Other configurations


@pytest.fixture(scope="module")
def tcp_sandbox(docker_engine):
    with lasting_sandbox(provider="docker", transport="tcp") as sandbox:
        yield sandbox


def test_tcp_transport_listens_on_loopback_only(tcp_sandbox, docker_engine):
    sandbox = tcp_sandbox
    assert printed(once(sandbox, "40 + 2")) == "42"
    attributes = docker_engine.containers.get(sandbox.container.id).attrs
    (bindings,) = attributes["NetworkSettings"]["Ports"].values()
    assert [binding["HostIp"] for binding in bindings] == ["127.0.0.1"]
    port = int(bindings[0]["HostPort"])
    listening = [
        connection.laddr.ip
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]
    assert listening in ([], ["127.0.0.1"])
    code = (
        ATTEMPT
        + """
    import os, socket
    print(attempt(lambda: socket.create_connection(("127.0.0.1", 80), 3)))
    print("CODING_GYM_TOKEN" in os.environ, attempt(lambda: open("/proc/1/environ").read()))
    """
    )
    tcp, environment = printed(once(sandbox, code)).splitlines()
    assert tcp == "Connection refused"
    assert environment == "False Permission denied"


def test_tcp_server_requires_token(tcp_sandbox):
    address = tcp_sandbox.address
    assert httpx.get(f"{address}/health").status_code == 200
    assert httpx.get(f"{address}/state").status_code == 401
    assert httpx.get(f"{address}/state", headers=address.headers).status_code == 200


def test_bridge_network_allows_connections(start, docker_engine):
    sandbox = start(network="bridge")
    gateway = docker_engine.containers.get(sandbox.container.id).attrs["NetworkSettings"]["Networks"]["bridge"]["Gateway"]
    with socket.socket() as listener:
        listener.bind((gateway, 0))
        listener.listen()
        port = listener.getsockname()[1]
        code = (
            ATTEMPT
            + f"""
    import socket
    print(attempt(lambda: socket.create_connection(({gateway!r}, {port}), 5)))
    print(attempt(lambda: socket.create_connection(("127.0.0.1", 9), 5)))
    print(attempt(lambda: socket.socket().bind(("0.0.0.0", 0))))
        """
        )
        assert printed(once(sandbox, code)).splitlines() == ["done", "Connection refused", "done"]


def test_missing_image_is_reported(start):
    with pytest.raises(ImageBuildError, match="coding-gym-no-such-image") as caught:
        start(image="localhost:1/coding-gym-no-such-image:1")
    assert "image=" in str(caught.value)
    assert caught.value.log


def test_missing_runtime_is_reported(start, docker_engine):
    before = len(containers_of(docker_engine, os.getpid()))
    with pytest.raises(SandboxStartError, match="no-such-runtime"):
        start(runtime="no-such-runtime")
    assert len(containers_of(docker_engine, os.getpid())) == before


def test_missing_network_is_reported(start, docker_engine):
    before = len(containers_of(docker_engine, os.getpid()))
    with pytest.raises(SandboxStartError, match="no-such-network"):
        start(network="no-such-network")
    assert len(containers_of(docker_engine, os.getpid())) == before


def test_excessive_cpu_limit_is_reported(start):
    with pytest.raises(SandboxStartError, match=r"(?i)memory|CPU"):
        start(cpu=100_000)


def test_missing_engine_is_reported(monkeypatch):
    for host in ("unix:///nonexistent", "tcp://127.0.0.1:9", "nonsense"):
        monkeypatch.setenv("DOCKER_HOST", host)
        with pytest.raises(ProviderUnavailableError, match="docker"):
            connect_to_engine()


# The image


def test_image_name_depends_on_sources(monkeypatch):
    name = image.image_name()
    assert name == image.image_name()
    sources = image._sources()
    assert "coding_gym_server/server/app.py" in sources
    assert not [path for path in sources if path.endswith(".pyc")]
    changes = (
        {**sources, "coding_gym_server/server/app.py": b"#"},
        {**sources, "coding_gym_server/new.py": b""},
        {path: content for path, content in sources.items() if path != "Dockerfile"},
        {**{path: content for path, content in sources.items() if path != "Dockerfile"}, "dockerfile": sources["Dockerfile"]},
    )
    names = {name}
    for changed in changes:
        monkeypatch.setattr(image, "_sources", lambda changed=changed: changed)
        names.add(image.image_name())
    assert len(names) == 5


def test_failing_build_shows_end_of_log(docker_engine, monkeypatch):
    lines = "; ".join(f"echo line {number}" for number in range(60))
    dockerfile = f"FROM debian:trixie-slim\nRUN {lines}; echo the reason is this >&2; exit 3\n"
    monkeypatch.setattr(image, "_sources", lambda: {"Dockerfile": dockerfile.encode(), "unique": os.urandom(8)})
    seen = []
    with pytest.raises(ImageBuildError, match=r"(?s)the reason is this.*3") as caught:
        image.build_image(docker_engine, on_line=seen.append)
    assert "line 59" in seen
    assert "line 59" in str(caught.value)
    assert "line 5\n" not in str(caught.value)
    assert len(caught.value.log) <= 25
    with pytest.raises(ImageBuildError):
        start_sandbox(SandboxConfig(provider="docker"))


def test_build_arguments_change_image_name(docker_engine, monkeypatch):
    dockerfile = "FROM debian:trixie-slim\nARG WITH_OPENGL=\nENV OPENGL=$WITH_OPENGL\n"
    monkeypatch.setattr(image, "_sources", lambda: {"Dockerfile": dockerfile.encode(), "unique": b"build arguments"})
    mine = f"{image.IMAGE_REPOSITORY}-test:gl"
    built = image.build_image(docker_engine)
    try:
        named = image.build_image(docker_engine, arguments={"WITH_OPENGL": "a/b"})
        assert image.tag_image(docker_engine, named, mine) == mine
        of_mine = docker_engine.images.get(mine)
        assert set(of_mine.tags) == {mine, image.image_name({"WITH_OPENGL": "a/b"})}
        assert "OPENGL=a/b" in of_mine.attrs["Config"]["Env"]
        assert "OPENGL=" in docker_engine.images.get(built).attrs["Config"]["Env"]
        with pytest.raises(ValueError, match=r"no build argument 'WITH_SOUND'\. It has WITH_OPENGL"):
            image.build_image(docker_engine, arguments={"WITH_SOUND": "1"})
    finally:
        for name in (built, mine, image.image_name({"WITH_OPENGL": "a/b"})):
            docker_engine.images.remove(name, force=True)


def test_concurrent_image_builds_run_once(docker_engine, monkeypatch):
    dockerfile = "FROM debian:trixie-slim\nRUN sleep 0.5; head -c 8 /dev/urandom > /unique\n"
    monkeypatch.setattr(image, "_sources", lambda: {"Dockerfile": dockerfile.encode(), "unique": os.urandom(8)})
    fixed = image.image_name()
    monkeypatch.setattr(image, "image_name", lambda arguments: fixed)
    builds = []
    with ThreadPoolExecutor(4) as pool:
        names = set(pool.map(lambda _: image.build_image(docker_engine, on_line=builds.append), range(4)))
    try:
        assert len(names) == 1
        assert sum("sleep 0.5" in line for line in builds) == 1
    finally:
        for built in names:
            docker_engine.images.remove(built, force=True)


# Close and cleanup


def signals_to(container):
    """Return the signals that the engine has sent to a container."""
    until, wanted = int(time.time()) + 1, {"container": container.id, "event": "kill"}
    events = container.client.events(since=1, until=until, filters=wanted, decode=True)
    return [event["Actor"]["Attributes"]["signal"] for event in events]


def test_closing_removes_container_and_directory(start, docker_engine):
    sandbox = start()
    directory = os.path.dirname(os.path.dirname(str(sandbox.address)))
    assert os.stat(directory).st_mode & 0o077 == 0
    sandbox.close()
    sandbox.close()
    # No grace period precedes it.
    assert signals_to(sandbox.container) == ["9"]
    with pytest.raises(NotFound):
        docker_engine.containers.get(sandbox.container.id)
    assert not os.path.exists(directory)


def test_concurrent_close_removes_all_containers(start, docker_engine):
    with ThreadPoolExecutor(3) as pool:
        sandboxes = list(pool.map(lambda _: start(), range(3)))
    barrier = threading.Barrier(6)

    def close(sandbox):
        barrier.wait()
        sandbox.close()

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(close, sandboxes * 2))
    left = {container.id for container in containers_of(docker_engine, os.getpid())}
    assert not left & {sandbox.container.id for sandbox in sandboxes}


def test_closing_vanished_container_logs_nothing(start, caplog):
    with ThreadPoolExecutor(2) as pool:
        killed, removed = pool.map(lambda _: start(), range(2))
    killed.container.kill()
    removed.container.remove(force=True)
    killed.close()
    removed.close()
    assert not caplog.records


def test_sweep_removes_only_containers_of_dead_owners(docker_engine, monkeypatch):
    # A dedicated label, so that no other process removes the containers.
    label = f"coding_gym.owner-of-test-{os.getpid()}"
    monkeypatch.setattr(cleanup, "LABEL_OWNER", label)
    dead = OwnerProcess(OwnerProcess.current().host, 999_999_999, 1)
    elsewhere = OwnerProcess("another-machine", 999_999_999, 1)
    containers = [
        docker_engine.containers.create("debian:trixie-slim", ["sleep", "60"], labels={label: str(whose)})
        for whose in (dead, elsewhere, OwnerProcess.current())
    ]
    try:
        containers[0].start()
        assert containers[0].name in remove_orphans(docker_engine)
        assert {container.id for container, _ in our_containers(docker_engine)} >= {containers[1].id, containers[2].id}
        with pytest.raises(NotFound):
            docker_engine.containers.get(containers[0].id)
    finally:
        for container in containers:
            with contextlib.suppress(NotFound):
                container.remove(force=True)


def test_first_start_sweeps_orphans(docker_engine):
    dead = OwnerProcess(OwnerProcess.current().host, 999_999_999, 1)
    orphan = docker_engine.containers.create("debian:trixie-slim", ["sleep", "60"], labels={LABEL_OWNER: str(dead)})
    try:
        script = """
            import gymnasium as gym, coding_gym
            with gym.make("CodingEnv-v0", provider="docker", preload=(), screen=None) as env:
                env.reset()
        """
        subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, timeout=60)
        with pytest.raises(NotFound):
            docker_engine.containers.get(orphan.id)
    finally:
        with contextlib.suppress(NotFound):
            orphan.remove(force=True)
