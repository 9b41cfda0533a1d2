from __future__ import annotations

import contextlib
import copy
import functools
import gc
import json
import os
import pickle
import subprocess
import sys
import textwrap
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium as gym
import numpy as np
import psutil
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo

import envs_registry
from coding_gym import CodingEnv, SandboxConfig
from coding_gym.client.connection import Connection
from coding_gym.client.session import Session
from coding_gym.errors import CapacityError, ConfigurationError, InvalidActionError, ProtocolError, ProviderError
from coding_gym.sandbox.docker.cleanup import our_containers
from coding_gym.sandbox.ownership import OwnerProcess
from tests.support.interruption import interrupted_after
from tests.support.requirements import import_extra
from tests.support.running_server import RunningServer, gone_within
from tests.support.sandbox_faults import kill_sandbox
from tests.support.sandbox_processes import processes_of, server_of
from tests.support.timing import promptly

FAST = {"preload": ()}
"""Options of a local sandbox, which starts in a third of the time without preloaded modules."""


BOTH = pytest.mark.parametrize("screen", [pytest.param((64, 48), marks=pytest.mark.screen), None])
"""Run a test with and without a screen."""


@pytest.fixture(scope="module")
def env():
    """Environment shared by the tests that leave it reusable; each test begins with a reset."""
    with gym.make("CodingEnv-v0", provider="local", screen=None, render_mode="ansi", step_timeout=60, **FAST) as env:
        yield env.unwrapped


