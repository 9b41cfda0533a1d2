from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import gymnasium as gym
import msgspec
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from coding_gym.envs.task_env import CodingTaskEnv, CodingTaskVectorEnv
from coding_gym.errors import ConfigurationError
from coding_gym.sandbox.pool import SandboxPool
from coding_gym.tasks import (
    Asserts,
    Checker,
    ColorShare,
    GradingLimits,
    ProgramCase,
    Programs,
    ScreenStep,
    ScreenTests,
    Task,
    TaskSuite,
    VerdictOutcome,
)
from coding_gym.wrappers import RewardSum
from coding_gym_server.languages import find_language
from tests.support.sandbox_faults import kill_sandbox

FAST = {"provider": "local", "preload": (), "screen": None, "step_timeout": 60}

DOUBLE = Task(
    id="double",
    prompt="Write double(n).",
    entry_point="double",
    tests=Asserts(
        cases=("assert double(1) == 2", "assert double(-3) == -6", "assert double('a') == 'aa'", "assert double(0) == 0")
    ),
    reference="def double(n):\n    return n * 2",
)
TOTAL = Task(
    id="total",
    prompt="Print the sum of the numbers in numbers.txt, times what is read.",
    files={"numbers.txt": "1\n2\n"},
    tests=Programs(cases=(ProgramCase(stdin="2\n", stdout="6\n"), ProgramCase(stdin="0\n", stdout="0\n"))),
    reference="print(sum(map(int, open('numbers.txt'))) * int(input()))",
)
COUNTER = Task(
    id="counter",
    prompt="Write a class Counter whose next() counts from 1.",
    entry_point="Counter",
    tests=Asserts(cases=("assert Counter().next() == 1", "c = Counter()\nc.next()\nassert c.next() == 2")),
    reference="class Counter:\n    n = 0\n    def next(self):\n        self.n += 1\n        return self.n",
)
FAITHFUL = Task(
    id="faithful",
    prompt="Write a function half(n).",
    entry_point="half",
    tests=Asserts(cases=("assert half(4) == 2", "assert half(10) == 5", "assert half(8) == 4")),
    reference="def half(n): return n // 2",
    grading="faithful",
)
SUITE = TaskSuite("few", [DOUBLE, TOTAL, COUNTER])


@pytest.fixture(scope="module")
def shared():
    with closing(gym.make("CodingTask-v0", suite=SUITE, max_turns=6, render_mode="ansi", **FAST)) as env:
        yield env


@pytest.fixture
def env(shared):
    shared.reset(seed=1, options={"task_id": "double"})
    return shared


def graded(step):
    _, reward, terminated, truncated, info = step
    return info["graded"], info["tests_passed"], info["tests_total"], reward, terminated, truncated


# Graded actions and their rewards


def test_reset_shows_the_task(env):
    observation, info = env.reset(options={"task_id": "double"})
    assert observation["prompt"] == DOUBLE.prompt
    assert observation in env.observation_space
    assert info == {
        "outcome": "ok",
        "state_lost": False,
        "task_id": "double",
        "graded": False,
        "solved": False,
        "tests_passed": 0,
        "tests_total": 0,
    }


def test_reward_is_improvement_over_best_score(env):
    steps = [
        env.step("double = lambda n: 0"),
        env.step("print(double(4))"),
        env.step("def double(n):\n    return n + n if isinstance(n, int) else n"),
        env.step("def double(n):\n    raise ValueError"),
        env.step("def double(n):\n    return n * 2"),
    ]
    assert [graded(step) for step in steps] == [
        (True, 1, 4, 0.25, False, False),
        (False, 0, 0, 0.0, False, False),
        (True, 3, 4, 0.5, False, False),
        (True, 0, 4, 0.0, False, False),
        (True, 4, 4, 0.25, True, False),
    ]
    assert steps[-1][4]["solved"]
    assert all(set(step[4]) == set(env.reset()[1]) for step in steps)


