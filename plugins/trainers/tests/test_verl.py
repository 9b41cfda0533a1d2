"""Rewards and tools for verl. ``BaseTool`` and ``ToolResponse`` are verl's own; see ``tests.support.verl_modules``."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import subprocess
import sys
from collections import UserDict, UserList
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym.errors import ConfigurationError, PoolClosedError, ProviderError
from coding_gym.tasks import Grader, load_suite
from coding_gym.tasks.verdict import Verdict
from coding_gym_server.protocol.grading import VerdictOutcome
from coding_gym_trainers.verl import close_graders, compute_score, reward
from coding_gym_trainers.verl.trajectories import Trajectories
from tests.cli.conftest import Served
from tests.support.sandbox_faults import kill_sandbox
from tests.support.timing import promptly
from tests.support.verl_modules import import_verl

BAD_CALLS = [
    {"inputs": ["1\n{"], "outputs": ["3"], "fn_name": "f"},
    {"outputs": ["3"], "fn_name": "f"},
    {"inputs": ["1"], "outputs": [], "fn_name": "f"},
    {"inputs": [], "outputs": [], "fn_name": "f"},
    {"assert_case": []},
]
FAST = {"provider": "local", "preload": []}
SUMS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
CALLS = {"inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"], "fn_name": "add"}


@pytest.fixture(scope="module", autouse=True)
def closed_grader():
    yield
    close_graders()


def score(code, tests, **options):
    return compute_score("codecontests", f"So:\n```python\n{code}\n```\n", tests, {"index": 1}, sandbox=FAST, **options)


@pytest.mark.parametrize(
    ("code", "tests", "expected"),
    [
        ("a, b = map(int, input().split())\nprint(a + b)", SUMS, 1.0),
        ("print(3)", SUMS, 0.5),
        ("1 / 0", SUMS, 0.0),
        ("def add(a, b): return a + b", CALLS, 1.0),
        ("def add(a, b): return 3", CALLS, 0.5),
        ("def f(): return 5", {"assert_case": ["assert f() == 5", "assert f() == 6"]}, 0.5),
        ("def f(s): return s", {"inputs": ['"a"', '"b"'], "outputs": ["a", "c"], "fn_name": "f"}, 0.5),
        ("def f(x): return [x]", {"inputs": ["1"], "outputs": ["[1]"], "fn_name": "f"}, 1.0),
        ("def f(x): return str(x)", {"inputs": ["123"], "outputs": ["123"], "fn_name": "f"}, 1.0),
        ("def f(x): return x", {"inputs": ["123"], "outputs": ["123"], "fn_name": "f"}, 1.0),
        ("def f(x): return x", {"inputs": ["5"], "outputs": ["[5]"], "fn_name": "f"}, 0.0),
        ("class Solution:\n    def add(self, a, b): return a + b", CALLS, 1.0),
        ("class Solution:\n    def add(self, a, b): return 0\ndef add(a, b): return a + b", CALLS, 1.0),
        ("class Solution:\n    def f(self, a, b): return a + b\nadd = Solution().f", CALLS, 1.0),
        ("class Other:\n    def plus(self, a, b): return a + b", {**CALLS, "fn_name": "plus"}, 0.0),
        ("class Solution:\n    def add(self, a, b): return a +", CALLS, 0.0),
        ("print(3)", {**SUMS, "assert_case": None}, 0.5),
        ("def add(a, b): return a + b", {**CALLS, "assert_case": []}, 1.0),
        # Exits before the assertion, and prints what a test expects.
        ("import os; print('7'); os._exit(0)", {"assert_case": ["assert 1 == 2"]}, 0.0),
    ],
)
@pytest.mark.parametrize("encode", [dict, json.dumps])
def test_tests_of_verl_are_graded(code, tests, expected, encode):
    assert score(code, encode(tests)) == {"score": expected, "acc": float(expected == 1), "fault": 0.0}


# What verl 0.9.1 answers, with sandbox_fusion and with prime_code: where the two differ, the value counts, or else the text.
COMPARISONS = [
    ("true", "True", 1.0, 1.0, 1.0),
    ("True", "True", 0.0, 0.0, 0.0),
    ("True", "'True'", 1.0, 0.0, 1.0),
    ("null", "None", 1.0, 1.0, 1.0),
    ("None", "None", 0.0, 0.0, 0.0),
    ("None", "'None'", 1.0, 0.0, 1.0),
    ("5", "5", 1.0, 1.0, 1.0),
    ("5", "'5'", 1.0, 0.0, 1.0),
    ("5", "5.0", 0.0, 1.0, 1.0),
    ("5.0", "5", 0.0, 1.0, 1.0),
    ("1e3", "1000.0", 0.0, 1.0, 1.0),
    (" 5", "5", 0.0, 1.0, 1.0),
    ("1", "True", 0.0, 1.0, 1.0),
    ("0.3", "0.1 + 0.2", 0.0, 0.0, 0.0),
    ("[1,2]", "(1, 2)", 0.0, 1.0, 1.0),
    ('"abc"', "'abc'", 0.0, 1.0, 1.0),
    ("abc\n", "'abc'", 1.0, 0.0, 1.0),
    ("abc\n", "'abc\\n'", 1.0, 0.0, 1.0),
    ("abc\n", "' abc'", 0.0, 0.0, 0.0),
    # Differences.
    ("inf", "float('inf')", 1.0, 0.0, 0.0),
    ("{1}", "{1}", 1.0, 0.0, 0.0),
    ("[5]", "5", 0.0, 1.0, 0.0),
    ("[[1, 2]]", "[1, 2]", 0.0, 1.0, 0.0),
]


@pytest.fixture(scope="module")
def run_code_url(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("verl"), "--port", "0", "--sessions", "4")
    yield f"{served.url}/run_code"
    assert served.stop() == 0


@pytest.mark.parametrize(("expected", "value", "fusion", "prime", "ours"), COMPARISONS)
def test_results_are_compared_as_verl_compares_them(run_code_url, expected, value, fusion, prime, ours):
    code, tests = f"def f(x): return {value}", {"inputs": ["1"], "outputs": [expected], "fn_name": "f"}
    assert score(code, tests)["score"] == ours
    completion = f"```python\n{code}\n```"
    verl_fusion = import_verl("verl.utils.reward_score.sandbox_fusion")
    assert verl_fusion.compute_score(run_code_url, None, 512, completion, json.dumps(tests))[0] == fusion
    # In another process: verl's grader replaces builtin functions.
    program = (
        "import json, sys; from tests.support.verl_modules import import_verl\n"
        "verl_prime = import_verl('verl.utils.reward_score.prime_code')\n"
        "if __name__ == '__main__':\n"
        "    print('score', float(verl_prime.compute_score(*json.load(sys.stdin), continuous=True)[0]))\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps([completion, tests]), capture_output=True, text=True, check=False
    )
    assert answer.stdout.splitlines()[-1:] == [f"score {prime}"], answer.stderr


def test_tasks_of_a_suite_are_graded():
    suite = load_suite("basics")
    right = suite["basics/add_up"].reference
    assert right is not None
    answer = compute_score("x", f"```python\n{right}\n```", "basics/add_up", suite="basics", sandbox=FAST)
    assert answer == {"score": 1.0, "acc": 1.0, "fault": 0.0}
    with pytest.raises(ConfigurationError, match="id of a task of the suite 'basics', got 'no'"):
        compute_score("x", right, "no", suite="basics", sandbox=FAST)


@pytest.mark.parametrize(
    "truth", ["basics/add_up", None, 5, "[1]", {"inputs": ["1"]}, {"inputs": ["1"], "outputs": []}, *BAD_CALLS]
)
def test_ground_truth_without_tests_is_refused(truth):
    with pytest.raises(ConfigurationError):
        score("1", truth)


def test_calls_of_a_process_share_a_grader():
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda number: score(f"print({number})", SUMS), range(16)))
    assert sum(answer["score"] for answer in answers) == 1.0
    assert len({id(reward.shared_grader(None, FAST)) for _ in range(2)}) == 1


def test_configuration_need_not_be_plain():
    # OmegaConf has mappings and sequences of its own.
    sandbox = UserDict({"provider": "local", "preload": UserList([])})
    answer = compute_score("x", "```python\nprint(3)\n```", SUMS, sandbox=sandbox)
    assert answer["score"] == 0.5


def test_forks_of_a_process_have_graders_of_their_own():
    # As verl's reward managers.
    score("print(3)", SUMS)
    with multiprocessing.get_context("fork").Pool(1) as fork:
        assert fork.apply(score_in_fork, ("print(3)",)) == 0.5


def score_in_fork(code):
    try:
        return score(code, SUMS)["score"]
    finally:
        close_graders()


def test_closed_graders_are_opened_again():
    close_graders()
    close_graders()
    assert score("print(3)", SUMS)["score"] == 0.5


@pytest.fixture
def failing(monkeypatch):
    """A grader whose sandboxes fail, and the number of attempts."""
    attempts = []

    def grade(self, task, code):
        attempts.append(code)
        if len(attempts) % 2:
            message = "no sandbox"
            raise ProviderError(message)
        return Verdict(task_id=task.id, outcome=VerdictOutcome.INFRASTRUCTURE, cases=(), message="the sandbox died")

    monkeypatch.setattr(Grader, "grade", grade)
    monkeypatch.setattr(reward, "_PAUSE_SECONDS", 0.02)
    return attempts


def test_faults_are_no_zeros(failing):
    with pytest.raises(ProviderError, match=r"could not be graded within 0.2 s, which says nothing about its code"):
        score("1", SUMS, patience=0.2)
    assert len(failing) > 3


def test_closed_pool_is_no_fault_to_wait_for(monkeypatch):
    def grade(self, task, code):
        raise PoolClosedError

    monkeypatch.setattr(Grader, "grade", grade)
    with promptly(), pytest.raises(PoolClosedError):
        score("1", SUMS, patience=60, on_fault=0)


def test_faults_have_a_chosen_score(failing):
    assert score("1", SUMS, patience=0, on_fault=-1) == {"score": -1.0, "acc": 0.0, "fault": 1.0}
    assert len(failing) == 1


class AgentData:
    """What ``CodingTool`` uses of verl's class of this name."""

    def __init__(self, request_id):
        self.request_id = request_id


