from __future__ import annotations

import ast
import functools
import itertools
import subprocess
import threading
import time
from contextlib import ExitStack, closing

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from coding_gym import CodingVectorEnv, SandboxPool
from coding_gym.errors import CodingGymError, ConfigurationError, InvalidActionError
from tests.support.environments import make_envs
from tests.support.interruption import interrupted_after
from tests.support.requirements import import_extra
from tests.support.running_server import gone_within
from tests.support.sandbox_faults import kill_sandbox
from tests.support.sandbox_processes import ITSELF, host_process, server_of, workers_of
from tests.support.timing import eventually, promptly

ENV = {"screen": None, "step_timeout": 60}
FAST = {"provider": "local", "preload": (), **ENV}


@pytest.fixture(scope="module")
def envs():
    """Four environments in one sandbox, shared by the tests that begin with a reset."""
    with closing(gym.make_vec("CodingEnv-v0", num_envs=4, **FAST)) as envs:
        yield envs


@pytest.fixture(scope="module")
def pairs_of():
    """Function that returns four environments in two sandboxes, shared by the tests that begin with a reset and kill them."""
    with ExitStack() as stack:

        @functools.cache
        def get(provider):
            options = {**FAST, "provider": provider, "step_timeout": 30}
            return stack.enter_context(closing(gym.make_vec("CodingEnv-v0", num_envs=4, sessions_per_sandbox=2, **options)))

        yield get


@pytest.fixture(scope="module")
def pool():
    """Pool with one sandbox of eight sessions, for tests that close their environments."""
    with SandboxPool(provider="local", preload=(), sessions=8, max_episodes=None, acquire_timeout=60) as pool:
        yield pool


@pytest.fixture
def make(pool):
    """Make environments in the shared pool."""
    with ExitStack() as stack:
        yield functools.partial(make_envs, stack, **{**ENV, "pool": pool})


@pytest.fixture
def make_own():
    """Make environments with dedicated sandboxes."""
    with ExitStack() as stack:
        yield functools.partial(make_envs, stack, **FAST)


def sandboxes(envs):
    return list({id(env.sandbox): env.sandbox for env in envs.envs}.values())


def stdout(envs, *actions):
    observations, rewards, terminations, truncations, infos = envs.step(actions)
    assert observations["stderr"] == ("",) * envs.num_envs
    assert not rewards.any()
    assert not terminations.any()
    assert not truncations.any()
    assert set(infos["outcome"]) == {"ok"}
    return observations["stdout"]


def fresh_namespaces(envs):
    """Return which environments do not define ``mark`` yet, and define it in all of them."""
    observations, _, _, truncations, infos = envs.step(
        ["print('mark' not in globals()); mark = 1"] * envs.num_envs,
    )
    assert not truncations.any(), (infos, observations["stderr"])
    return [text == "True\n" for text in observations["stdout"]]


# Shape


@pytest.mark.screen
def test_make_vec_returns_coding_vector_env(make):
    envs = make(3, screen=(64, 48), max_episode_steps=5)
    assert isinstance(envs, CodingVectorEnv)
    assert envs.num_envs == 3
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.single_observation_space["screenshot"].shape == (48, 64, 3)
    assert envs.observation_space["screenshot"].shape == (3, 48, 64, 3)
    observations, infos = envs.reset(seed=1)
    assert observations in envs.observation_space
    assert set(infos) == {"outcome", "_outcome", "state_lost", "_state_lost"}


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("form", [lambda mode: mode, lambda mode: mode.value], ids=["enum", "text"])
def test_metadata_contains_autoreset_mode(make, mode, form):
    assert make(autoreset_mode=form(mode)).metadata["autoreset_mode"] is mode


def test_vector_environments_do_not_share_metadata(make):
    first, second = make(), make(autoreset_mode="SameStep")
    assert first.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert second.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert "autoreset_mode" not in type(first.envs[0]).metadata


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_envs": 0}, "num_envs"),
        ({"num_envs": -1}, "num_envs"),
        ({"num_envs": "3"}, "num_envs"),
        ({"num_envs": 2.5}, "num_envs"),
        ({"sessions_per_sandbox": 0}, "sessions_per_sandbox"),
        ({"sessions_per_sandbox": "8"}, "sessions_per_sandbox"),
        ({"memory": "1g"}, "memory"),
        ({"screen": "big"}, "screen"),
        ({"config": {"mem": "1g"}, "cpu": 1}, "config"),
        ({"max_episode_steps": 0}, "max_episode_steps"),
        ({"max_episode_steps": "3"}, "max_episode_steps"),
    ],
)
def test_bad_setting_is_refused(options, named):
    with pytest.raises(ConfigurationError, match=named):
        CodingVectorEnv(**options)


