from __future__ import annotations

from contextlib import closing

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from coding_gym import CodingShellVectorEnv
from coding_gym.errors import ConfigurationError

OPTIONS = {"screen": None, "step_timeout": 20}
FAST = {"provider": "local", "preload": (), **OPTIONS}


@pytest.fixture(scope="module")
def shell(pool):
    with closing(gym.make("CodingShellEnv-v0", pool=pool, **OPTIONS)) as env:
        yield env


@pytest.fixture
def env(shell):
    shell.reset(seed=1)
    return shell


def shown(env, command):
    observation, reward, terminated, truncated, info = env.step(command)
    assert (reward, terminated, truncated) == (0.0, False, False)
    return observation["stdout"], observation["stderr"], observation["exit_code"], info["outcome"]


def test_state_of_shell_persists(env):
    assert shown(env, "x=1; f() { echo f $x; }; mkdir sub; cd sub; alias a='echo alias'") == ("", "", 0, "ok")
    assert shown(env, "f; a; basename $PWD") == ("f 1\nalias\nsub\n", "", 0, "ok")


def test_exit_code_is_that_of_last_command(env):
    assert shown(env, "true; false") == ("", "", 1, "error")
    assert shown(env, "exit 7") == ("", "", 7, "error")
    assert shown(env, "echo still here") == ("still here\n", "", 0, "ok")


def test_reset_begins_new_shell(env):
    shown(env, "x=1; touch file")
    env.reset(seed=2)
    assert shown(env, "echo [$x]; ls") == ("[]\n", "", 0, "ok")


def test_processes_share_directory_with_shell(env):
    shown(env, "echo text > file")
    assert env.unwrapped.exec(["cat", "file"]).stdout == b"text\n"


def test_transcript_names_environment(pool):
    with closing(gym.make("CodingShellEnv-v0", pool=pool, render_mode="ansi", **OPTIONS)) as env:
        env.reset(seed=1)
        env.step("echo hello")
        assert "CodingShellEnv-v0" in env.render()
        assert "hello" in env.render()


def test_other_backends_are_refused():
    with pytest.raises(ConfigurationError, match="backend= to be 'bash'"):
        gym.make("CodingShellEnv-v0", backend="python")


def test_gymnasium_checker_accepts_environment(pool):
    with closing(gym.make("CodingShellEnv-v0", pool=pool, **OPTIONS)) as env:
        check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environment_equals_sync_vector_env(mode, pool):
    def one():
        return gym.make("CodingShellEnv-v0", max_episode_steps=2, pool=pool, **OPTIONS)

    made = gym.make_vec("CodingShellEnv-v0", num_envs=2, max_episode_steps=2, autoreset_mode=mode, **FAST)
    with closing(made) as ours, closing(SyncVectorEnv([one] * 2, autoreset_mode=mode)) as theirs:
        assert isinstance(ours, CodingShellVectorEnv)
        assert data_equivalence(ours.reset(seed=1), theirs.reset(seed=1))
        for commands in (["x=1; echo $x", "exit 3"], ["echo $x", "pwd | wc -l"], ["echo $x", "true"]):
            mine, other = ours.step(commands), theirs.step(commands)
            assert data_equivalence(mine, other)
            if mode is AutoresetMode.DISABLED and mine[3].any():
                assert data_equivalence(
                    ours.reset(options={"reset_mask": mine[3]}), theirs.reset(options={"reset_mask": mine[3].copy()})
                )
