"""Screenshots, window lists and videos of programs with windows."""

from __future__ import annotations

import asyncio
import base64
import io
import textwrap
from contextlib import closing

import av
import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordVideo
from PIL import Image

from coding_gym import AsyncCodingEnv, CodeAction, CodingClient, CodingVectorEnv, Rectangle, SandboxPool, Video
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError
from tests.support.requirements import import_extra
from tests.support.sandbox_faults import kill_sandbox

pytestmark = pytest.mark.usefixtures("xvfb")

SCREEN = (200, 100)
RED = (192, 32, 32)
OPEN = textwrap.dedent(
    """
    import tkinter as tk

    window = tk.Tk()
    window.title("Red")
    window.geometry("100x50+10+20")
    window.configure(background="#c02020")
    """
)
SHOW = f"{OPEN}window.update()\n"
WAIT = f"{OPEN}window.mainloop()\n"
ANIMATE = "import itertools\ncolors = itertools.cycle(['red', 'blue'])\nturn(); window.mainloop(); print('closed')"
BLUE = "window.configure(background='#2020c0')\nwindow.update()"


@pytest.fixture
def make(pool):
    envs = []

    def make(**options):
        options = {"screen": SCREEN, "step_timeout": 60, "disable_env_checker": True, **options}
        envs.append(gym.make("CodingEnv-v0", pool=pool, **options))
        return envs[-1].unwrapped

    yield make
    for env in envs:
        env.close()


def red_window():
    picture = np.zeros((SCREEN[1], SCREEN[0], 3), np.uint8)
    picture[20:70, 10:110] = RED
    return picture


def run(env, code):
    obs, reward, terminated, truncated, info = env.step(code)
    assert (obs["stderr"], reward, terminated, truncated) == ("", 0.0, False, False)
    return obs["screenshot"], info


def pictures_of(path):
    with av.open(path) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def is_red(picture):
    return np.abs(picture[30:60, 20:100].astype(int) - RED).max() < 30


# Screenshots


def test_open_window_is_shown_until_reset(make):
    env = make()
    obs, _ = env.reset(seed=1)
    assert not obs["screenshot"].any()
    shown, info = run(env, SHOW)
    assert np.array_equal(shown, red_window())
    assert info == {"outcome": "ok", "state_lost": False}
    assert not shown.flags.writeable
    assert np.array_equal(run(env, "1")[0], red_window())
    blue, _ = run(env, BLUE)
    assert tuple(blue[40, 50]) == (32, 32, 192)
    run(env, "window.destroy()")
    assert not run(env, "2")[0].any()
    run(env, SHOW)
    assert not env.reset()[0]["screenshot"].any()
    assert not run(env, "3")[0].any()


def test_waiting_program_is_closed_by_default(make):
    env = make()
    env.reset(seed=1)
    shown, info = run(env, WAIT)
    assert np.array_equal(shown, red_window())
    assert info == {"outcome": "ok", "state_lost": False, "idle": "closed"}
    assert env.windows() == []
    obs, *_, info = env.step(f"{OPEN}window.protocol('WM_DELETE_WINDOW', lambda: None)\nwindow.mainloop()")
    assert (obs["exit_code"], info["outcome"], info["idle"]) == (130, "error", "closed")


def test_waiting_program_continues_with_on_idle_return(make):
    env = make(on_idle="return")
    env.reset(seed=1)
    run(env, f"{OPEN}window.protocol('WM_DELETE_WINDOW', lambda: (print('closed'), window.destroy()))")
    shown, info = run(env, "window.mainloop()")
    assert np.array_equal(shown, red_window())
    assert info == {"outcome": "running", "state_lost": False, "idle": "returned"}
    assert [window.title for window in env.windows()] == ["Red"]
    obs, *_, info = env.step("print('next')")
    assert obs["stdout"] == "closed\nnext\n"
    assert info == {"outcome": "ok", "state_lost": False}


def test_animation_ends_after_max_watch(make):
    env = make(max_watch=0.4)
    env.reset(seed=1)
    obs, *_, info = env.step(f"{OPEN}def turn(): window.configure(bg=next(colors)); window.after(20, turn)\n" + ANIMATE)
    assert (obs["stdout"], info) == ("closed\n", {"outcome": "ok", "state_lost": False, "idle": "animating"})
    assert obs["screenshot"].any()
    assert env.step("next(colors)")[0]["stdout"]


@pytest.mark.parametrize("capture", ["never", "always"])
def test_capture_setting_controls_screenshots(make, capture):
    env = make(capture=capture)
    obs, _ = env.reset(seed=1)
    assert not obs["screenshot"].any()
    assert not run(env, "1")[0].any()
    assert run(env, SHOW)[0].any() == (capture == "always")
    assert np.array_equal(env.capture(), red_window())


