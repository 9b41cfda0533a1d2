from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from coding_gym import inputs
from coding_gym.datasets import Decision, FunctionPolicy, Policy, ScriptedPolicy, collect, load
from coding_gym.errors import DatasetError, InvalidActionError, PolicyError
from tests.datasets.programs import RANDOM, UGLY, WINDOW
from tests.support.sandbox_faults import kill_sandbox
from tests.support.timing import eventually


def drawing(observation, info, rng):
    """Random policy: end after a random number of actions, which differ from episode to episode."""
    return None if rng.random() < 0.25 else f"import random; print({int(rng.integers(100))}, random.random())"


def test_episodes_record_everything_environment_returned(collect_here):
    dataset = collect_here(["x = 6", "print(x * 7)", "1/0"], 3)
    assert len(dataset) == 3
    assert dataset.is_complete
    assert [episode.index for episode in dataset] == [0, 1, 2]
    assert len({episode.seed for episode in dataset}) == 3
    steps = dataset[1].steps
    assert [step.action for step in steps] == [None, "x = 6", "print(x * 7)", "1/0"]
    assert [step.observation["stdout"] for step in steps] == ["", "", "42\n", ""]
    assert steps[3].observation["exit_code"] == 1
    assert "ZeroDivisionError" in steps[3].observation["stderr"]
    assert steps[3].info == {"outcome": "error", "state_lost": False}
    assert [step.truncated for step in steps] == [False, False, False, True]
    assert not any(step.terminated for step in steps)
    dataset.verify()


@pytest.mark.parametrize("policy", [drawing, "random", [RANDOM, *UGLY]], ids=["function", "random", "script"])
def test_dataset_is_independent_of_session_count(collect_here, tmp_path, policy):
    one, many = (
        collect_here(policy, 12, path=tmp_path / str(sessions), sessions=sessions, max_steps=3, seed=5) for sessions in (1, 4)
    )
    assert (one.path / "episodes.log").read_bytes() == (many.path / "episodes.log").read_bytes()
    assert one.sha256 == many.sha256
    other = collect_here(policy, 12, path=tmp_path / "other", max_steps=3, seed=6)
    assert len(set(other.hashes.values()) & set(one.hashes.values())) == 0


def test_extending_dataset_keeps_existing_episodes(collect_here):
    first = collect_here(drawing, 5).hashes
    assert collect_here(drawing, 5).hashes == first
    more = collect_here(drawing, 9).hashes
    assert len(more) == 9
    assert first.items() <= more.items()
    with pytest.raises(DatasetError, match=r"a dataset of 9 episodes, got episodes=5"):
        collect_here(drawing, 5)


_COLLECT = """
import sys
from coding_gym.datasets import collect

def policy(observation, info, rng):
    return None if rng.random() < 0.2 else f"print({int(rng.integers(100))})"

if __name__ == "__main__":
    collect("CodingEnv-v0", policy, 60, seed=3, path=sys.argv[1], sessions=4, max_steps=4, progress=False,
            env_options={"provider": "local", "preload": (), "screen": None, "idle_timeout": 2})
"""


def test_kill_neither_loses_nor_repeats_episodes(collect_here, tmp_path):
    script = tmp_path / "collecting.py"
    script.write_text(_COLLECT)
    path = tmp_path / "killed"
    command = [sys.executable, str(script), str(path)]

    def recorded():
        return len(load(path)) if (path / "episodes.log").exists() else 0

    for at_least in (8, 30):
        process = subprocess.Popen(command)
        assert eventually(lambda process=process, least=at_least: process.poll() is not None or recorded() >= least)
        assert process.poll() is None
        before = load(path).hashes
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        after = load(path).hashes
        # Episodes that were readable before remain readable.
        assert before.items() <= after.items()
        assert len(after) < 60
        had = len(after)
    with (path / "episodes.log").open("ab") as file:
        file.write(b"torn")
    assert subprocess.run(command, timeout=60).returncode == 0
    killed = load(path)
    assert after.items() <= killed.hashes.items()
    names = {"__name__": "collecting"}
    exec(_COLLECT, names)
    whole = collect_here(names["policy"], 60, seed=3, max_steps=4)
    assert (path / "episodes.log").read_bytes() == (whole.path / "episodes.log").read_bytes()
    assert [run.had for run in killed.manifest.runs] == [0, killed.manifest.runs[1].had, had]