@pytest.mark.parametrize(
    "action",
    [
        "",
        "double",
        "'def double(n): return n * 2'",
        "def double(n) return n * 2",
        "def other():\n    def double(n):\n        return n * 2",
        "class A:\n    def double(n):\n        return n * 2",
        "double(1)",
        "\0double = 1",
        "(" * 300 + "double" + ")" * 300,
    ],
)
def test_actions_without_entry_point_are_not_graded(env, action):
    assert graded(env.step(action)) == (False, 0, 0, 0.0, False, False)


@pytest.mark.parametrize(
    "action",
    [
        "try:\n    double\nexcept NameError:\n    def double(n):\n        return n * 2",
        "double = lambda n: n * 2",
        "async_ = 1\ndouble: object = lambda n: n * 2",
        "from operator import add\ndouble = lambda n: add(n, n)",
        "from __future__ import annotations\ndef double(n: Unknown) -> Unknown:\n    return n * 2",
    ],
)
def test_every_kind_of_entry_point_definition_is_graded(env, action):
    assert graded(env.step(action)) == (True, 4, 4, 1.0, True, False)


def test_step_that_nobody_has_finished_leaves_no_result(env):
    inner = env.unwrapped
    inner.begin_step("print('left')")
    inner.settle_step()
    inner.begin_step("print('next')")
    assert inner.finish_step()[0]["stdout"] == "next\n"


def test_answer_includes_earlier_definitions(env):
    env.step("import operator\nFACTOR = 1\nunused = open('nowhere', 'w')")
    env.step("FACTOR += 1")
    env.step("def scale(n):\n    return operator.mul(n, factor())")
    env.step("def factor():\n    return FACTOR")
    assert graded(env.step("def double(n):\n    return scale(n)")) == (True, 4, 4, 1.0, True, False)


def test_answer_excludes_failed_actions(env):
    env.step("def helper(n):\n    return n * 2\n1 / 0")
    observation, *_, info = env.step("print(helper(2))\ndef double(n):\n    return helper(n)")
    assert (observation["stdout"], info["graded"], info["tests_passed"]) == ("4\n", True, 0)


def test_definitions_end_with_interpreter_or_episode(env):
    env.step("def helper(n):\n    return n * 2")
    assert env.step("import os\nos._exit(3)")[4]["state_lost"]
    assert graded(env.step("def double(n):\n    return helper(n)"))[:3] == (True, 0, 4)
    env.step("def helper(n):\n    return n * 2")
    env.reset(options={"task_id": "double"})
    assert graded(env.step("def double(n):\n    return helper(n)"))[:3] == (True, 0, 4)


def test_programs_are_graded_each_step_with_files(env):
    env.reset(options={"task_id": "total"})
    steps = [
        env.step("print(open('numbers.txt').read())"),
        env.step("def total():\n    return sum(map(int, open('numbers.txt')))"),
        env.step("print(total() * int(input()))"),
    ]
    assert steps[0][0]["stdout"] == "1\n2\n\n"
    assert [graded(step) for step in steps] == [
        (True, 0, 2, 0.0, False, False),
        (True, 0, 2, 0.0, False, False),
        (True, 2, 2, 1.0, True, False),
    ]


SAMPLED = Task(
    id="sampled",
    prompt="Print the sum of two numbers.",
    sample_input="3\n4\n",
    tests=Programs(cases=(ProgramCase(stdin="1\n2\n", stdout="3\n"), ProgramCase(stdin="0\n-1\n", stdout="-1\n"))),
    reference="print(int(input()) + int(input()))",
)
UNSAMPLED = replace(SAMPLED, id="unsampled", sample_input=None)
ENDLESS = "import sys\nnumbers = sys.stdin.read()\nwhile '-' in numbers: pass\nprint(sum(map(int, numbers.split())))"


def test_sample_runs_in_the_language_of_the_task():
    tests = Programs(
        cases=SAMPLED.tests.cases,
        language="bash",
        input_file="in",
        output_file="out",
        checker=Checker(code="raise SystemExit(1)"),
    )
    suite = TaskSuite("programs", [replace(SAMPLED, tests=tests, reference=None)])
    with closing(gym.make("CodingTask-v0", suite=suite, **FAST)) as env:
        env.reset()
        observation = env.step('{ read a; read b; } <in; echo "$((a + b))" >out')[0]
    assert (observation["stdout"], observation["exit_code"]) == ("7\n", 0)