class Loop:
    """Calls a tool as ``ToolAgentLoop._call_tool`` of verl 0.9.1 does, in its own event loop."""

    def __init__(self, tool):
        self.tool = tool
        self._runner = asyncio.Runner()

    async def call(self, agent, code, **parameters):
        instance_id, _ = await self.tool.create(create_kwargs={})
        try:
            response, points, metrics = await self.tool.execute(instance_id, {"code": code, **parameters}, agent_data=agent)
        finally:
            await self.tool.release(instance_id)
        assert points == 0.0
        return response, metrics["outcome"]

    def text(self, agent, code):
        return self.run(self.call(agent, code))[0].text

    def run(self, work):
        return self._runner.run(work)

    def wait_for_sessions(self, count):
        async def wait():
            while len(self.tool._trajectories) != count:
                await asyncio.sleep(0.05)

        self.run(asyncio.wait_for(wait(), 20))

    def close(self):
        self.run(self.tool.aclose())
        self._runner.close()


@pytest.fixture
def open_loop():
    import_verl("verl.tools.base_tool")
    from coding_gym_trainers.verl import CodingTool

    loops = []

    def open_one(**config):
        loops.append(Loop(CodingTool({"type": "native", **FAST, **config}, None)))
        return loops[-1]

    yield open_one
    for loop in loops:
        loop.close()