@pytest.fixture(scope="module")
def env_of():
    """Function that returns the environment of a provider, shared by the tests that begin with a reset and kill its sandbox."""
    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda provider: _make(stack, provider=provider, step_timeout=30, **FAST).unwrapped)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Server with a token."""
    with RunningServer(tmp_path_factory.mktemp("guarded"), "--max-sessions", "2", token="open sesame") as server:
        yield server


@pytest.fixture
def make(pool):
    """Make environments in the shared sandbox."""
    with contextlib.ExitStack() as stack:
        yield functools.partial(_make, stack, pool=pool)


@pytest.fixture
def make_own():
    """Make environments with dedicated sandboxes."""
    with contextlib.ExitStack() as stack:
        yield functools.partial(_make, stack, provider="local", **FAST)


def _make(stack, **options):
    return stack.enter_context(
        gym.make("CodingEnv-v0", **{"screen": None, "step_timeout": 60, "disable_env_checker": True, **options})
    )


def run(env, code):
    observation, reward, terminated, truncated, info = env.step(code)
    assert (reward, terminated, truncated) == (0.0, False, False), observation["stderr"]
    assert info["outcome"] != "infrastructure"
    return observation


def output(env, code):
    observation = run(env, code)
    assert observation["stderr"] == ""
    return observation["stdout"]


def servers():
    found = []
    for child in psutil.Process().children():
        try:
            if "coding_gym_server" in child.cmdline():
                found.append(child)
        except psutil.Error:
            pass
    return found


# Registration, checker and spec


@pytest.mark.parametrize("name", ["CodingEnv-v0", "coding_gym:CodingEnv-v0"])
def test_make_returns_coding_env(name):
    with gym.make(name) as env:
        assert isinstance(env.unwrapped, CodingEnv)
        assert env.observation_space["screenshot"].shape == (600, 800, 3)


def test_registering_twice_is_harmless():
    spec = gym.spec("CodingEnv-v0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs_registry.register_envs()
    assert gym.spec("CodingEnv-v0") is spec


@pytest.mark.parametrize("screen", [pytest.param((640, 480), marks=[pytest.mark.screen]), None])
def test_gymnasium_checker_accepts_environment(make, screen):
    env = make(screen=screen)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_passive_checker_accepts_environment(make):
    env = make(disable_env_checker=False)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(10):
        env.step(env.action_space.sample())


def test_spec_round_trips_through_json():
    options = {"provider": "local", "cpu": 1, "mem": "1g", "screen": [320, 240], "step_timeout": 2.5, "preload": ["json"]}
    with gym.make("CodingEnv-v0", max_episode_steps=7, **options) as env:
        text = env.spec.to_json()
    spec = gym.envs.registration.EnvSpec.from_json(text)
    assert json.loads(text)["kwargs"] == options
    with gym.make(spec) as again:
        assert again.spec.max_episode_steps == 7
        assert again.unwrapped.settings.screen == (320, 240)
        assert again.unwrapped.config == SandboxConfig(provider="local", cpu=1, mem="1g", preload=("json",))
        assert again.observation_space["screenshot"].shape == (240, 320, 3)


def test_make_accepts_used_spec(make_own):
    env = make_own()
    with gym.make(env.spec) as again:
        assert again.unwrapped.config == env.unwrapped.config


# Pickling and copying


def test_duplicates_have_separate_sandboxes(make_own):
    env = make_own(max_code_chars=50)
    duplications = (lambda: pickle.loads(pickle.dumps(env)), lambda: copy.deepcopy(env))
    with contextlib.ExitStack() as stack:
        early = [stack.enter_context(duplicate()) for duplicate in duplications]
        env.reset(seed=1)
        run(env, "x = 1")
        late = [stack.enter_context(duplicate()) for duplicate in duplications]
        for other in (*early, *late):
            assert other.unwrapped.sandbox is None
            assert other.action_space == env.action_space
        for other in late:
            other.reset(seed=1)
            assert other.unwrapped.sandbox is not env.unwrapped.sandbox
            assert "NameError" in run(other, "x")["stderr"]
            other.close()
            assert output(env, "x") == "1\n"


def test_config_object_survives_pickling():
    env = CodingEnv(config=SandboxConfig(provider="local", mem="1g"), screen=None)
    again = pickle.loads(pickle.dumps(env))
    assert again.config == env.config
    assert again.settings.screen is None


# Sandbox lifecycle


def test_sandbox_starts_only_on_first_reset(docker_engine):
    def world():
        children = {child.pid for child in psutil.Process().children(recursive=True)}
        containers = {container.id for container, owner in our_containers(docker_engine) if owner == OwnerProcess.current()}
        return children, containers

    before = world()
    for provider in ("auto", "docker", "local"):
        env = gym.make("CodingEnv-v0", provider=provider)
        assert env.unwrapped.sandbox is None
        env.close()
    vector = gym.make_vec("CodingEnv-v0", num_envs=20)
    assert world() == before
    vector.close()


def test_make_needs_no_engine(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    with gym.make("CodingEnv-v0", provider="docker") as env, pytest.raises(ProviderError, match="nonexistent"):
        env.reset()


def test_close_is_idempotent_and_final(make_own):
    never_reset = make_own()
    never_reset.close()
    never_reset.close()
    env = make_own()
    env.reset(seed=1)
    first = env.unwrapped.sandbox
    process = server_of(first)
    env.close()
    env.close()
    assert env.unwrapped.sandbox is None
    assert gone_within([process]) == []
    for refused in (lambda: env.reset(seed=1), lambda: never_reset.reset(seed=1), lambda: env.step("1")):
        with pytest.raises(gym.error.ClosedEnvironmentError, match="Make a new one"):
            refused()
    assert env.unwrapped.sandbox is None


def test_garbage_collected_environment_ends_its_sandbox():
    env = CodingEnv(provider="local", screen=None, **FAST)
    env.reset()
    family = processes_of(env.sandbox)
    assert len(family) > 2
    del env
    gc.collect()
    assert gone_within(family) == []


def test_failed_constructor_is_collected_silently():
    with pytest.raises(ConfigurationError):
        CodingEnv(screen="big")
    gc.collect()


def test_close_leaks_no_descriptors_or_directories(make_own):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    env = make_own()
    env.reset()
    directory = os.path.dirname(os.path.dirname(str(env.unwrapped.sandbox.address)))
    assert os.path.isdir(directory)
    env.close()
    before = descriptors()
    for _ in range(2):
        env = make_own()
        env.reset()
        env.close()
    gc.collect()
    # Shared sandboxes of this process may open or close a descriptor concurrently; a leak adds one per episode.
    assert descriptors() < before + 2
    assert not os.path.exists(directory)


@pytest.mark.docker
def test_closing_container_leaks_no_descriptors(docker_engine):
    counts = []
    for _ in range(3):
        env = CodingEnv(provider="docker", screen=None, **FAST)
        env.reset()
        env.close()
        counts.append(len(os.listdir("/proc/self/fd")))
    # Shared sandboxes of this process may open or close a descriptor concurrently; a leak adds one per episode.
    assert counts[2] < counts[0] + 2


@pytest.mark.every_provider
def test_only_exit_of_trainer_removes_sandbox(provider, request):
    script = f"""
        import gc, os, sys, warnings
        import gymnasium as gym, coding_gym
        env = gym.make("CodingEnv-v0", provider={provider!r}, preload=(), screen=None)
        env.reset(seed=1)
        env.step("x = 41")
        for way in ("exit", "close", "del"):
            pid = os.fork()
            if pid == 0:
                warnings.simplefilter("ignore", ResourceWarning)
                if way == "close":
                    env.close()
                elif way == "del":
                    del env
                    gc.collect()
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            observation, *_ = env.step("x + 1")
            assert observation["stdout"] == "42\\n", observation
        print(os.getpid(), env.unwrapped.sandbox.address)
    """
    # Python 3.12 and later warn about forks of processes with threads.
    options = ("-W", "error", "-W", "ignore:This process")
    process = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert (process.stderr, process.returncode) == ("", 0)
    pid, address = process.stdout.split()
    if provider == "docker":
        engine = request.getfixturevalue("docker_engine")
        assert [owner for _, owner in our_containers(engine) if owner.pid == int(pid)] == []
    directory = os.path.dirname(os.path.dirname(address))
    servers = [process for process in psutil.process_iter(["cmdline"]) if directory in " ".join(process.info["cmdline"] or ())]
    assert gone_within(servers) == []
    assert not os.path.exists(directory)


# Episodes


def test_step_before_reset_raises(make):
    with pytest.raises(gym.error.ResetNeeded, match="reset"):
        make().unwrapped.step("1")


@pytest.mark.parametrize(
    ("action", "hint"),
    [
        (1, "str.*int"),
        (None, "str.*NoneType"),
        (b"1", "str.*bytes"),
        (["1"], "str.*list"),
        (np.array("1"), "str.*ndarray"),
        ("x" * 100_001, "100000.*100001.*max_code_chars"),
        ("print('\ud800')", "surrogates"),
    ],
)
def test_invalid_action_raises_and_keeps_state(env, action, hint):
    env.reset(seed=1)
    run(env, "x = 5")
    with pytest.raises(InvalidActionError, match=hint) as caught:
        env.step(action)
    assert isinstance(caught.value, ValueError)
    assert output(env, "x") == "5\n"
    assert len(env.render().splitlines()) == 4


def test_numpy_strings_are_valid_actions(env):
    env.reset()
    assert np.str_("1") in env.action_space
    assert output(env, np.array(["1 + 1"])[0]) == "2\n"


@pytest.mark.parametrize("length", [0, 1, 99_999, 100_000])
def test_actions_up_to_the_limit_run(env, length):
    env.reset()
    code = ("#" + "🎉" * length)[:length]
    observation = run(env, code)
    assert (observation["stdout"], observation["stderr"], observation["exit_code"]) == ("", "", 0)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"memory": "1g"}, "Unknown option 'memory'.*'mem'.*step_timeout"),
        ({"provider": "kubernetes"}, "provider=.*docker.*kubernetes"),
        ({"render_mode": "humna"}, "render_mode=.*human.*ansi.*rgb_array.*humna"),
        ({"screen": (0, 0)}, r"screen=.*16 to 4096.*\(0, 0\)"),
        ({"screen": (640,)}, "screen="),
        ({"screen": 640}, "screen="),
        ({"screen": "640x480"}, "screen="),
        ({"screen": (float("nan"), 480)}, "screen="),
        ({"screen": (float("inf"), 480)}, "screen="),
        ({"screen": (99999, 480)}, "screen="),
        ({"step_timeout": 0}, "step_timeout=.*positive"),
        ({"step_timeout": None}, "step_timeout="),
        ({"step_timeout": "5"}, "step_timeout="),
        ({"step_timeout": float("inf")}, "step_timeout="),
        ({"step_timeout": float("nan")}, "step_timeout="),
        ({"cpu_timeout": -1}, "cpu_timeout="),
        ({"max_output_chars": 10}, "max_output_chars=.*256"),
        ({"max_output_chars": 300.5}, "max_output_chars="),
        ({"max_code_chars": 0}, "max_code_chars="),
        ({"config": SandboxConfig(), "mem": "1g"}, "config=.*mem"),
        ({"config": {"memory": "1g"}}, "memory"),
        ({"config": "local"}, "config"),
    ],
)
def test_bad_setting_is_refused_with_hint(options, hint):
    with pytest.raises(ConfigurationError, match=hint):
        CodingEnv(**options)


@pytest.mark.parametrize("timeout", [1e10, 1e19, 1e300])
def test_enormous_step_timeout_is_accepted(make, timeout):
    env = make(step_timeout=timeout)
    env.reset()
    assert output(env, "1") == "1\n"


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64, 2**100])
def test_any_gymnasium_seed_is_reproducible(env, seed):
    code = "import random; random.random()"
    env.reset(seed=seed)
    first = output(env, code)
    env.reset(seed=seed)
    assert output(env, code) == first


def test_refused_seed_leaves_environment_usable(env):
    env.reset(seed=1)
    with pytest.raises(gym.error.Error):
        env.reset(seed=-1)
    env.reset(seed=1)
    assert output(env, "1") == "1\n"


def test_episode_id_is_passed_to_server(env):
    env.reset(options={"episode_id": "mine"})
    assert env._session.state().episode_id == "mine"
    with pytest.raises(ConfigurationError, match="episode_id"):
        env.reset(options={"episode_id": 5})
    env.reset()
    assert output(env, "1") == "1\n"


# Determinism and the structure of results


def test_equal_seeds_give_equal_results(screen_provider):
    first, second = (
        CodingEnv(provider=screen_provider, screen=(64, 48), step_timeout=60, preload=("numpy",)) for _ in range(2)
    )
    try:
        first.action_space.seed(5)
        actions = [first.action_space.sample() for _ in range(25)]
        actions += ["{'a', 'b', 'c'}", "hash('x')", "import numpy; numpy.random.rand()", "import os; sorted(os.listdir('.'))"]
        actions += ["import os; os.environ.get('PYTHONHASHSEED')"]
        assert len(actions) == 30
        with ThreadPoolExecutor(2) as threads:
            assert data_equivalence(*threads.map(lambda env: env.reset(seed=9), (first, second)), exact=True)
        for action in actions:
            assert data_equivalence(first.step(action), second.step(action), exact=True), action
    finally:
        first.close()
        second.close()


def test_once_seeded_run_is_reproducible(env):
    def run_of_three():
        draws = []
        for seed in (11, None, None):
            env.reset(seed=seed)
            draws.append(output(env, "import random; random.random()"))
        return draws

    first = run_of_three()
    assert run_of_three() == first
    assert len(set(first)) == 3


def test_seed_applies_to_numpy_imported_later(make, make_own):
    for env in (make(), make_own(preload=("numpy",))):
        draws = set()
        for _ in range(2):
            env.reset(seed=4)
            draws.add(output(env, "import numpy; numpy.random.rand()"))
        assert len(draws) == 1


def test_unseeded_environments_differ(env, make):
    draws = set()
    for each in (env, make(), make()):
        each.reset()
        draws.add(output(each, "import random; random.random()"))
    assert len(draws) == 3


def test_infos_always_have_same_keys(env_of, monkeypatch):
    env = env_of("local")
    monkeypatch.setattr(env, "step_timeout", 2)
    observation, info = env.reset(seed=1)
    keys = set(info)
    assert info == {"outcome": "ok", "state_lost": False}
    outcomes = []
    for code in ("1", "1/0", "while True: pass", "import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)", ""):
        observation, _, _, _, info = env.step(code)
        assert observation in env.observation_space
        assert set(info) == keys
        outcomes.append(info["outcome"])
    assert outcomes == ["ok", "error", "timeout", "killed", "killed", "ok"]
    kill_sandbox(env.sandbox)
    observation, _, _, truncated, info = env.step("1")
    assert truncated
    assert observation in env.observation_space
    assert set(info) == keys
    assert env.reset()[1].keys() == keys


@BOTH
def test_returned_values_are_never_shared(make, screen):
    env = make(screen=screen)
    returned = [env.reset(seed=1)]
    returned += [(result[0], result[4]) for result in (env.step("1"), env.step("2"))]
    returned.append(env.reset())
    for number, (observation, info) in enumerate(returned):
        info["outcome"] = "changed"
        observation["stdout"] = "changed"
        if screen is not None:
            assert observation["screenshot"].dtype == np.uint8
            assert not observation["screenshot"].any()
            with pytest.raises(ValueError, match="read-only"):
                observation["screenshot"][:] = number + 1
            with pytest.raises(ValueError, match="cannot set WRITEABLE"):
                observation["screenshot"].flags.writeable = True
    observation, *_, info = env.step("3")
    assert info["outcome"] == "ok"
    assert observation["stdout"] == "3\n"
    if screen is not None:
        assert not observation["screenshot"].any()


def test_returned_values_have_documented_types(env):
    observation, info = env.reset(seed=1)
    assert isinstance(info, dict)
    observation, reward, terminated, truncated, info = env.step("1/0")
    assert observation in env.observation_space
    assert type(reward) is float
    assert type(terminated) is bool
    assert type(truncated) is bool
    assert type(observation["stdout"]) is str
    assert observation["exit_code"] == 1
    assert env.last_timing.seconds > 0


def test_long_output_is_truncated_in_middle(make):
    env = make(max_output_chars=256)
    env.reset()
    observation = run(env, "print('a' * 5000 + 'é' * 5000)")
    assert len(observation["stdout"]) <= 256
    assert observation in env.observation_space
    assert observation["stdout"].startswith("aaa")
    assert observation["stdout"].endswith("é\n")


def test_timeout_message_fits_output_limit(make):
    env = make(max_output_chars=256, step_timeout=0.5)
    env.reset()
    observation = run(env, "import sys\nsys.stderr.write('e' * 10000)\nwhile True: pass")
    assert observation["exit_code"] == 124
    assert len(observation["stderr"]) <= 256
    assert observation in env.observation_space


def test_show_value_false_hides_values(make):
    env = make(show_value=False)
    env.reset()
    assert output(env, "1 + 1") == ""


def test_changed_step_timeout_applies_from_next_reset(make, monkeypatch):
    env = make().unwrapped
    env.reset()
    env.step_timeout = 0.5
    with monkeypatch.context() as patch:
        patch.setattr("coding_gym.envs.episode._ANSWER_SLACK", 0.1)
        assert output(env, "import time; time.sleep(1); 1") == "1\n"
    env.reset()
    *_, info = env.step("import time; time.sleep(60)")
    assert info["outcome"] == "timeout"


def test_cpu_timeout_ends_busy_step(make):
    env = make(cpu_timeout=0.5, step_timeout=90)
    env.reset()
    with promptly():
        observation, *_, info = env.step("while True: pass")
        assert info["outcome"] == "timeout"
    assert observation["exit_code"] == 124


# Rendering


def test_render_ansi(env):
    header = "# CodingEnv-v0: default backend, no screen, 60 s per step"
    env.reset()
    assert env.render() == header
    run(env, "x = 1\nx")
    assert env.render() == f"{header}\n>>> x = 1\n... x\n1"
    env.reset()
    assert env.render() == header


def test_render_without_mode_returns_none(make):
    env = make()
    env.reset()
    assert env.render() is None


@pytest.mark.parametrize(
    ("screen", "shape"),
    [
        pytest.param((64, 48), (48, 64, 3), marks=pytest.mark.screen),
        pytest.param((321, 243), (243, 321, 3), marks=pytest.mark.screen),
        (None, (480, 640, 3)),
    ],
)
def test_render_rgb_array(make, screen, shape):
    env = make(render_mode="rgb_array", screen=screen)
    env.reset()
    frames = [env.render()]
    for code in (
        "print('x' * 20_000)",
        "print('🎉\\t漢字\\x1b[1m\\r\\u202e' * 900)",
        "print('line\\n' * 4000)",
        "1/0",
        "\t# é",
    ):
        env.step(code)
        frames.append(env.render())
    assert all(frame.shape == shape and frame.dtype == np.uint8 for frame in frames)
    assert not np.array_equal(frames[0], frames[1])


@BOTH
def test_record_video(make, tmp_path, screen):
    import_extra("moviepy")
    env = RecordVideo(make(render_mode="rgb_array", screen=screen), str(tmp_path / "videos"), episode_trigger=lambda _: True)
    for _ in range(2):
        env.reset()
        for code in ("print('🎉' * 500)", "1/0"):
            env.step(code)
    env.close()
    videos = sorted(path.name for path in (tmp_path / "videos").glob("*.mp4"))
    assert len(videos) == 2
    assert all((tmp_path / "videos" / name).stat().st_size > 500 for name in videos)


# Wrappers


def test_time_limit(make):
    env = make(max_episode_steps=2)
    env.reset()
    assert not env.step("1")[3]
    assert env.step("2")[3]


def test_record_episode_statistics(make):
    env = RecordEpisodeStatistics(make(max_episode_steps=2))
    env.reset()
    env.step("1")
    info = env.step("2")[4]
    assert info["episode"]["l"] == 2
    assert info["episode"]["r"] == 0.0


# Faults


@pytest.mark.every_provider
def test_sandbox_death_truncates_episode(provider, env_of):
    env = env_of(provider)
    env.reset(seed=1)
    first = env.sandbox
    run(env, "x = 1")
    kill_sandbox(first)
    for _ in range(2):
        observation, reward, terminated, truncated, info = env.step("x")
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert info == {"outcome": "infrastructure", "state_lost": True}
        assert observation["exit_code"] == 255
        assert observation["stdout"] == ""
        assert "sandbox" in observation["stderr"]
        assert observation in env.observation_space
    env.reset(seed=1)
    assert env.sandbox is not first
    assert output(env, "1 + 1") == "2\n"
    assert "NameError" in run(env, "x")["stderr"]


@pytest.mark.every_provider
def test_sandbox_death_during_step_truncates_immediately(provider, env_of):
    env = env_of(provider)
    env.reset(seed=1)
    sandbox = env.sandbox
    if provider == "local":
        victim = server_of(sandbox).pid
    else:
        sandbox.container.reload()
        victim = sandbox.container.attrs["State"]["Pid"]
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {victim}"])
    with promptly():
        _, _, _, truncated, info = env.step("import time; time.sleep(60)")
    assert truncated
    assert info["outcome"] == "infrastructure"
    killer.wait()
    env.reset()
    assert output(env, "1") == "1\n"


@pytest.mark.every_provider
def test_sandbox_dead_between_episodes_is_replaced_silently(provider, env_of):
    env = env_of(provider)
    env.reset(seed=1)
    first = output(env, "import random; random.random()")
    kill_sandbox(env.sandbox)
    observation, info = env.reset(seed=1)
    assert observation["exit_code"] == 0
    assert info["outcome"] == "ok"
    assert output(env, "import random; random.random()") == first


def test_reset_retries_while_fork_fails(env, monkeypatch):
    attempts = []

    def wait(session, *, timeout):
        attempts.append(session)
        if len(attempts) < 5:
            raise ProtocolError("ForkError: fork: Resource temporarily unavailable", "EXECUTION_ERROR")
        return waits(session, timeout=timeout)

    waits = Session.wait
    monkeypatch.setattr(Session, "wait", wait)
    env.reset()
    assert output(env, "1") == "1\n"
    assert len(set(attempts)) >= 5
    attempts.clear()
    monkeypatch.setattr("coding_gym.envs.episode._CAPACITY_TIMEOUT", 0)
    with pytest.raises(ProtocolError, match="fork"):
        env.reset()


def test_frozen_server_truncates_episode(env_of, monkeypatch):
    env = env_of("local")
    monkeypatch.setattr(env, "step_timeout", 0.5)
    env.reset()
    monkeypatch.setattr("coding_gym.envs.episode._ANSWER_SLACK", 0.5)
    server = server_of(env.sandbox)
    server.suspend()
    try:
        observation, _, _, truncated, info = env.step("1")
        assert truncated
        assert info["outcome"] == "infrastructure"
        assert "answer" in observation["stderr"]
    finally:
        server.resume()
    monkeypatch.undo()
    env.reset()
    assert output(env, "1") == "1\n"


@pytest.mark.parametrize("delay", [0.0001, 0.0003, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.012, 0.02, 0.1])
def test_ctrl_c_during_step_leaves_no_stale_answer(env, delay):
    env.reset(seed=1)
    run(env, "x = 'old'")
    assert interrupted_after(delay, lambda: env.step("import time; time.sleep(1.5); print('stale')"))
    env.reset(seed=1)
    assert output(env, "print('fresh')") == "fresh\n"
    assert "NameError" in run(env, "x")["stderr"]


@pytest.mark.parametrize("delay", [0.0005, 0.005, 0.05])
def test_step_after_ctrl_c_returns_no_stale_output(env, delay):
    env.reset(seed=1)
    assert interrupted_after(delay, lambda: env.step("import time; time.sleep(1.5); print('stale')"))
    observation, _, _, truncated, info = env.step("print('fresh')")
    assert "stale" not in observation["stdout"]
    assert truncated == (info["outcome"] == "infrastructure")
    env.reset()
    assert output(env, "print('fresh')") == "fresh\n"


def test_ctrl_c_after_sending_leaves_no_stale_answer(env, monkeypatch):
    flush = Connection._flush
    requests = []

    def flush_and_interrupt(self):
        flush(self)
        requests.append(self)
        if len(requests) == 1:
            raise KeyboardInterrupt

    for begin in (lambda: env.step("print('stale')"), lambda: env.reset(seed=1, options={"episode_id": "stale"})):
        env.reset(seed=1)
        requests.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "_flush", flush_and_interrupt)
            with pytest.raises(KeyboardInterrupt):
                begin()
        env.reset(seed=1, options={"episode_id": "fresh"})
        assert output(env, "print('fresh')") == "fresh\n"
        assert env._session.state().episode_id == "fresh"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("delay", [0.05, 0.2, 0.4])
def test_ctrl_c_during_first_reset_leaves_no_process(make_own, delay):
    before = {process.pid for process in servers()}
    env = make_own()
    assert interrupted_after(delay, lambda: (env.reset(), time.sleep(5)), again_after=3)
    env.close()
    left = [process for process in servers() if process.pid not in before]
    assert gone_within(left) == []
    env = make_own()
    env.reset()
    assert output(env, "1") == "1\n"


# Gymnasium's vector environments


def test_async_vector_env_refuses_shared_memory():
    with pytest.raises(ValueError, match="shared_memory=False"):
        gym.make_vec("CodingEnv-v0", num_envs=2, vectorization_mode="async", provider="local", screen=None)


def test_async_vector_env_works_without_shared_memory():
    envs = gym.make_vec(
        "CodingEnv-v0",
        num_envs=2,
        vectorization_mode="async",
        vector_kwargs={"shared_memory": False},
        provider="local",
        screen=None,
        **FAST,
    )
    try:
        envs.reset(seed=3)
        for number in range(3):
            observations, *_ = envs.step((f"print({number})", f"print({number}, 'é')"))
            assert observations["stdout"] == (f"{number}\n", f"{number} é\n")
            assert "screenshot" not in observations
    finally:
        envs.close()


# The remote provider


def test_remote_server_serves_environment(tmp_path, guarded):
    with RunningServer(tmp_path, "--max-sessions", "2") as unguarded:
        for server in (unguarded, guarded):
            with gym.make("CodingEnv-v0", provider="remote", base_url=server.url, token=server.token, screen=None) as env:
                env.reset(seed=1)
                assert output(env, "6 * 7") == "42\n"
            assert server.is_alive()
            with gym.make("CodingEnv-v0", base_url=f"127.0.0.1:{server.port}/", token=server.token, screen=None) as env:
                env.reset(seed=1)
                assert output(env, "6 * 7") == "42\n"


@pytest.mark.parametrize("token", [None, "wrong"])
def test_remote_refuses_wrong_token_quickly(guarded, token):
    env = CodingEnv(provider="remote", base_url=guarded.url, token=token, start_timeout=60)
    with promptly(), pytest.raises((ProviderError, ProtocolError), match="token"):
        env.reset()
    env.close()


def test_unreachable_remote_raises_provider_error():
    env = CodingEnv(provider="remote", base_url="http://127.0.0.1:9", start_timeout=0.5)
    with pytest.raises(ProviderError, match=r"127\.0\.0\.1:9.*refused"):
        env.reset()


def test_full_remote_raises_capacity_error_quickly(tmp_path):
    with RunningServer(tmp_path, "--max-sessions", "1") as server:
        settings = {"provider": "remote", "base_url": server.url, "screen": None, "start_timeout": 60}
        first, second = CodingEnv(**settings), CodingEnv(**settings)
        first.reset()
        for _ in range(2):
            with promptly(), pytest.raises(CapacityError, match="1/1"):
                second.reset()
        assert output(first, "1") == "1\n"
        first.close()
        second.reset()
        assert output(second, "2") == "2\n"
        second.close()


def test_remote_restart_between_episodes_is_survived(tmp_path):
    server = RunningServer(tmp_path)
    env = CodingEnv(provider="remote", base_url=server.url, screen=None)
    env.reset()
    server.stop()
    assert env.step("1")[3]
    again = RunningServer(tmp_path, port=server.port)
    try:
        env.reset()
        assert output(env, "1") == "1\n"
    finally:
        env.close()
        again.stop()


# Import time


def test_import_loads_no_heavy_packages():
    script = """
        import sys, coding_gym
        heavy = {"starlette", "uvicorn", "docker", "typer", "rich", "pandas", "matplotlib", "requests", "moviepy", "uvloop"}
        print(sorted(heavy & set(sys.modules)))
    """
    process = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True)
    assert process.stdout == "[]\n"


def test_python_is_another_interpreter():
    with contextlib.closing(CodingEnv(provider="local", screen=None, python=Path(sys.executable), **FAST)) as env:
        env.reset(seed=0)
        env.step("import sys; own = [name for name in sys.modules if name.startswith('coding_gym')]")
        assert env.step("print(sys.executable, own)")[0]["stdout"] == f"{sys.executable} []\n"