@pytest.fixture(scope="module")
def programs():
    limits = GradingLimits(cpu_timeout=0.5)
    suite = TaskSuite("programs", [replace(task, limits=limits) for task in (SAMPLED, UNSAMPLED)])
    # Of CPU time, so that a busy machine makes no difference.
    options = {"max_turns": 100, "render_mode": "ansi", "cpu_timeout": 2, **FAST}
    with closing(gym.make("CodingTask-v0", suite=suite, **options)) as env:
        yield env


@pytest.mark.parametrize(
    ("action", "stdout", "error", "exit_code", "outcome", "solved"),
    [
        (SAMPLED.reference, "7\n", "", 0, "ok", True),
        ("import sys\nprint(sum(map(int, sys.stdin)))", "7\n", "", 0, "ok", True),
        ("import sys\nprint(sum(map(int, sys.stdin)))\nsys.stderr.write('note')", "7\n", "note", 0, "ok", True),
        ("print(input())", "3\n", "", 0, "ok", False),
        ("pass", "", "", 0, "ok", False),
        ("print(int(input()) + int(input()) + int(input()))", "", "EOFError: EOF when reading a line", 1, "error", False),
        ("print(1", "", "SyntaxError: '(' was never closed", 1, "error", False),
        ("import os, sys\nif sys.stdin.read(1): os._exit(3)", "", "", 1, "error", False),
        ("import sys\nwhile sys.stdin: pass", "", "", 124, "timeout", False),
        (
            "import os, signal\nprint(input(), flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)",
            "3\n",
            "",
            137,
            "killed",
            False,
        ),
        (ENDLESS, "7\n", "timeout: 1 of 2 tests passed", 124, "timeout", False),
    ],
)
def test_programs_run_on_the_sample(programs, action, stdout, error, exit_code, outcome, solved):
    programs.reset(options={"task_id": "sampled"})
    observation, _, terminated, _, info = programs.step(action)
    assert observation in programs.observation_space
    assert (observation["stdout"], observation["exit_code"], info["outcome"]) == (stdout, exit_code, outcome)
    assert observation["stderr"].rstrip().rpartition("\n")[2] == error
    assert (info["graded"], info["solved"], terminated) == (True, solved, solved)
    assert programs.unwrapped.last_verdict.total == 2
    assert stdout.strip() in programs.render()


@pytest.mark.parametrize(
    ("action", "stdout", "stderr", "exit_code", "outcome", "solved"),
    [
        (SAMPLED.reference, "", "", 0, "ok", True),
        ("print(input())", "", "failed: 0 of 2 tests passed\n", 1, "error", False),
        ("print('here')", "here\n", "failed: 0 of 2 tests passed\n", 1, "error", False),
        ("import sys\nprint(abs(sum(map(int, sys.stdin))))", "0\n", "failed: 1 of 2 tests passed\n", 1, "error", False),
        ("import sys\nfor line in sys.stdin: 1 / 0", "", "error: 0 of 2 tests passed\n", 1, "error", False),
        (ENDLESS, "0\n", "timeout: 1 of 2 tests passed\n", 124, "timeout", False),
    ],
)
def test_the_verdict_is_shown_of_programs_without_sample(programs, action, stdout, stderr, exit_code, outcome, solved):
    programs.reset(options={"task_id": "unsampled"})
    observation, _, terminated, _, info = programs.step(action)
    assert (observation["stdout"], observation["stderr"]) == (stdout, stderr)
    assert (observation["exit_code"], info["outcome"], info["solved"], terminated) == (exit_code, outcome, solved, solved)


SUM_IN_CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b << std::endl; return 0; }"


