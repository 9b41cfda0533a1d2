"""Docker engine that stops, crashes and restarts: a private one, because the other one is shared."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import docker
import psutil
import pytest

from coding_gym.errors import ProviderError, ProviderUnavailableError
from coding_gym.sandbox.docker.images import ensure_image
from tests.faults.episodes import after, assert_infrastructure, assert_starts_over, shown
from tests.support.running_server import gone_within
from tests.support.sandbox_processes import processes_of
from tests.support.timing import eventually

# The SDK leaves a socket open if there is no response.
pytestmark = [
    pytest.mark.docker,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class PrivateEngine:
    """Separate dockerd whose files are all in one directory, which must have a short path."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.host = f"unix://{directory}/sock"

    def start(self) -> None:
        self._reap()
        # In a separate network namespace: an engine without a bridge removes docker0, which the other engine uses.
        command = [
            "unshare",
            "--net",
            "dockerd",
            "--host",
            self.host,
            "--bridge=none",
            "--iptables=false",
            "--ip-forward=false",
            "--ip-masq=false",
        ]
        for option, name in (("data-root", "data"), ("exec-root", "exec"), ("pidfile", "pid")):
            command += [f"--{option}", str(self._directory / name)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        assert eventually(lambda: self._process.poll() is not None or self._answers(), 60), "dockerd does not answer"
        assert self._process.poll() is None, (self._directory / "log").read_text()[-2000:]

    def stop(self, number: signal.Signals) -> None:
        """Send a signal to dockerd only; its containerd exits as well, its containers may continue."""
        if self._process is not None:
            family = psutil.Process(self._process.pid).children()
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None
            assert gone_within(family) == []
            self._reap()

    def kill_shims(self) -> None:
        """Kill the shims left behind by an engine that was killed while it started a container."""
        processes = psutil.process_iter(["cmdline"])
        shims = [process for process in processes if f"{self._directory}/exec" in " ".join(process.info["cmdline"] or ())]
        for shim in shims:
            shim.kill()
        assert gone_within(shims) == []

    def connect(self) -> docker.DockerClient:
        return docker.DockerClient(base_url=self.host, timeout=60)

    def containers(self) -> list[str]:
        client = self.connect()
        try:
            return [container.id for container in client.containers.list(all=True, ignore_removed=True)]
        finally:
            client.close()

    def _answers(self) -> bool:
        # Not with the SDK, which leaves a socket open if there is no response.
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(self.host.removeprefix("unix://")) == 0

    def _reap(self) -> None:
        # Orphans of dockerd become children of this process, and dockerd would take their zombies for live processes.
        for process in psutil.Process().children():
            if process.name().startswith("containerd") and process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, 0)


@pytest.fixture(scope="module")
def private_engine(docker_engine):
    if os.geteuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("a second engine requires root and dockerd")
    image = ensure_image(docker_engine, None)
    directory = Path(tempfile.mkdtemp(prefix="cg-engine-"))
    # In memory, loading and deleting the image takes a fraction of the time.
    in_memory = ["mount", "-t", "tmpfs", "-o", "size=2g", "none", str(directory)]
    if subprocess.run(in_memory, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a second engine requires a separate file system")
    engine = PrivateEngine(directory)
    try:
        try:
            engine.start()
        except AssertionError as error:
            pytest.skip(f"a second engine does not start: {error}")
        client = engine.connect()
        client.images.load(docker_engine.images.get(image).save(named=image))
        client.close()
        yield engine
    finally:
        engine.stop(signal.SIGTERM)
        engine.kill_shims()
        # Includes the mounts of the engine, which a container that it had begun to start may keep busy.
        subprocess.run(["umount", "--recursive", "--lazy", str(directory)], check=True)
        directory.rmdir()
        gc.collect()


@pytest.fixture
def engine(private_engine, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", private_engine.host)
    yield private_engine
    if private_engine._process is None:
        private_engine.start()
    assert eventually(lambda: not private_engine.containers(), 60)


@pytest.fixture
def env(engine, make):
    env = make(provider="docker", idle_timeout=2)
    env.reset(seed=1)
    shown(env, "mark = 1; open('mark', 'w').close()")
    yield env
    env.close()


def test_engine_restart_between_steps_truncates_episode(env, engine):
    old = env.sandbox.container.id
    engine.stop(signal.SIGTERM)
    engine.start()
    assert_infrastructure(env.step("1"))
    assert_starts_over(env)
    assert engine.containers() == [env.sandbox.container.id] != [old]


def test_engine_stop_during_step_truncates_episode(env, engine):
    stopper = after(0.3, lambda: engine.stop(signal.SIGTERM))
    assert_infrastructure(env.step("import time; time.sleep(30)"))
    stopper.join()
    # Without an engine, a reset raises; once the engine is back, the same environment can be used again.
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError, match="docker"):
            env.reset()
        assert_infrastructure(env.step("1"))
    engine.start()
    assert_starts_over(env)


def test_episode_survives_engine_kill_until_restart(env, engine):
    old = env.sandbox.container.id
    engine.stop(signal.SIGKILL)
    # The container keeps running without the engine.
    assert shown(env, "mark") == "1\n"
    assert_starts_over(env)
    assert env.sandbox.container.id == old
    # A restarted engine ends the containers of its predecessor.
    engine.start()
    assert eventually(lambda: old not in engine.containers(), 60)
    assert_infrastructure(env.step("1"))
    assert_starts_over(env)
    assert engine.containers() == [env.sandbox.container.id]


def test_close_without_engine_leaves_no_processes(env, engine, caplog):
    family = processes_of(env.sandbox)
    assert family
    engine.stop(signal.SIGKILL)
    env.close()
    assert "end by itself" in caplog.text
    assert gone_within(family) == []


def test_engine_killed_during_start_is_survived(make, engine):
    env = make(provider="docker", start_timeout=60, idle_timeout=2)
    killer = after(0.2, lambda: engine.stop(signal.SIGKILL))
    # The container may already have been ready.
    with contextlib.suppress(ProviderError):
        env.reset()
    killer.join()
    engine.start()
    assert_starts_over(env)
    env.close()