def test_environments_share_sandboxes(envs, pairs_of, make_own):
    for several, expected in ((envs, 1), (pairs_of("local"), 2), (make_own(2, sessions_per_sandbox=1), 2)):
        several.reset(seed=0)
        assert len(sandboxes(several)) == expected
        numbers = range(several.num_envs)
        assert stdout(several, *map(str, numbers)) == tuple(f"{number}\n" for number in numbers)


def test_environments_in_one_sandbox_are_isolated(envs):
    envs.reset(seed=1)
    stdout(envs, "x = 0", "x = 1", "x = 2", "x = 3")
    assert stdout(envs, *["x"] * 4) == ("0\n", "1\n", "2\n", "3\n")
    stdout(envs, *["_ = open('f', 'w').write(str(x))"] * 4)
    assert stdout(envs, *["import os; (os.listdir(), open('f').read())"] * 4) == tuple(
        f"(['f'], '{number}')\n" for number in range(4)
    )


# Equality with Gymnasium's vector environments


def assert_equal(ours, theirs, context):
    assert data_equivalence(ours, theirs), f"{context}:\n{ours}\n{theirs}"


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("screen", [pytest.param((32, 24), marks=pytest.mark.screen), None])
def test_every_step_equals_sync_vector_env(mode, screen, pool):
    settings = {"screen": screen, "step_timeout": 60, "max_episode_steps": 3}

    def one():
        return gym.make("CodingEnv-v0", pool=pool, **settings)

    with (
        closing(gym.make_vec("CodingEnv-v0", num_envs=3, autoreset_mode=mode, pool=pool, **settings)) as ours,
        closing(SyncVectorEnv([one] * 3, autoreset_mode=mode)) as theirs,
    ):
        assert ours.observation_space == theirs.observation_space
        assert ours.action_space == theirs.action_space
        assert ours.metadata == theirs.metadata
        assert_equal(ours.reset(seed=[5, None, 7]), theirs.reset(seed=[5, None, 7]), "reset with a list")
        assert_equal(ours.reset(seed=42), theirs.reset(seed=42), "reset")
        ours.action_space.seed(42)
        for number in range(10):
            actions = ours.action_space.sample()
            if number == 4:
                actions = ("import random; random.random()",) * 3
            mine, other = ours.step(actions), theirs.step(actions)
            assert_equal(mine, other, f"step {number} of {actions}")
            assert mine[0] in ours.observation_space
            if mode is AutoresetMode.DISABLED and (mine[2] | mine[3]).any():
                with pytest.raises(AssertionError, match="_autoreset_envs"):
                    ours.step(actions)
                mask = mine[2] | mine[3]
                if number < 5:
                    mask = np.array([True, False, True])
                    assert_equal(
                        ours.reset(options={"reset_mask": mask.copy()}),
                        theirs.reset(options={"reset_mask": mask.copy()}),
                        "reset of some",
                    )
                    mask = ~mask
                seeds = [number, 1, 2]
                assert_equal(
                    ours.reset(seed=seeds, options={"reset_mask": mask.copy()}),
                    theirs.reset(seed=seeds, options={"reset_mask": mask.copy()}),
                    "reset of the others",
                )
        assert_equal(ours.reset(), theirs.reset(), "reset without a seed")


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_staggered_episode_ends_equal_sync_vector_env(mode, pool):
    settings = {"screen": None, "step_timeout": 60, "max_episode_steps": 3}
    with (
        closing(gym.make_vec("CodingEnv-v0", num_envs=2, autoreset_mode=mode, **{**FAST, **settings})) as ours,
        closing(SyncVectorEnv([lambda: gym.make("CodingEnv-v0", pool=pool, **settings)] * 2, autoreset_mode=mode)) as theirs,
    ):
        for envs in (ours, theirs):
            envs.reset(seed=1)
            envs.step(("x = 1", "x = 2"))
        mask = np.array([False, True])
        assert_equal(
            ours.reset(options={"reset_mask": mask.copy()}), theirs.reset(options={"reset_mask": mask.copy()}), "reset of one"
        )
        for number in range(8):
            actions = (f"print({number}); 'x' in globals()", "x = globals().get('x', 0) + 1; print(x)")
            assert_equal(ours.step(actions), theirs.step(actions), f"step {number}")