@pytest.mark.skipif(bool(find_language("cpp").missing()), reason="needs a C++ compiler")
def test_programs_in_other_languages():
    tasks = [
        replace(task, tests=msgspec.structs.replace(task.tests, language="cpp"), reference=SUM_IN_CPP)
        for task in (SAMPLED, UNSAMPLED)
    ]
    with closing(gym.make("CodingTask-v0", suite=TaskSuite("cpp", tasks), render_mode="ansi", **FAST)) as env:
        env.reset(options={"task_id": "sampled"})
        for action, stdout, exit_code, outcome in (
            ("int main() { return wrong; }", "", 1, "error"),
            (SUM_IN_CPP.replace("+", "-"), "-1\n", 0, "ok"),
            (SUM_IN_CPP.replace("return 0", "return 4"), "7\n", 1, "error"),
            (SUM_IN_CPP, "7\n", 0, "ok"),
        ):
            observation, _, terminated, _, info = env.step(action)
            assert observation in env.observation_space
            assert (observation["stdout"], observation["exit_code"], info["outcome"]) == (stdout, exit_code, outcome)
            assert ("was not declared" in observation["stderr"]) == ("wrong" in action)
            assert (info["solved"], terminated) == (action == SUM_IN_CPP,) * 2
        env.reset(options={"task_id": "unsampled"})
        observation, *_, info = env.step(SUM_IN_CPP.replace("+", "-"))
        assert (observation["stdout"], observation["stderr"]) == ("", "failed: 0 of 2 tests passed\n")
        assert env.step(SUM_IN_CPP)[-1]["solved"]


def test_sample_is_shown_in_the_prompt(programs):
    shown = programs.reset(options={"task_id": "sampled"})[0]["prompt"]
    assert shown == "Print the sum of two numbers.\n\nSample input:\n\n3\n4\n"
    assert programs.reset(options={"task_id": "unsampled"})[0]["prompt"] == UNSAMPLED.prompt
    indented = replace(SAMPLED, prompt="Print the sum.\n\nInput\n\n    3\n    4\n")
    with closing(gym.make("CodingTask-v0", suite=TaskSuite("one", [indented]), **FAST)) as env:
        assert env.reset()[0]["prompt"] == indented.prompt


def test_long_output_of_a_program_is_cut(programs):
    programs.reset(options={"task_id": "sampled"})
    observation = programs.step("import sys\nfor stream in (sys.stdout, sys.stderr): stream.write('x' * 100_000)")[0]
    assert len(observation["stdout"]) == len(observation["stderr"])
    assert 16_000 < len(observation["stdout"]) <= 16_384
    assert observation in programs.observation_space


def test_reward_terms_do_not_pay_for_programs_without_sample_that_fail(programs):
    env = RewardSum(programs, {"exit_code": 1.0})
    for action, reward in (("pass", 0.0), ("print(input())", 0.0), (SAMPLED.reference, 1.0)):
        env.reset(options={"task_id": "unsampled"})
        assert env.step(action)[1] == reward


def test_reset_files_are_not_used_for_grading(env):
    env.reset(options={"task_id": "total", "files": {"numbers.txt": "7\n"}})
    observation, *_, info = env.step("print(sum(map(int, open('numbers.txt'))) * int(input() or 2))")
    assert info["solved"], observation
    with pytest.raises(ConfigurationError, match="files"):
        env.reset(options={"files": 3})


def test_agent_cannot_see_tests(env):
    env.step("def double(n):\n    return n * 2 + 1")
    look = """
import gc, os, sys
found = [path for path, _, names in os.walk('.') for name in names]
objects = [text for text in gc.get_objects() if type(text) is str and 'double(-' + '3)' in text]
environment = [text for text in os.environ.values() if 'double(' in text]
print(found, objects, environment)
"""
    assert env.step(look)[0]["stdout"] == "[] [] []\n"


def test_turn_limit_truncates_after_grading_last_answer(env):
    assert [env.step("1")[3] for _ in range(6)] == [False] * 5 + [True]
    env.reset(options={"task_id": "double"})
    for _ in range(5):
        env.step("1")
    assert graded(env.step(DOUBLE.reference)) == (True, 4, 4, 1.0, True, False)