def test_default_screen_is_800_by_600(pool):
    with gym.make("CodingEnv-v0", pool=pool) as env:
        env.reset(seed=1)
        obs, *_ = env.step(SHOW)
        assert obs in env.observation_space
        assert obs["screenshot"].shape == (600, 800, 3)
        assert np.array_equal(obs["screenshot"][:100, :200], red_window())


def test_disabled_screen_provides_no_display(make):
    env = make(screen=None)
    env.reset(seed=1)
    obs, *_ = env.step(OPEN)
    assert obs["exit_code"] == 1
    assert "no display name" in obs["stderr"]
    assert "screenshot" not in obs


def test_missing_x_server_is_reported_on_reset():
    options = {"provider": "local", "preload": (), "sessions": 3, "environment": {"PATH": "/nowhere"}}
    with SandboxPool(1, acquire_timeout=60, **options) as pool:
        with gym.make("CodingEnv-v0", pool=pool, screen=SCREEN) as env, pytest.raises(ConfigurationError, match="Xvfb"):
            env.reset()
        with gym.make("CodingEnvGUI-v0", pool=pool) as env, pytest.raises(ConfigurationError, match="Xvfb"):
            env.reset()
        with gym.make("CodingEnv-v0", pool=pool) as env:
            env.reset()
            obs, *_ = env.step("print('hi')")
    assert obs["stdout"] == "hi\n"
    assert not obs["screenshot"].any()


# Windows and regions


def test_windows_and_regions_are_captured(make):
    env = make()
    env.reset(seed=1)
    assert env.windows() == []
    assert not env.capture().any()
    run(env, f"{SHOW}second = tk.Toplevel(window, background='#20c020')\nsecond.geometry('30x20+90+5')\nsecond.update()")
    low, high = env.windows()
    assert (low.title, low.x, low.y, low.width, low.height, low.stacking) == ("Red", 10, 20, 100, 50, 0)
    assert (high.x, high.y, high.width, high.height, high.stacking) == (90, 5, 30, 20, 1)
    whole = env.capture()
    assert whole.shape == (100, 200, 3)
    assert np.array_equal(env.capture(high), whole[5:25, 90:120])
    assert np.array_equal(env.capture(low.id), whole[20:70, 10:110])
    assert np.array_equal(env.capture((80, 0, 20, 30)), whole[:30, 80:100])
    assert np.array_equal(env.capture(Rectangle(0, 0, 200, 100)), whole)
    beside = env.capture((-10, 90, 30, 20))
    assert beside.shape == (20, 30, 3)
    assert not beside[10:].any()
    whole[:] = 0
    assert env.capture().any()
    run(env, "second.destroy()\nwindow.update()")
    with pytest.raises(ProtocolError, match=f"no window {high.id}"):
        env.capture(high)
    with pytest.raises(ConfigurationError, match="a Window, the id of a window"):
        env.capture((1, 2))
    assert np.array_equal(env.capture(), red_window())
    assert np.array_equal(run(env, "1")[0], red_window())


def test_capture_without_reset_or_screen_raises(make):
    env = make()
    for look in (env.windows, env.capture):
        with pytest.raises(gym.error.ResetNeeded):
            look()
    env = make(screen=None)
    env.reset()
    for look in (env.windows, env.capture):
        with pytest.raises(ConfigurationError, match="screen=None"):
            look()
    assert env.step("1 + 1")[0]["stdout"] == "2\n"


def test_window_query_on_dead_sandbox_raises():
    with gym.make("CodingEnv-v0", provider="local", preload=(), screen=SCREEN, disable_env_checker=True) as env:
        env.reset()
        kill_sandbox(env.unwrapped.sandbox)
        for _ in range(2):
            with pytest.raises(TransportError):
                env.unwrapped.windows()
        obs, _, _, truncated, info = env.step("1")
        assert (obs["exit_code"], truncated, info["outcome"]) == (255, True, "infrastructure")
        env.reset()
        assert env.unwrapped.windows() == []


# Video


def test_step_frames_show_changes_in_order(make):
    env = make(frames=60)
    _, info = env.reset(seed=1)
    assert info["frames"] == Video()
    shown, info = run(env, f"{SHOW}import time\ntime.sleep(0.3)\n{BLUE}")
    frames = info["frames"]
    assert np.stack(frames).shape[1:] == (100, 200, 3)
    assert list(frames.times) == sorted(frames.times)
    assert any(np.array_equal(frame, red_window()) for frame in frames)
    assert np.array_equal(frames[-1], shown)
    assert run(env, "1")[1]["frames"].times[1:] == ()