def test_scalar_seed_counts_up_per_environment(envs):
    code = "import random; random.random()"

    def draw(seed):
        envs.reset(seed=seed)
        return stdout(envs, *[code] * 4)

    counted = draw(7)
    assert draw([7, 8, 9, 10]) == counted
    assert draw(np.int64(7)) == counted
    assert draw((10, 9, 8, 7)) == counted[::-1]
    assert len(set(counted)) == 4
    with pytest.raises(ValueError, match="seeds"):
        envs.reset(seed=[1, 2])


@pytest.mark.parametrize(
    ("mask", "error"),
    [
        ([True, False, True, True], TypeError),
        (np.array([1, 0, 1, 1]), TypeError),
        (np.array([True]), ValueError),
        (np.zeros(4, bool), ValueError),
    ],
)
def test_bad_reset_mask_is_refused_without_reset(envs, mask, error):
    envs.reset(seed=1)
    assert all(fresh_namespaces(envs))
    with pytest.raises(error, match="reset_mask"):
        envs.reset(options={"reset_mask": mask})
    assert not any(fresh_namespaces(envs))


def test_reset_leaves_options_unchanged(envs):
    options = {"reset_mask": np.array([True, False, False, False])}
    envs.reset(seed=1)
    assert all(fresh_namespaces(envs))
    envs.reset(options=options)
    assert set(options) == {"reset_mask"}
    assert fresh_namespaces(envs) == [True, False, False, False]


@pytest.mark.screen
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_returned_arrays_are_never_shared(make, mode):
    envs = make(2, screen=(32, 24), max_episode_steps=2, autoreset_mode=mode)
    observations = [envs.reset(seed=1)[0]]
    for _ in range(5):
        observation, rewards, terminations, truncations, infos = envs.step(("1", "2"))
        assert not observation["screenshot"].any()
        for array in (rewards, terminations, truncations):
            array[:] = True
        observation["exit_code"][:] = 9
        observation["screenshot"][:] = 9
        for final in infos.get("final_obs", ()):
            assert not final["screenshot"].any()
        observations.append(observation)
    pairs = itertools.pairwise(observation["screenshot"] for observation in observations)
    assert not any(np.shares_memory(*pair) for pair in pairs)


# Calls


def test_call_and_attributes_reach_every_environment(make):
    envs = make(2)
    assert envs.get_attr("step_timeout") == (60.0, 60.0)
    envs.set_attr("step_timeout", [3.0, 4.0])
    assert envs.get_attr("step_timeout") == (3.0, 4.0)
    envs.set_attr("step_timeout", 5.0)
    assert envs.call("render") == (None, None)
    envs.set_attr("step_timeout", [0.4, 5.0])
    envs.reset()
    infos = envs.step(["import time; time.sleep(1)"] * 2)[4]
    assert list(infos["outcome"]) == ["timeout", "ok"]


@pytest.mark.screen
@pytest.mark.parametrize("render_mode", ["ansi", "rgb_array", None])
def test_render_returns_tuple(make, render_mode):
    envs = make(2, render_mode=render_mode, screen=(64, 48))
    envs.reset()
    envs.step(("1", "2"))
    pictures = envs.render()
    assert isinstance(pictures, tuple)
    assert len(pictures) == 2
    assert envs.render_mode == render_mode
    if render_mode == "ansi":
        header = "# CodingEnv-v0: default backend, screen 64 x 48, 60 s per step"
        assert pictures == (f"{header}\n>>> 1\n1", f"{header}\n>>> 2\n2")
    elif render_mode == "rgb_array":
        assert all(picture.shape == (48, 64, 3) for picture in pictures)
        assert not np.array_equal(*pictures)
    else:
        assert pictures == (None, None)


def test_record_episode_statistics(make):
    envs = RecordEpisodeStatistics(make(2, max_episode_steps=2))
    envs.reset()
    envs.step(("1", "2"))
    infos = envs.step(("1", "2"))[4]
    assert list(infos["episode"]["l"]) == [2, 2]


@pytest.mark.screen
def test_record_video(make, tmp_path):
    import_extra("moviepy")
    # Not in Gymnasium 1.1.
    envs = gym.wrappers.vector.RecordVideo(
        make(2, render_mode="rgb_array", screen=(64, 48), max_episode_steps=2),
        str(tmp_path / "videos"),
        episode_trigger=lambda _: True,
    )
    envs.reset()
    for _ in range(4):
        envs.step(("1", "print('🎉' * 99)"))
    envs.close()
    assert list((tmp_path / "videos").glob("*.mp4"))


# Actions