def test_trajectory_keeps_its_interpreter(open_loop):
    loop = open_loop(sessions=4)
    first, second = AgentData("a"), AgentData("b")
    assert loop.text(first, "x = 20") == "[no output]"
    assert loop.text(second, "x = 1; print(x)") == "1"
    assert loop.text(first, "print(x + 1); open('f', 'w').close()") == "21"
    assert loop.text(second, "import os; os.listdir(), x") == "([], 1)"
    assert loop.text(first, "1 / 0").endswith("ZeroDivisionError: division by zero\n[exit code 1]")
    assert loop.run(loop.call(first, "import os; os._exit(3)"))[1] == "killed"
    assert len(loop.tool._trajectories) == 2


def test_calls_of_many_trajectories_run_concurrently(open_loop):
    loop = open_loop(sessions=8)
    agents = [AgentData(number) for number in range(12)]

    async def rollout(agent):
        await loop.call(agent, f"x = {agent.request_id}")
        return (await loop.call(agent, "import time; time.sleep(0.2); print(x * 2)"))[0].text

    async def rollouts():
        return await asyncio.gather(*map(rollout, agents))

    texts = loop.run(rollouts())
    # More trajectories than sessions: some have lost theirs, and are told.
    kept = [text for number, text in enumerate(texts) if text == str(2 * number)]
    restarted = [
        text for text in texts if text.startswith("[the interpreter was restarted: its variables and files are lost]\n")
    ]
    assert len(kept) >= 4
    assert len(kept) + len(restarted) == 12
    assert len(loop.tool._trajectories) <= 8