def test_concurrent_collection_into_same_directory_is_refused(collect_here, tmp_path):
    began, go_on = threading.Event(), threading.Event()

    def policy(observation, info, rng):
        began.set()
        go_on.wait(20)

    thread = threading.Thread(target=collect_here, args=(policy, 1))
    thread.start()
    began.wait(20)
    with pytest.raises(DatasetError, match="Another process collects into"):
        collect_here(policy, 1)
    go_on.set()
    thread.join()
    assert len(load(tmp_path / "dataset")) == 1


def test_raising_policy_loses_only_affected_episodes(collect_here):
    broken = True

    class Sometimes(Policy):
        def begin(self, start):
            def act(observation, info):
                if broken and start.index in (2, 5):
                    raise LookupError(f"no idea in {start.index}")
                return f"print({start.index})" if not observation["stdout"] else None

            return act

        def describe(self):
            return {"name": "sometimes"}

    with pytest.raises(PolicyError, match=r"raised in episode 2, and in 1 more: LookupError: no idea in 2") as raised:
        collect_here(Sometimes(), 8)
    assert {index: str(cause) for index, cause in raised.value.causes.items()} == {2: "no idea in 2", 5: "no idea in 5"}
    assert isinstance(raised.value.__cause__, LookupError)
    broken = False
    dataset = collect_here(Sometimes(), 8)
    assert [episode.steps[1].observation["stdout"] for episode in dataset] == [f"{index}\n" for index in range(8)]
    assert [run.had for run in dataset.manifest.runs] == [0, 6]


def test_collection_stops_after_repeated_policy_errors(collect_here):
    asked = []

    def policy(observation, info, rng):
        asked.append(1)
        raise RuntimeError

    with pytest.raises(PolicyError):
        collect_here(policy, 100, sessions=2, most_policy_errors=3)
    assert 3 <= len(asked) <= 4


def test_invalid_action_raises_policy_error(collect_here, tmp_path):
    with pytest.raises(PolicyError, match="Expected an action to be source text") as raised:
        collect_here([42], 1)
    assert isinstance(raised.value.__cause__, InvalidActionError)
    with pytest.raises(PolicyError, match="lone surrogates"):
        collect_here(["'\ud800'"], 1, path=tmp_path / "other")


def test_blocking_policies_run_concurrently(collect_here):
    together = threading.Barrier(4, timeout=20)

    def blocking(observation, info, rng):
        if not observation["stdout"]:
            together.wait()
            return "print(1)"
        return None

    assert len(collect_here(blocking, 4, sessions=4)) == 4


def test_coroutines_share_one_event_loop(collect_here):
    loops = set()

    async def policy(observation, info, rng):
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        return Decision("print(2)" if not observation["stdout"] else None, {"thought": "\N{GRINNING FACE}\ud800"})

    dataset = collect_here(policy, 6, sessions=3)
    assert len(loops) == 1
    assert dataset[0].steps[1].decision == {"thought": "\N{GRINNING FACE}\ufffd"}
    assert dataset[0].steps[1].observation["stdout"] == "2\n"