@pytest.mark.parametrize("bad", [1, None, "\ud800", "x" * 100_001, b"1"])
def test_invalid_action_raises_before_execution(envs, bad):
    envs.reset(seed=1)
    stdout(envs, *["x = 1"] * 4)
    with pytest.raises(InvalidActionError):
        envs.step(("x = 2", "x = 2", "x = 2", bad))
    assert stdout(envs, *["x"] * 4) == ("1\n",) * 4


@pytest.mark.parametrize("actions", [(), ("x = 2",), ("x = 2",) * 3, ("x = 2",) * 5])
def test_wrong_number_of_actions_raises_before_execution(envs, actions):
    envs.reset(seed=1)
    stdout(envs, *["x = 1"] * 4)
    with pytest.raises(ValueError, match="actions"):
        envs.step(actions)
    assert stdout(envs, *["x"] * 4) == ("1\n",) * 4


def test_single_string_is_refused(envs):
    envs.reset(seed=1)
    with pytest.raises(CodingGymError):
        envs.step("x=1;")


@pytest.mark.parametrize("kind", [list, tuple, lambda actions: np.array(actions, object), np.array])
def test_any_sequence_of_actions_is_accepted(envs, kind):
    envs.reset(seed=1)
    assert stdout(envs, *kind(["1", "2", "3", "'é'"])) == ("1\n", "2\n", "3\n", "'é'\n")
    observations, *_ = envs.step(kind(["1", "2", "3", "'é'"]))
    assert observations["stdout"] == ("1\n", "2\n", "3\n", "'é'\n")


def test_step_before_reset_raises(make):
    with pytest.raises(gym.error.ResetNeeded):
        make(2).step(("1", "2"))


def test_steps_run_concurrently(make):
    envs = make(8)
    envs.reset()
    envs.step(["import time"] * 8)
    shown = stdout(envs, *["began = time.monotonic(); time.sleep(3); print(began, time.monotonic())"] * 8)
    begins, ends = zip(*(map(float, text.split()) for text in shown), strict=True)
    assert max(begins) < min(ends)


def test_step_timeout_applies_per_environment(make):
    envs = make(3)
    envs.set_attr("step_timeout", [60, 0.7, 0.7])
    envs.reset()
    with promptly():
        observations, _, _, truncations, infos = envs.step(("1", "while True: pass", "import time; time.sleep(60)"))
    assert list(observations["exit_code"]) == [0, 124, 124]
    assert list(infos["outcome"]) == ["ok", "timeout", "timeout"]
    assert not truncations.any()


# Sandbox lifecycle


def test_close_is_idempotent_and_allowed_before_reset(make_own):
    never = make_own(3)
    never.close()
    never.close()
    envs = make_own(3, sessions_per_sandbox=2)
    envs.reset()
    servers = [server_of(sandbox) for sandbox in sandboxes(envs)]
    assert len(servers) == 2
    envs.close()
    envs.close()
    assert gone_within(servers) == []
    for use in (envs.reset, lambda: envs.step(("1", "2", "3"))):
        with pytest.raises(gym.error.ClosedEnvironmentError, match="closed"):
            use()


def test_failed_constructor_is_collected_silently():
    with pytest.raises(ConfigurationError):
        CodingVectorEnv(num_envs=2, screen="big")


@pytest.mark.every_provider
def test_dead_sandbox_affects_only_its_environments(provider, pairs_of):
    envs = pairs_of(provider)
    envs.reset(seed=1)
    assert all(fresh_namespaces(envs))
    dead, alive = envs.envs[0].sandbox, envs.envs[2].sandbox
    kill_sandbox(dead)
    observations, rewards, terminations, truncations, infos = envs.step([str(number) for number in range(4)])
    assert list(truncations) == [True, True, False, False]
    assert not terminations.any()
    assert not rewards.any()
    assert list(infos["outcome"]) == ["infrastructure", "infrastructure", "ok", "ok"]
    assert list(observations["exit_code"]) == [255, 255, 0, 0]
    assert observations["stdout"] == ("", "", "2\n", "3\n")
    assert observations in envs.observation_space
    observations, _, _, truncations, infos = envs.step([str(number) for number in range(4)])
    assert not truncations.any()
    assert list(infos["outcome"]) == ["ok"] * 4
    assert observations["stdout"] == ("", "", "2\n", "3\n")
    assert fresh_namespaces(envs) == [True, True, False, False]
    assert envs.envs[0].sandbox is envs.envs[1].sandbox is not dead
    assert envs.envs[2].sandbox is envs.envs[3].sandbox is alive