def test_faithful_mode_tells_agents_no_partial_results():
    with closing(gym.make("CodingTask-v0", suite=TaskSuite("one", [FAITHFUL]), **FAST)) as env:
        env.reset(seed=1)
        assert graded(env.step("def half(n): return 2")) == (True, 0, 3, 0.0, False, False)
        assert env.unwrapped.last_verdict.passed == 1
        liar = "class Equal:\n    def __eq__(self, other): return True\ndef half(n): return Equal()"
        assert graded(env.step(liar)) == (True, 0, 3, 0.0, False, False)
        assert env.unwrapped.last_verdict.outcome is VerdictOutcome.FAILED
        assert graded(env.step("def half(n): return int(n / 2)")) == (True, 3, 3, 1.0, True, False)
        assert not env.unwrapped.last_verdict.tamper_resistant


def test_last_verdict_belongs_to_last_step(env):
    assert env.unwrapped.last_verdict is None
    env.step("def double(n):\n    return 0")
    assert env.unwrapped.last_verdict.passed == 1
    env.step("1")
    assert env.unwrapped.last_verdict is None
    assert env.unwrapped.task is DOUBLE


# Task selection


def test_seeds_choose_tasks(env):
    def tasks():
        return [env.reset(seed=7)[1]["task_id"], *(env.reset()[1]["task_id"] for _ in range(8))]

    drawn = tasks()
    assert drawn == tasks()
    assert set(drawn) == {"double", "total", "counter"}


def test_unknown_task_is_refused_and_episode_continues(env):
    with pytest.raises(ConfigurationError, match="such as double, total, counter; got 'halve'"):
        env.reset(options={"task_id": "halve"})
    assert graded(env.step(DOUBLE.reference))[:2] == (True, 4)


# Gymnasium's checkers


def test_gymnasium_checker_accepts_environment(env):
    check_env(env.unwrapped, skip_render_check=True)


def test_spec_recreates_environment():
    with closing(gym.make("CodingTask-v0", suite="basics", max_turns=3, **FAST)) as env:
        spec = EnvSpec.from_json(env.spec.to_json())
        assert spec.kwargs["suite"] == "basics"
        with closing(gym.make(spec)) as again:
            assert again.unwrapped.suite == env.unwrapped.suite
            assert again.observation_space == env.observation_space


def test_render_returns_transcript(env):
    env.step("1 + 1")
    assert ">>> 1 + 1\n2" in env.render()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"suite": "no-such-suite"}, "no-such-suite"),
        ({"suite": TaskSuite("none", [])}, "at least one task"),
        ({"max_turns": 0}, "max_turns"),
        ({"screen": "big"}, "screen"),
    ],
)
@pytest.mark.parametrize("make", [CodingTaskEnv, CodingTaskVectorEnv])
def test_invalid_settings_are_refused(make, options, named):
    with pytest.raises(ConfigurationError, match=named):
        make(**{"suite": SUITE, **options})


# Infrastructure errors


def test_dead_sandbox_truncates_without_score():
    with closing(gym.make("CodingTask-v0", suite=SUITE, **FAST)) as env:
        env.reset(options={"task_id": "double"})
        env.step("1")
        kill_sandbox(env.unwrapped.sandbox)
        _, reward, terminated, truncated, info = env.step(DOUBLE.reference)
        assert (reward, terminated, truncated) == (0.0, False, True)
        assert (info["outcome"], info["graded"], info["solved"]) == ("infrastructure", False, False)
        env.reset(options={"task_id": "double"})
        assert graded(env.step(DOUBLE.reference)) == (True, 4, 4, 1.0, True, False)


def test_failed_grading_truncates_without_score(env):
    env.step("1")
    env.step("def double(n):\n    return 0")
    # Break grading only: the retry finds no sandbox in the slot.
    grading = env.unwrapped._grading
    grading._connection._drop_session()
    slot, grading._connection._slot = grading._connection._slot, ClosedSlot()
    _, reward, terminated, truncated, info = env.step(DOUBLE.reference)
    grading._connection._slot = slot
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (info["outcome"], info["graded"], info["state_lost"]) == ("infrastructure", False, False)
    env.reset(options={"task_id": "double"})
    assert graded(env.step(DOUBLE.reference))[:2] == (True, 4)


