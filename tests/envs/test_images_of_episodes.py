"""``reset(options={"image": ...})``: an episode in a sandbox of another image."""

from __future__ import annotations

import contextlib
import threading

import gymnasium as gym
import pytest

from coding_gym import CodingEnv, SandboxPool
from coding_gym.errors import ConfigurationError, ImageBuildError
from tests.support.built_images import removed_afterwards

pytestmark = pytest.mark.docker

DEBIAN = "debian:trixie-slim"
MISSING = "coding-gym-test/nowhere:1"
FIRST = "echo ${IMAGE:-default}; id -un"
OPTIONS = {"provider": "docker", "screen": None, "preload": (), "backend": "bash"}


@pytest.fixture(scope="module")
def marked(docker_engine, tmp_path_factory):
    """Directory of an image with a variable."""
    directory = tmp_path_factory.mktemp("marked")
    (directory / "Dockerfile").write_text(f"FROM {DEBIAN}\nENV IMAGE=marked\n")
    with removed_afterwards(docker_engine, directory):
        yield str(directory)


def shown(env, image):
    env.reset(seed=0, options=None if image is None else {"image": image})
    return env.step(FIRST)[0]["stdout"].split()


def test_one_environment(marked):
    with contextlib.closing(CodingEnv(**OPTIONS)) as env:
        assert shown(env, DEBIAN) == ["default", "root"]
        first = env.sandbox
        assert shown(env, DEBIAN) == ["default", "root"]
        assert env.sandbox is first
        assert shown(env, marked) == ["marked", "root"]
        assert first.is_closed
        assert shown(env, None) == ["default", "user"]
        with pytest.raises(ImageBuildError, match="cannot be pulled"):
            env.reset(options={"image": MISSING})
        assert shown(env, marked) == ["marked", "root"]
        snapshot = env.clone_state(replay=True)
        env.reset(seed=0)
        env.restore_state(snapshot)
        assert env.step("echo $IMAGE")[0]["stdout"] == "marked\n"


@pytest.mark.parametrize("image", ["", 7, b"debian"])
def test_what_is_no_image(image):
    with (
        contextlib.closing(CodingEnv(**OPTIONS)) as env,
        pytest.raises(ConfigurationError, match=r"Expected options\['image'\] to be the name of an image"),
    ):
        env.reset(options={"image": image})


def test_provider_without_images():
    with contextlib.closing(CodingEnv(provider="local", screen=None)) as env:
        with pytest.raises(ConfigurationError, match="does not have image="):
            env.reset(options={"image": DEBIAN})
        assert env.sandbox is None


@pytest.mark.parametrize("has_pool", [False, True])
def test_vector(marked, has_pool):
    with contextlib.ExitStack() as stack:
        options = {**OPTIONS, "num_envs": 3}
        if has_pool:
            sandboxes = {name: options.pop(name) for name in ("provider", "preload")}
            # Places of all of them in each image.
            options["pool"] = stack.enter_context(SandboxPool(2, sessions=3, backend="bash", **sandboxes))
        envs = stack.enter_context(contextlib.closing(gym.make_vec("CodingEnv-v0", **options)))
        for image, expected in ((None, "default"), (marked, "marked"), (DEBIAN, "default"), (None, "default")):
            envs.reset(seed=0, options=None if image is None else {"image": image})
            stdout = envs.step([FIRST] * 3)[0]["stdout"]
            assert [line.split()[0] for line in stdout] == [expected] * 3


def test_pool_serves_images_in_turn(marked):
    """More images than sandboxes, and more callers than places, none of which waits forever."""
    shown_by: list[list[str]] = [[] for _ in range(4)]
    with SandboxPool(2, provider="docker", preload=(), backend="bash", image=DEBIAN) as pool:

        def play(index):
            with contextlib.closing(CodingEnv(pool=pool, screen=None, backend="bash")) as env:
                for turn in range(3):
                    image = (DEBIAN, marked, None)[(index + turn) % 3]
                    shown_by[index].append(shown(env, image)[0] == ("marked" if image == marked else "default"))

        threads = [threading.Thread(target=play, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert shown_by == [[True] * 3] * 4
        assert pool.stats.busy == 0


def test_pool_fails_those_who_want_a_missing_image(marked):
    with SandboxPool(1, provider="docker", preload=(), backend="bash", image=DEBIAN) as pool:
        with pytest.raises(ImageBuildError):
            pool.acquire(image=MISSING)
        with pool.acquire(image=marked) as lease, pool.acquire_free(DEBIAN) or contextlib.nullcontext():
            assert lease.sandbox.health()["status"] == "healthy"
        with pool.acquire():
            assert pool.acquire_free(marked) is None


def test_servers_have_their_image(docker_engine):
    with SandboxPool(provider="local") as own, pytest.raises(ConfigurationError, match="does not have image="):
        own.acquire(image=DEBIAN)