def test_dead_sandbox_is_replaced_and_episodes_rerun(collect_here, tmp_path):
    died = []

    class Murderous(gym.Wrapper):
        def step(self, action):
            if action == "3" and not died:
                died.append(1)
                kill_sandbox(self.unwrapped.sandbox)
            return super().step(action)

    options = {"provider": "local", "preload": (), "screen": None}
    dataset = collect(
        "CodingEnv-v0", ["1", "2", "3"], 6, seed=1, path=tmp_path / "a", sessions=2, wrappers=[Murderous], env_options=options
    )
    assert died
    assert dataset.faults >= len(died)
    assert {step.info["outcome"] for episode in dataset for step in episode.steps} == {"ok"}
    assert f"| sandbox failures, retried and not recorded | {dataset.faults} |" in (tmp_path / "a" / "README.md").read_text()
    faults = [json.loads(line) for line in (tmp_path / "a" / "faults.jsonl").read_text().splitlines()]
    assert {fault["episode"] for fault in faults} <= set(range(6))
    undisturbed = collect_here(["1", "2", "3"], 6)
    assert undisturbed.sha256 == dataset.sha256


class Failing(gym.Env):
    """Environment whose next ``failures`` steps report infrastructure errors."""

    action_space = gym.spaces.Discrete(4)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    failures = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        if Failing.failures:
            Failing.failures -= 1
            return np.zeros(2, np.float32), 0.0, False, True, {"outcome": "infrastructure"}
        return self.np_random.normal(size=2).astype(np.float32), 0.5, bool(action == 3), False, {"solved": action == 3}


def test_episode_with_repeated_sandbox_failures_raises(tmp_path):
    Failing.failures = 3
    with pytest.raises(DatasetError, match=r"The sandbox of episode 0 failed 3 times.*repeat the call"):
        collect(Failing, "random", 1, seed=1, path=tmp_path, retries=2)
    Failing.failures = 2
    dataset = collect(Failing, "random", 1, seed=1, path=tmp_path, retries=2)
    assert len(dataset) == 1
    assert dataset.faults == 5


def test_any_gymnasium_environment_can_be_collected(tmp_path):
    dataset = collect(Failing, "random", 40, seed=1, path=tmp_path, max_steps=5)
    episode = dataset[3]
    assert episode.steps[0].observation.dtype == np.float32
    assert all(0 <= action <= 3 for action in episode.actions)
    assert {len(episode.steps) for episode in dataset} == {2, 3, 4, 5, 6}
    assert all(episode.steps[-1].terminated != episode.steps[-1].truncated for episode in dataset)
    assert {episode.solved for episode in dataset} == {True, False}


@pytest.mark.screen
def test_input_events_are_recorded_in_replayable_form(collect_here):
    program = {"code": WINDOW, "events": []}
    click = {"code": "", "events": [inputs.click(10, 10), inputs.text("h\N{LATIN SMALL LETTER E WITH ACUTE}")]}
    dataset = collect_here([program, click], 1, env="CodingEnvGUI-v0", screen=(80, 60))
    steps = dataset[0].steps
    assert steps[1].info["outcome"] == "running"
    assert steps[1].observation["screenshot"][20, 30].tolist() == [192, 32, 32]
    assert steps[2].action["events"] == [{"type": "click", "x": 10, "y": 10}, {"type": "text", "text": "h\xe9"}]


def test_tasks_alternate_and_reset_files_exist(collect_here):
    def policy(observation, info, rng):
        return None if observation["stdout"] else "print(open('a.txt').read())"

    class Task:
        id = "t/2"

    dataset = collect_here(policy, 3, tasks=["t/1", Task()], reset_options={"files": {"a.txt": b"hi"}})
    assert [episode.task_id for episode in dataset] == ["t/1", "t/2", "t/1"]
    assert dataset[0].steps[1].observation["stdout"] == "hi\n"
    assert dataset[0].options["files"] == {"a.txt": b"hi"}


