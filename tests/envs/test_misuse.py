"""Misuse of environments and their kin is refused with a remedy, most of it without a sandbox."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import gymnasium as gym
import pytest

from coding_gym import AsyncCodingEnv, CodeInterpreter, CodingEnv, SandboxConfig, SandboxPool
from coding_gym.envs.task_env import CodingTaskEnv
from coding_gym.errors import ConcurrentUseError, ConfigurationError, TransportError
from coding_gym.tasks import Asserts, Grader, Task, TaskSuite, load_suite
from coding_gym.wrappers.terms import as_term

BASICS = {"suite": "basics"}


@pytest.mark.parametrize(
    ("make", "wrong", "meant"),
    [
        (CodingEnv, "step_timout", "step_timeout"),
        (CodingEnv, "screne", "screen"),
        (CodingEnv, "memory", "mem"),
        (CodingEnv, "Provider", "provider"),
        (CodingEnv, "render-mode", "render_mode"),
        (lambda **o: gym.make("CodingEnv-v0", **o), "step_timout", "step_timeout"),
        (lambda **o: gym.make("CodingEnvGUI-v0", **o), "setle", "settle"),
        (lambda **o: gym.make("CodingShellEnv-v0", **o), "backends", "backend"),
        (lambda **o: gym.make("CodingTask-v0", **BASICS, **o), "max_turn", "max_turns"),
        (lambda **o: gym.make_vec("CodingEnv-v0", **o), "session_per_sandbox", "sessions_per_sandbox"),
        (lambda **o: gym.make_vec("CodingEnvGUI-v0", **o), "setle", "settle"),
        (lambda **o: gym.make_vec("CodingShellEnv-v0", **o), "autoreset", "autoreset_mode"),
        (lambda **o: gym.make_vec("CodingTask-v0", **BASICS, **o), "max_turn", "max_turns"),
        (AsyncCodingEnv, "on_timout", "on_timeout"),
        (CodeInterpreter, "mem_limit", "mem"),
        (SandboxPool, "max_episode", "max_episodes"),
        (SandboxPool, "pids", "pids_limit"),
        (Grader, "worker", "workers"),
        (SandboxConfig, "session", "sessions"),
        (lambda **o: CodingEnv(config=o), "cpus", "cpu"),
        (lambda **o: load_suite("basics", **o), "gradng", "grading"),
        (lambda **o: load_suite("humaneval", **o), "limit", "limits"),
    ],
)
def test_misspelled_option_is_refused_with_suggestion(make, wrong, meant):
    with pytest.raises(ConfigurationError, match=rf"'{wrong}' \(did you mean '{meant}'\?\)\. Valid options: .*\b{meant}\b"):
        make(**{wrong: 1})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: CodingEnv(provider="dcoker"), "did you mean 'docker'"),
        (lambda: CodingEnv(capture="allways"), "did you mean 'always'"),
        (lambda: CodingEnv(backend="pyhton"), "did you mean 'python'"),
        (lambda: SandboxPool(backend="pyhton"), "did you mean 'python'"),
        (lambda: CodingEnv(python="/usr/bin/python3", backend="python"), "Expected python= or backend="),
        (lambda: CodingEnv(python="python3"), "python:/PATH"),
        (lambda: CodingEnv(python=3), "Expected python= to be the path of an interpreter, got 3"),
        (lambda: gym.make_vec("CodingEnv-v0", num_envs=1, python="python3"), "python:/PATH"),
        (lambda: CodingEnv(isolation="required"), "did you mean 'require'"),
        (lambda: AsyncCodingEnv(on_timeout="rise"), "did you mean 'raise'"),
        (lambda: load_suite("basic"), "did you mean 'basics'"),
        (lambda: load_suite("human-eval"), "did you mean 'humaneval'"),
        (lambda: load_suite("no-such.jsonl"), "There is no file no-such.jsonl in /"),
        (lambda: load_suite("/no/such/directory"), "There is no file /no/such/directory$"),
        (lambda: load_suite("mbpp:no-such.jsonl"), "There is no file no-such.jsonl"),
        (lambda: CodeInterpreter(token="secret"), "token= requires base_url="),
        (lambda: CodeInterpreter("http://127.0.0.1:1", mem="1g"), "started already: pass mem to it instead"),
        (lambda: gym.make_vec("CodingEnv-v0", num_envs=1, autoreset_mode="samestep"), "did you mean 'SameStep'"),
        (lambda: Task(id="t", prompt="", tests=Asserts(cases="assert 1")), "cases are a tuple"),
        (lambda: load_suite(5), "Expected the name or the path of a suite, got 5"),
        (lambda: gym.make("CodingTask-v0"), "Expected suite=.*'basics'"),
        (lambda: gym.make_vec("CodingTask-v0"), "Expected suite=.*'basics'"),
        (lambda: gym.make("CodingTask-v0", suite="basic"), "did you mean 'basics'"),
        (lambda: as_term("lenght"), "did you mean 'length'"),
        (lambda: Grader(provider="local").grade("basics/bill", "1"), "Expected a Task.*got 'basics/bill'"),
        (lambda: list(Grader(provider="local").grade_many(["1"])), "Expected pairs of a task and its submission, got '1'"),
    ],
)
def test_wrong_value_is_refused_with_a_remedy(call, said):
    with pytest.raises(ConfigurationError, match=said):
        call()


def test_unknown_task_is_refused_with_suggestion():
    suite = load_suite("basics")
    with pytest.raises(KeyError, match="did you mean 'basics/bill'"):
        suite["basics/bil"]
    with (
        closing(CodingTaskEnv(suite=suite)) as env,
        pytest.raises(ConfigurationError, match="did you mean 'basics/bill'"),
    ):
        env.reset(options={"task_id": "basics/bil"})
    assert isinstance(suite, TaskSuite)


def test_refused_task_leaves_the_generator_unchanged(pool):
    with gym.make("CodingTask-v0", **BASICS, pool=pool, screen=None) as env:
        env.reset(seed=1)
        before = env.unwrapped.np_random.bit_generator.state
        for options in ({"task": "basics/bill"}, {"files": {"../x": ""}}, {"task_id": 5}):
            with pytest.raises(ConfigurationError):
                env.reset(options=options)
        assert env.unwrapped.np_random.bit_generator.state == before
        assert env.step("print(1)")[0]["stdout"] == "1\n"


def test_vector_reset_option_is_refused_with_suggestion():
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, provider="local")) as envs:
        with pytest.raises(ConfigurationError, match=r"'reset_masks'.*did you mean 'reset_mask'"):
            envs.reset(options={"reset_masks": [True]})
        with pytest.raises(ConfigurationError, match=r"Expected options= to be a dict or None, got \[1\]"):
            envs.reset(options=[1])


def test_wrong_arguments_of_a_session_are_refused(pool):
    with gym.make("CodingEnv-v0", pool=pool, screen=None).unwrapped as env:
        env.reset(seed=1)
        calls = (
            (lambda: env.exec("true", timout=3), "did you mean 'timeout'"),
            (lambda: env.processes.start("true", terminl=(80, 24)), "did you mean 'terminal'"),
            (lambda: env.files.write("a", 5), "content of 'a' to be str, bytes"),
            (lambda: env.files.write(5, "a"), "path of a file in the workspace as a str, got 5"),
            (lambda: env.fork(2, seeds=5), "Expected 2 seeds, one for each fork, got 5"),
            (lambda: env.restore_state(5), "Expected a Snapshot"),
        )
        for call, said in calls:
            with pytest.raises(ConfigurationError, match=said):
                call()
        assert env.step("print(1)")[0]["stdout"] == "1\n"


def test_closed_interpreter_says_so():
    interpreter = CodeInterpreter(provider="local", preload=())
    interpreter.close()
    with pytest.raises(TransportError, match="Make a new one"):
        interpreter.execute("1")


# Closed environments


@pytest.mark.parametrize(
    ("env_id", "action"),
    [
        ("CodingEnv-v0", "1"),
        ("CodingEnvGUI-v0", {"code": "1", "events": ()}),
        ("CodingShellEnv-v0", "true"),
        ("CodingTask-v0", "1"),
    ],
)
def test_closed_environment_refuses_every_call(pool, env_id, action):
    options = BASICS if env_id == "CodingTask-v0" else {}
    env = gym.make(env_id, pool=pool, render_mode="ansi", **options).unwrapped
    if env_id != "CodingEnvGUI-v0":
        env.reset(seed=1)
        snapshot = env.clone_state(replay=True)
        calls = [lambda: env.restore_state(snapshot), lambda: env.restore_state(snapshot, replay=True)]
    else:
        calls = []
    env.close()
    calls += [env.reset, lambda: env.step(action), env.render, env.clone_state, env.windows, env.capture, lambda: env.fork(2)]
    calls += [lambda: env.files, lambda: env.processes, lambda: env.exec("true")]
    for call in calls:
        with pytest.raises(gym.error.ClosedEnvironmentError, match="Make a new one"):
            call()
    env.close()


# Threads


def _call_meanwhile(call, others):
    """Return the result of ``call`` in another thread, after checking that ``others`` are refused meanwhile."""
    results = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    time.sleep(0.3)
    for other in others:
        with pytest.raises(ConcurrentUseError, match="one thread at a time"):
            other()
    thread.join()
    return results[0]


def test_second_thread_leaves_the_first_unharmed(pool):
    with gym.make("CodingEnv-v0", pool=pool, render_mode="ansi").unwrapped as env:
        env.reset(seed=1)
        record = env.clone_state(replay=True)
        others = [lambda: env.step("print(2)"), env.reset, env.clone_state, env.windows, env.capture]
        others += [lambda: env.fork(1), lambda: env.restore_state(record)]
        observation, *_ = _call_meanwhile(lambda: env.step("import time; time.sleep(1); print(1)"), others)
        assert observation["stdout"] == "1\n"
        assert env.step("print(3)")[0]["stdout"] == "3\n"
        assert "print(2)" not in env.render()


def test_second_thread_is_refused_in_a_vector(pool):
    with closing(gym.make_vec("CodingEnv-v0", num_envs=2, pool=pool, screen=None)) as envs:
        envs.reset(seed=1)
        others = [lambda: envs.step(["2", "2"]), envs.reset, envs.clone_states, lambda: envs.restore_states([None, None])]
        observations, *_ = _call_meanwhile(lambda: envs.step(["import time; time.sleep(1); print(1)"] * 2), others)
        assert observations["stdout"] == ("1\n", "1\n")
        assert envs.step(["3", "3"])[0]["stdout"] == ("3\n", "3\n")