def test_dead_full_sandbox_is_replaced_for_all(make_own):
    # All environments request slots of the replacement, which has exactly as many.
    envs = make_own(8)
    for attempt in range(3):
        envs.reset(seed=attempt)
        kill_sandbox(envs.envs[0].sandbox)
        assert envs.step(["1"] * 8)[3].all()
        time.sleep(attempt / 2)
        assert not envs.step(["1"] * 8)[3].any()
        assert stdout(envs, *["2"] * 8) == ("2\n",) * 8


def test_sandbox_death_during_step_truncates_its_environments(pairs_of):
    envs = pairs_of("local")
    envs.reset()
    killer = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {server_of(envs.envs[0].sandbox).pid}"])
    with promptly():
        _, _, _, truncations, infos = envs.step(["import time; time.sleep(60)"] * 2 + ["import time; time.sleep(1)"] * 2)
    killer.wait()
    assert list(truncations) == [True, True, False, False]
    assert list(infos["outcome"]) == ["infrastructure"] * 2 + ["ok"] * 2


def workers_in(envs):
    found = map(ast.literal_eval, stdout(envs, *[ITSELF] * 4))
    return [host_process(env.sandbox, worker) for env, worker in zip(envs.envs, found, strict=True)]


def test_broken_session_leaves_neighbors_unaffected(envs):
    envs.reset()
    assert all(fresh_namespaces(envs))
    sandbox = envs.envs[0].sandbox
    root = workers_in(envs)[0].parent()
    root.kill()
    gone_within([root])
    _, _, _, truncations, infos = envs.step(["1"] * 4)
    assert list(infos["outcome"]) == ["infrastructure", "ok", "ok", "ok"]
    assert list(truncations) == [True, False, False, False]
    time.sleep(0.5)
    assert not envs.step(["1"] * 4)[3].any()
    assert envs.envs[1].sandbox is sandbox
    assert fresh_namespaces(envs) == [True, False, False, False]


def test_sandboxes_dead_between_episodes_are_replaced_silently(pairs_of):
    envs = pairs_of("local")
    envs.reset(seed=1)
    for sandbox in sandboxes(envs):
        kill_sandbox(sandbox)
    envs.reset(seed=1)
    assert stdout(envs, *"1234") == ("1\n", "2\n", "3\n", "4\n")


def test_reset_replaces_dead_sandboxes_in_parallel(make_own):
    envs = make_own(4, sessions_per_sandbox=1)
    envs.reset(seed=1)
    for sandbox in sandboxes(envs):
        kill_sandbox(sandbox)
    assert eventually(lambda: all(env.has_lost_session for env in envs.envs))
    envs.reset(seed=1)
    starts = [server_of(sandbox).create_time() for sandbox in sandboxes(envs)]
    workers = [worker.create_time() for sandbox in sandboxes(envs) for worker in workers_of(sandbox)]
    # One after another, the first has workers before the second starts.
    assert max(starts) < min(workers)
    assert stdout(envs, *"1234") == ("1\n", "2\n", "3\n", "4\n")


def test_reset_requests_all_sessions_before_it_waits_for_one(make_own):
    envs = make_own(4, sessions_per_sandbox=2)
    envs.reset(seed=1)
    workers = workers_in(envs)[2:]
    slow, fast = (server_of(sandbox) for sandbox in sandboxes(envs))
    slow.suspend()
    try:
        resetting = threading.Thread(target=envs.reset)
        resetting.start()
        assert gone_within(workers) == []
        assert resetting.is_alive()
    finally:
        slow.resume()
    resetting.join(30)
    assert not resetting.is_alive()
    assert fast.is_running()
    assert all(fresh_namespaces(envs))


# Ctrl-C


@pytest.mark.parametrize("delay", [0.0005, 0.001, 0.002, 0.005, 0.02, 0.3])
def test_reset_after_ctrl_c_leaves_no_stale_answer(envs, delay):
    envs.reset(seed=1)
    stdout(envs, *["x = 'old'"] * 4)
    assert interrupted_after(delay, lambda: envs.step(["import time; time.sleep(1); print('stale')"] * 4))
    observations, infos = envs.reset(seed=1)
    assert observations["stdout"] == ("",) * 4
    assert list(infos["outcome"]) == ["ok"] * 4
    assert stdout(envs, *[f"print({number}, 'x' in globals())" for number in range(4)]) == tuple(
        f"{number} False\n" for number in range(4)
    )


def test_reset_works_after_ctrl_c_in_first_reset(make_own):
    envs = make_own(4, sessions_per_sandbox=2)
    assert interrupted_after(0.2, lambda: (envs.reset(), time.sleep(5)))
    envs.reset(seed=1)
    assert stdout(envs, *["1"] * 4) == ("1\n",) * 4