def test_pool_provides_second_slot_for_grading(pool):
    with closing(CodingTaskEnv(suite=SUITE, pool=pool, screen=None)) as env:
        for _ in range(2):
            env.reset(options={"task_id": "double"})
            assert graded(env.step(DOUBLE.reference))[:2] == (True, 4)
    with SandboxPool(1, provider="local") as small, pytest.raises(ConfigurationError, match="2 slots"):
        CodingTaskEnv(suite=SUITE, pool=small)


# Windows


@pytest.mark.usefixtures("xvfb")
def test_screen_tasks_are_graded_on_separate_screen():
    red = ScreenTests(steps=(ScreenStep(expect=(ColorShare(color="#ff0000", at_least=0.9),)),), screen=(200, 100))
    suite = TaskSuite("windows", [Task(id="red", prompt="Show a red window that fills the screen.", tests=red)])
    window = "import tkinter\nroot = tkinter.Tk()\nroot.geometry('200x100+0+0')\nroot.configure(bg={!r})\nroot.mainloop()"
    with closing(gym.make("CodingTask-v0", suite=suite, **{**FAST, "screen": (200, 100)})) as env:
        env.reset(seed=1)
        assert graded(env.step(window.format("blue"))) == (True, 0, 1, 0.0, False, False)
        assert graded(env.step(window.format("red"))) == (True, 1, 1, 1.0, True, False)


# Vector environments


ACTIONS = ["1", "double = lambda n: 0", "def helper():\n    pass", *(task.reference for task in SUITE), "open('numbers.txt')"]


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_environment_equals_sync_vector_env(mode, pool):
    options = {"suite": SUITE, "max_turns": 3}
    with (
        closing(gym.make_vec("CodingTask-v0", num_envs=2, autoreset_mode=mode, **options, **FAST)) as ours,
        closing(SyncVectorEnv([lambda: CodingTaskEnv(**options, pool=pool, screen=None)] * 2, autoreset_mode=mode)) as theirs,
    ):
        assert isinstance(ours, CodingTaskVectorEnv)
        assert ours.observation_space == theirs.observation_space
        assert data_equivalence(ours.reset(seed=5), theirs.reset(seed=5))
        for turn in range(7):
            actions = [ACTIONS[(turn * 2 + index * 3) % len(ACTIONS)] for index in range(2)]
            results = [envs.step(actions) for envs in (ours, theirs)]
            assert data_equivalence(*results), results
            assert results[0][0] in ours.observation_space
            ended = results[0][2] | results[0][3]
            if mode is AutoresetMode.DISABLED and ended.any():
                assert data_equivalence(*(envs.reset(options={"reset_mask": ended}) for envs in (ours, theirs)))


def test_vector_environment_occupies_two_slots_each(pool):
    slots = pool.capacity
    with pytest.raises(ConfigurationError, match=rf"num_envs={slots} exceeds the {slots} slots .*: each environment takes 2"):
        gym.make_vec("CodingTask-v0", num_envs=slots, suite=SUITE, pool=pool)
    with closing(gym.make_vec("CodingTask-v0", num_envs=1, suite=SUITE, pool=pool, screen=None)) as envs:
        envs.reset(options={"task_id": "counter"})
        _, rewards, terminated, _, _ = envs.step([COUNTER.reference])
        assert (rewards.tolist(), terminated.tolist()) == ([1.0], [True])
        assert pool.stats.busy == 2
    assert pool.stats.busy == 0


def test_infos_are_json_serializable(pool):
    with closing(gym.make("CodingTask-v0", suite=SUITE, pool=pool, screen=None)) as env:
        env.reset(options={"task_id": "counter"})
        assert json.loads(json.dumps(env.step(COUNTER.reference)[4]))["tests_passed"] == 2


class ClosedSlot:
    """Slot whose sandbox cannot be reached."""

    sandbox = None

    def begin_episode(self):
        return True

    def connect(self):
        from coding_gym.errors import TransportError

        raise TransportError("nothing there")

    def close(self):
        pass