def test_record_video_shows_windows(make, tmp_path):
    import_extra("moviepy")
    env = RecordVideo(make(render_mode="rgb_array"), str(tmp_path / "videos"), episode_trigger=lambda _: True)
    env.reset(seed=1)
    for code in ("print('nothing to see')", SHOW, "window.destroy()"):
        env.step(code)
    env.close()
    pictures = pictures_of(next(tmp_path.glob("videos/*.mp4")))
    assert {picture.shape for picture in pictures} == {(100, 200, 3)}
    assert [is_red(picture) for picture in pictures] == [False, False, True, False]


def test_vector_record_video_shows_windows(pool, tmp_path):
    import_extra("moviepy")
    envs = CodingVectorEnv(2, pool=pool, screen=SCREEN, render_mode="rgb_array", max_episode_steps=2)
    # Not in Gymnasium 1.1.
    recorded = gym.wrappers.vector.RecordVideo(envs, str(tmp_path / "videos"), episode_trigger=lambda _: True)
    recorded.reset(seed=1)
    for _ in range(4):
        recorded.step((SHOW, "print('nothing to see')"))
    recorded.close()
    assert any(is_red(picture) for path in tmp_path.glob("videos/*.mp4") for picture in pictures_of(path))


# Vector environments, asyncio, OpenEnv


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environment_returns_screens_per_environment(pool, mode):
    options = {"screen": SCREEN, "render_mode": "rgb_array", "max_episode_steps": 3, "frames": 30}
    with closing(CodingVectorEnv(3, pool=pool, autoreset_mode=mode, **options)) as envs:
        envs.reset(seed=1)
        observations, *_, infos = envs.step(["1", SHOW, "1/0"])
        assert observations in envs.observation_space
        assert [bool(picture.any()) for picture in observations["screenshot"]] == [False, True, False]
        assert np.array_equal(observations["screenshot"][1], red_window())
        assert [type(video) for video in infos["frames"]] == [Video] * 3
        pictures = envs.render()
        assert {picture.shape for picture in pictures} == {(100, 200, 3)}
        assert np.array_equal(pictures[1], red_window())
        assert [len(windows) for windows in envs.call("windows")] == [0, 1, 0]
        observations["screenshot"][:] = 7
        observations, *_ = envs.step(["1", "2", "3"])
        assert np.array_equal(observations["screenshot"][1], red_window())
        observations, _, _, truncations, infos = envs.step(["1", "2", "3"])
        assert truncations.all()
        if mode is AutoresetMode.SAME_STEP:
            assert not observations["screenshot"].any()
            assert np.array_equal(infos["final_obs"][1]["screenshot"], red_window())


def test_async_environment_captures_screen(pool):
    async def look():
        async with AsyncCodingEnv(pool=pool, screen=SCREEN) as env:
            (obs, *_), windows, picture = await asyncio.gather(env.step(SHOW), env.windows(), env.capture())
            assert np.array_equal(obs["screenshot"], red_window())
            assert [window.title for window in windows] == ["Red"]
            assert np.array_equal(picture, red_window())
            assert (await env.capture(windows[0])).shape == (50, 100, 3)
            with pytest.raises(ProtocolError, match="no window 7"):
                await env.capture(7)
            looking = asyncio.create_task(env.capture())
            await asyncio.sleep(0)
            looking.cancel()
            assert (await env.step("1 + 1"))[0]["stdout"] == "2\n"
            assert np.array_equal(await env.capture(), red_window())
        with pytest.raises(gym.error.ClosedEnvironmentError):
            await env.capture()

    async def refuse():
        with pytest.raises(gym.error.ResetNeeded):
            await AsyncCodingEnv(pool=pool).windows()
        async with AsyncCodingEnv(pool=pool, screen=None) as env:
            with pytest.raises(ConfigurationError, match="screen=None"):
                await env.windows()

    asyncio.run(look())
    asyncio.run(refuse())


def test_openenv_client_receives_png(pool):
    lease = pool.acquire()
    try:
        with CodingClient(lease.sandbox.address) as client:
            client.reset(seed=1, screen=SCREEN)
            observation = client.step(CodeAction(code=SHOW, capture_screenshot=True)).observation
            picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(observation.screenshot))).convert("RGB"))
            assert np.array_equal(picture, red_window())
            assert client.step(CodeAction(code="1")).observation.screenshot is None
            client.reset(screen=SCREEN, capture="auto")
            assert client.step(CodeAction(code="1")).observation.screenshot is None
            assert client.step(CodeAction(code=SHOW)).observation.screenshot is not None
            client.reset()
            black = client.step(CodeAction(code="1", capture_screenshot=True)).observation.screenshot
            assert Image.open(io.BytesIO(base64.b64decode(black))).size == (800, 600)
    finally:
        lease.release()