def test_session_ends_with_its_trajectory(open_loop):
    loop = open_loop(sessions=4)
    agent = AgentData("a")
    loop.text(agent, "x = 1")
    assert len(loop.tool._trajectories) == 1
    del agent
    gc.collect()
    loop.wait_for_sessions(0)
    assert loop.text(AgentData("a"), "'x' in dir()") == "False"


def test_trajectories_with_the_same_id_have_sessions_of_their_own(open_loop):
    # verl repeats the ids if it is to be deterministic.
    loop = open_loop(sessions=4)
    first, second = AgentData("a"), AgentData("a")
    loop.text(first, "x = 1")
    assert loop.text(second, "print('x' in dir()); x = 2") == "False"
    assert loop.text(first, "print(x)") == "1"
    del first
    gc.collect()
    loop.wait_for_sessions(1)
    assert loop.text(second, "print(x)") == "2"
    del second
    gc.collect()
    loop.wait_for_sessions(0)
    assert loop.text(AgentData("a"), "print('x' in dir())") == "False"


def test_idle_sessions_end(open_loop):
    loop = open_loop(sessions=4, idle_seconds=0.5)
    agent = AgentData("a")
    loop.text(agent, "x = 1")
    loop.wait_for_sessions(0)
    text = loop.text(agent, "'x' in dir()")
    assert text == "[the interpreter was restarted: its variables and files are lost]\nFalse"


def test_running_sessions_are_not_idle(open_loop):
    loop = open_loop(sessions=1, idle_seconds=0.2)
    first, second = AgentData("a"), AgentData("b")

    async def both():
        return await asyncio.gather(loop.call(first, "import time; time.sleep(1); print(1)"), loop.call(second, "print(2)"))

    assert [response.text for response, _ in loop.run(both())] == ["1", "2"]


def test_instances_without_trajectory_end_with_their_call(open_loop):
    loop = open_loop(sessions=2)
    assert loop.text(None, "print(1)") == "1"
    loop.wait_for_sessions(0)


def test_unusable_parameters_are_told(open_loop):
    loop = open_loop(sessions=2, max_code_chars=100)
    agent = AgentData("a")
    assert loop.run(loop.call(agent, None))[0].text == "[nothing was run: expected the parameter code, a string]"
    assert loop.run(loop.call(agent, "x" * 101))[1] == "not_run"
    assert loop.text(agent, "print('on')") == "on"


def test_sandbox_that_dies_is_told_and_replaced(open_loop):
    loop = open_loop(sessions=2)
    agent = AgentData("a")
    loop.text(agent, "x = 1")
    (trajectory,) = loop.tool._trajectories._open.values()
    kill_sandbox(trajectory.env.sandbox)
    response, outcome = loop.run(loop.call(agent, "print(x)"))
    assert outcome == "infrastructure"
    assert response.text.startswith("[the sandbox failed, which says nothing about the code")
    assert loop.text(agent, "print(2)").endswith("\n2")


def test_schema_describes_the_tool(open_loop):
    tool = open_loop(sessions=1).tool
    assert tool.name == "python"
    schema = tool.get_openai_tool_schema().model_dump(exclude_none=True)
    assert schema["function"]["parameters"]["required"] == ["code"]


def test_screen_is_an_image(open_loop, xvfb):
    loop = open_loop(sessions=1, screen=[320, 240], on_idle="return")
    agent = AgentData("a")
    assert loop.run(loop.call(agent, "x = 1"))[0].image is None
    code = "import tkinter; root = tkinter.Tk(); root.geometry('200x100'); root.configure(bg='red'); root.mainloop()"
    response, _ = loop.run(loop.call(agent, code))
    (image,) = response.image
    assert image.size == (320, 240)
    assert (255, 0, 0) in {color for _, color in image.getcolors(maxcolors=100_000)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sessions": 0}, "sessions"),
        ({"idle_seconds": 0}, "Expected idle_seconds to be a positive number of seconds, got 0"),
        ({"idle_seconds": "1"}, "idle_seconds"),
        ({"sceen": None}, "sceen"),
    ],
)
def test_invalid_settings(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Trajectories(**FAST, **options)


def test_package_has_its_public_names(open_loop):
    import coding_gym_trainers.verl as package

    assert {getattr(package, name).__name__ for name in package.__all__} == set(package.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Tool'"):
        package.Tool  # noqa: B018