def test_tasks_that_the_environment_draws_are_named(collect_here):
    seen = []

    class Watching(Policy):
        def begin(self, start):
            seen.append(start.task_id)
            return lambda observation, info: None

        def describe(self):
            return {"name": "watching"}

    dataset = collect_here(Watching(), 4, env="CodingTask-v0", env_options={"suite": "basics"})
    drawn = [episode.steps[0].info["task_id"] for episode in dataset]
    assert len(set(drawn)) > 1
    assert [episode.task_id for episode in dataset] == drawn == [episode.options["task_id"] for episode in dataset]
    assert sorted(seen) == sorted(drawn)


def test_full_disk_is_one_line_and_collecting_continues_after_it(collect_here, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        filler = place / "filler"
        filler.write_bytes(bytes(40 << 10))
        policy = ["import os; print(os.urandom(3000).hex())"]
        with pytest.raises(DatasetError, match=r"^Cannot write .*small.*: No space left on device\. Complete"):
            collect_here(policy, 8, path=place / "data")
        filler.unlink()
        assert len(collect_here(policy, 8, path=place / "data")) == 8
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.parametrize("has_pool", [True, False])
def test_task_environments_never_wait_for_slots(collect_here, tmp_path, has_pool):
    # Each occupies two of the four slots of the shared pool.
    options = {"suite": "basics"} if has_pool else {"suite": "basics", "screen": None, "provider": "local", "preload": ()}
    run = collect_here if has_pool else partial(collect, path=tmp_path, seed=1)
    dataset = run(
        policy=["def add_up(): return 0"], episodes=4, env="CodingTask-v0", env_options=options, tasks=["basics/add_up"]
    )
    assert [episode.steps[1].info["tests_total"] for episode in dataset] == [6] * 4
    assert dataset.faults == 0


def test_scripted_policy_selects_by_episode_or_task(collect_here, tmp_path):
    dataset = collect_here(ScriptedPolicy(per_episode=[["1"], ["2", "3"]]), 3)
    assert [episode.actions for episode in dataset] == [["1"], ["2", "3"], ["1"]]
    script = ScriptedPolicy(per_task={"a": ["4"], "b": []})
    dataset = collect_here(script, 2, tasks=["a", "b"], path=tmp_path / "b")
    assert [episode.actions for episode in dataset] == [["4"], []]
    with pytest.raises(PolicyError, match="There is no list of actions for task 'c'"):
        collect_here(script, 1, tasks=["c"], path=tmp_path / "c")


def test_wrappers_are_named_in_manifest(collect_here):
    dataset = collect_here(["1"], 1, wrappers=[gym.wrappers.RecordEpisodeStatistics])
    assert dataset.manifest.arguments.wrappers == ["gymnasium.wrappers.common.RecordEpisodeStatistics"]


def test_ctrl_c_stops_collection_and_keeps_episodes(tmp_path):
    script = tmp_path / "collecting.py"
    # A policy that never returns must not keep the process alive.
    script.write_text(_COLLECT.replace("rng.random() < 0.2", "rng.random() < 0.05 and __import__('time').sleep(1000)"))
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path / "a")], stderr=subprocess.PIPE)
    while not (tmp_path / "a" / "episodes.log").exists() or len(load(tmp_path / "a")) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGINT
    assert said.decode().rstrip().endswith("KeyboardInterrupt")
    assert len(load(tmp_path / "a")) >= 3


def test_directory_without_dataset_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="There is no dataset in"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(DatasetError, match="not a manifest of a dataset"):
        load(tmp_path)


def test_verify_detects_changed_episode(collect_here):
    dataset = collect_here(["1"], 1)
    first = dataset._entries[0]
    dataset._entries[0] = first._replace(sha256=bytes(32))
    with pytest.raises(DatasetError, match=r"Episode 0 of .* differs from what was recorded"):
        dataset.verify()


def test_function_policy_is_recorded_by_name(collect_here):
    dataset = collect_here(FunctionPolicy(lambda observation, info, rng: None, name="idle"), 2)
    assert dataset.manifest.arguments.policy == {"name": "idle"}
    assert [len(episode.steps) for episode in dataset] == [1, 1]
