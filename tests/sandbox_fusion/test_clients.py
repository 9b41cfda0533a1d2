"""The clients of SandboxFusion's server, unchanged: verl's reward function, and ByteDance's own client."""

from __future__ import annotations

import json
import threading

import pytest

from tests.cli.conftest import Served
from tests.support.requirements import import_extra
from tests.support.timing import promptly
from tests.support.verl_modules import import_verl

sandbox_fusion = import_extra("sandbox_fusion")
verl = import_verl("verl.utils.reward_score.sandbox_fusion")


SUMS = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}
VERDICTS = {
    "right": ("a, b = map(int, input().split())\nprint(a + b)", SUMS, 1.0, ["success", "success"]),
    "half right": ("print(3)", SUMS, 0.5, ["success", "wrong_answer"]),
    "exception": ("1 / 0", SUMS, 0.0, ["runtime_error", "runtime_error"]),
    "syntax error": ("1 +", SUMS, 0.0, ["runtime_error", "runtime_error"]),
    "endless loop": ("while True: pass", SUMS, 0.0, ["timeout", "timeout"]),
    "too much memory": ("x = bytearray(1 << 30)", SUMS, 0.0, ["runtime_error", "runtime_error"]),
    "function": (
        "def add(a, b): return a + b",
        {"inputs": ["1\n2", "3\n4"], "outputs": ["3", "7"], "fn_name": "add"},
        1.0,
        ["success", "success"],
    ),
    "method": (
        "class Solution:\n    def pair(self, a, b): return [a, b]",
        {"inputs": ["1\n2"], "outputs": ["[1, 2]"], "fn_name": "pair"},
        1.0,
        ["success"],
    ),
    "assertions": (
        "def f(): return 5",
        {"assert_case": ["assert f() == 5", "assert f() == 6"]},
        0.5,
        ["success", "runtime_error"],
    ),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    served = Served(tmp_path_factory.mktemp("fusion"), "--port", "0", "--sessions", "4")
    yield served.url
    assert served.stop() == 0


@pytest.mark.parametrize("case", VERDICTS)
def test_verl_computes_the_scores_of_sandbox_fusion(url, case):
    code, tests, expected, statuses = VERDICTS[case]
    completion = f"I think:\n```python\n{code}\n```\n"
    arguments = (f"{url}/run_code", threading.Semaphore(8), 512, completion, json.dumps(tests))
    score, metadata = verl.compute_score(*arguments, continuous=True, timeout=2)
    assert score == expected, json.dumps(metadata)
    assert [case["status"] for case in metadata] == statuses


def test_verl_scores_many_cases_at_a_time(url):
    numbers = range(60)
    tests = {"inputs": [f"{n}\n" for n in numbers], "outputs": [f"{n * n}\n" for n in numbers]}
    completion = "```python\nprint(int(input()) ** 2)\n```"
    score, _ = verl.compute_score(f"{url}/run_code", threading.Semaphore(64), 1024, completion, tests)
    assert score == 1.0


def test_verl_retries_under_overload(url):
    # Each of the endless programs has a place for two seconds: 504 is answered to some of them, and they are sent again.
    completion = "```python\nimport time; time.sleep(2); print(input())\n```"
    texts = [f"{number}\n" for number in range(24)]
    tests = {"inputs": texts, "outputs": texts}
    with promptly():
        score, metadata = verl.compute_score(f"{url}/run_code", threading.Semaphore(64), 1024, completion, tests, timeout=10)
        assert {case["status"] for case in metadata} <= {"success", "api_error"}
        assert score > 0
        # None hung: three attempts of at most four seconds in the queue, two pauses, and the last run.


def test_client_runs_code(url):
    request = sandbox_fusion.RunCodeRequest(
        code="print(open('in.txt').read() + input()); open('out.txt', 'w').write('x')",
        language="python",
        stdin="b",
        files={"in.txt": "YQ=="},
        fetch_files=["out.txt"],
    )
    result = sandbox_fusion.run_code(request, endpoint=url, max_attempts=1)
    assert (result.status, result.run_result.stdout, result.files) == ("Success", "ab\n", {"out.txt": "eA=="})
    mapping = sandbox_fusion.SummaryMapping(RunFailed="run failed", RunTimeout="too slow")
    for code, summary in (("1 / 0", "run failed"), ("while True: pass", "too slow"), ("1", "Success")):
        request = sandbox_fusion.RunCodeRequest(code=code, language="python", run_timeout=3)
        result = sandbox_fusion.run_code(request, endpoint=url, max_attempts=1)
        assert sandbox_fusion.summary_run_code_result(result, mapping) == summary


def test_client_raises_for_other_languages(url):
    request = sandbox_fusion.RunCodeRequest(code="module main;", language="verilog")
    with pytest.raises(Exception, match="The language 'verilog' is not available in this sandbox"):
        sandbox_fusion.run_code(request, endpoint=url, max_attempts=1)


def test_client_runs_notebooks(url):
    request = sandbox_fusion.RunJupyterRequest(cells=["a = 1", "a + 1", "print(a)", "1 / 0"])
    result = sandbox_fusion.run_jupyter(request, endpoint=url, max_attempts=1)
    assert (result.status, result.driver.status) == ("Success", "Finished")
    assert result.cells[1].display == [{"text/plain": "2"}]
    assert result.cells[2].stdout == "1\n"
    assert result.cells[3].error[0]["ename"] == "ZeroDivisionError"


def test_client_runs_code_concurrently(url):
    requests = [sandbox_fusion.RunCodeRequest(code=f"print({n})", language="python") for n in range(20)]
    run = sandbox_fusion.run_concurrent(sandbox_fusion.run_code, args=[[request, url] for request in requests])
    assert [result.run_result.stdout for result in run] == [f"{n}\n" for n in range(20)]
