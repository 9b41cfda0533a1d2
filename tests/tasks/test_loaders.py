"""Suites of packages, and row formats as published by their authors."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Grader, GradingLimits, ProgramCase, Programs, Task, TaskSuite, UnitTests, load_suite
from tests.support.requirements import import_extra

HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def double(x):\n    """Double it."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\n",
}
EVAL_PLUS = {
    **{name: value for name, value in HUMAN_EVAL.items() if name != "test"},
    "contract": "",
    "base_input": [[1]],
    "plus_input": [[2.5], ["inf"]],
    "atol": 0,
}
MBPP = {
    "task_id": 2,
    "text": "Write a function to double.",
    "code": "import math\r\ndef helper(x): return x\r\ndef double(x):\r\n  return 2 * helper(x)",
    "test_setup_code": "",
    "test_list": ["assert double(1) == 2", "assert double(helper(2)) == 4"],
    "challenge_test_list": ["assert double(3) == 6"],
}
SANITIZED = {
    "source_file": "Benchmark Questions Verification V2.ipynb",
    "task_id": 2,
    "prompt": "Write a function to double.",
    "code": "def double(x): return 2 * x",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(double(1), 2)"],
}
APPS = {
    "problem_id": 7,
    "question": "Double the number.",
    "solutions": json.dumps(["print(2 * int(input()))"]),
    "input_output": json.dumps({"inputs": ["1\n", ["2", ""]], "outputs": ["2\n", ["4"]]}),
    "difficulty": "interview",
    "url": "",
    "starter_code": "",
}
APPS_FUNCTION = {
    "question": "Double the numbers.",
    "input_output": json.dumps({"fn_name": "double", "inputs": [[[1, 2]], [[]]], "outputs": [[[2, 4]], [[]]]}),
    "starter_code": "def double(xs):\n\t",
}
APPS_METHOD = {**APPS_FUNCTION, "starter_code": "class Solution:\n    def double(self, xs: List[int]) -> List[int]:\n"}
LCB = {
    "question_title": "double",
    "question_content": "Double the number.",
    "platform": "atcoder",
    "question_id": "abc_a",
    "contest_id": "abc",
    "contest_date": "2024-01-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([{"input": "1\n", "output": "2", "testtype": "stdin"}]),
    "private_test_cases": json.dumps([{"input": "2\n", "output": "4", "testtype": "stdin"}]),
    "metadata": "{}",
}
LCB_FUNCTION = {
    **LCB,
    "starter_code": "class Solution:\n    def double(self, x: int, by: float) -> int:\n        ",
    "public_test_cases": json.dumps([{"input": "1\n2", "output": "2", "testtype": "functional"}]),
    "private_test_cases": json.dumps([{"input": '"a"\n2', "output": '"aa"', "testtype": "functional"}]),
    "metadata": json.dumps({"func_name": "double"}),
}
CODE_CONTESTS = {
    "name": "1_A. Double",
    "description": "Double the number.",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": [], "output": []},
    "generated_tests": {"input": ["2\n"], "output": ["4\n"]},
}
BIG_CODE = {
    "task_id": "BigCodeBench/0",
    "complete_prompt": 'import math\ndef task_func(x):\n    """Double it."""\n',
    "instruct_prompt": "Write a function that doubles.",
    "code_prompt": "import math\ndef task_func(x):\n",
    "canonical_solution": "    return 2 * x",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_1(self):\n        assert task_func(1) == 2\n",
    "entry_point": "task_func",
    "libs": "['math']",
}
CLASS_EVAL = {
    "task_id": "ClassEval_0",
    "skeleton": "class Double:\n    def of(self, x): ...",
    "test": "import unittest\nclass DoubleTest(unittest.TestCase):\n    def test_of(self): assert Double().of(1) == 2\n",
    "solution_code": "class Double:\n    def of(self, x): return 2 * x",
    "import_statement": ["import math"],
    "class_description": "Doubles.",
    "class_name": "Double",
    "test_classes": ["DoubleTest"],
}
DS_1000 = {
    "prompt": "Double the numbers in the array data.\n",
    "reference_code": "result = 2 * data",
    "metadata": {"problem_id": 7, "library": "Numpy", "test_case_cnt": 2},
    "code_context": """import copy
import numpy as np


def generate_test_case(test_case_id):
    def generate_ans(data):
        return data + data

    def define_test_input(test_case_id):
        return np.array([1, 2]) if test_case_id == 1 else np.array([5])

    test_input = define_test_input(test_case_id)
    return test_input, generate_ans(copy.deepcopy(test_input))


def exec_test(result, ans):
    try:
        np.testing.assert_array_equal(result, ans)
        return 1
    except Exception:
        return 0


exec_context = r'''
import numpy as np
data = test_input
[insert]
'''


def test_execution(solution: str):
    code = exec_context.replace("[insert]", solution)
    for i in range(2):
        test_input, expected_result = generate_test_case(i + 1)
        test_env = {"test_input": test_input}
        exec(code, test_env)
        assert exec_test(test_env["result"], expected_result)


def test_string(solution: str):
    assert "for" not in solution
""",
}
FORMATS = {
    "HumanEval": HUMAN_EVAL,
    "EvalPlus": EVAL_PLUS,
    "MBPP": MBPP,
    "sanitized": SANITIZED,
    "APPS": APPS,
    "APPS, function": APPS_FUNCTION,
    "APPS, method": APPS_METHOD,
    "LiveCodeBench": LCB,
    "LiveCodeBench, function": LCB_FUNCTION,
    "CodeContests": CODE_CONTESTS,
    "BigCodeBench": BIG_CODE,
    "DS-1000": DS_1000,
    "ClassEval": CLASS_EVAL,
    "pairs": {"prompt": "Double the number.", "inputs": ["1", "2"], "outputs": ["2", "4"]},
    "objects": {"question": "Double.", "tests": [{"stdin": "1", "expected_output": "2"}, {"input": "2", "output": "4"}]},
    "asserts": {"prompt": "Double.", "tests": ["assert double(1) == 2"], "reference": "def double(x): return 2 * x"},
    "source": {"instruction": "Double.", "test_code": "import math\nassert double(1) == 2\nx = 2\nassert double(x) == 4"},
    "pytest": {"prompt": "Double.", "test": "from solution import double\ndef test_it():\n    assert double(1) == 2\n"},
}


def load(path: Path, *rows: Mapping[str, Any], **options: Any) -> TaskSuite:
    path = path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    return load_suite(path, **options)


def test_human_eval_is_loaded_completely(humaneval: TaskSuite) -> None:
    assert humaneval.name == "humaneval"
    assert len(humaneval) == 164
    assert all(task.entry_point in task.prompt and task.prefix == task.prompt for task in humaneval)
    # Each separate assert is a case, except for those in loops.
    assert sum(len(task.tests.cases) for task in humaneval) == 1181
    poly = humaneval["HumanEval/32"].tests
    assert "def poly" in poly.preamble
    assert "def find_zero" not in poly.preamble
    assert poly.setup.endswith("candidate = find_zero")
    assert len(poly.cases) == 1
    assert "sort_third([1, 2, 3])" in humaneval["HumanEval/33"].tests.cases[0]
    assert load_suite("humaneval", limits=GradingLimits(cpu_timeout=1))[0].limits.cpu_timeout == 1


def test_mbpp_is_loaded_completely(mbpp: TaskSuite) -> None:
    assert len(mbpp) == 974
    assert sum(len(task.tests.cases) for task in mbpp) == 2938
    assert mbpp["601"].entry_point == "max_chain_length"
    assert mbpp["126"].entry_point == "sum"
    # Setup code creates the objects of the tests, so the prompt must show it.
    assert "root = Node(1)" in mbpp["367"].prompt
    assert mbpp["367"].tests.setup.startswith("root = Node(1)")


def test_mbpp_rows_become_tasks(tmp_path: Path) -> None:
    task = load(tmp_path, MBPP)["2"]
    assert task.entry_point == "double"
    assert task.tests.cases == (*MBPP["test_list"], *MBPP["challenge_test_list"])
    shown = "assert double(1) == 2\nassert double(helper(2)) == 4"
    assert task.prompt == f"Write a function to double.\n\nYour code should pass these tests:\n\n{shown}"
    assert load(tmp_path, MBPP, show_tests=0)[0].prompt == "Write a function to double."
    assert load(tmp_path, MBPP, show_tests=1)[0].prompt.endswith("assert double(1) == 2")
    assert load(tmp_path, MBPP | {"test_setup_code": "s = 'a\x0cb'\r\n"}, show_tests=1)[0].prompt.endswith(
        "s = 'a\x0cb'\nassert double(1) == 2"
    )
    sanitized = load(tmp_path, SANITIZED)[0]
    assert sanitized.tests == Asserts(setup="import math", cases=("assert math.isclose(double(1), 2)",))
    assert load_suite(f"mbpp:{tmp_path}/rows.jsonl")[0] == sanitized


def test_program_rows_become_tasks(tmp_path: Path) -> None:
    wanted = (ProgramCase(stdin="1\n", stdout="2\n"), ProgramCase(stdin="2\n", stdout="4"))
    apps, lcb, contests, pairs, objects = load(tmp_path, APPS, LCB, CODE_CONTESTS, FORMATS["pairs"], FORMATS["objects"])
    assert apps.id == "7"
    assert apps.reference == "print(2 * int(input()))"
    assert apps.metadata["difficulty"] == "interview"
    assert apps.entry_point is None
    assert lcb.id == "abc_a"
    for task in (apps, lcb, contests, pairs, objects):
        assert task.tests.tolerance is None
        assert [(case.stdin.strip(), case.stdout.strip()) for case in task.tests.cases] == [
            (case.stdin.strip(), case.stdout.strip()) for case in wanted
        ]
    assert contests.id == "rows/2"
    fractions = {"prompt": "", "inputs": ["1"], "outputs": ["0.50 -1.25e3\nYES"]}
    assert load(tmp_path, fractions)[0].tests.tolerance == 1e-6
    assert load(tmp_path, fractions, tolerance=1e-3)[0].tests.tolerance == 1e-3
    assert load(tmp_path, {**fractions, "outputs": ["v1.2.3 a.5"]})[0].tests.tolerance is None


def test_public_tests_are_samples(tmp_path: Path) -> None:
    tasks = load(tmp_path, LCB, CODE_CONTESTS, APPS, LCB_FUNCTION | {"question_id": "x"})
    assert [task.sample_input for task in tasks] == ["1\n", "1\n", None, None]
    private = {"public_tests": {"input": [], "output": []}}
    assert load(tmp_path, CODE_CONTESTS | private)[0].sample_input is None
    assert load(tmp_path, LCB | {"public_test_cases": "[]"})[0].sample_input is None


def test_rule_of_outputs_is_that_of_the_data_set(tmp_path: Path) -> None:
    rules = {"APPS": "tokens", "CodeContests": "tokens", "LiveCodeBench": "livecodebench", "pairs": "lines", "objects": "lines"}
    for name, rule in rules.items():
        assert load(tmp_path, FORMATS[name])[0].tests.compare == rule
        assert load(tmp_path, FORMATS[name], compare="tokens")[0].tests.compare == "tokens"
    fraction = LCB | {"public_test_cases": json.dumps([{"input": "", "output": "0.5", "testtype": "stdin"}])}
    assert load(tmp_path, fraction)[0].tests.tolerance is None
    assert load(tmp_path, fraction, tolerance=1e-3)[0].tests.tolerance == 1e-3
    with pytest.raises(ConfigurationError, match=r"compare= to be one of lines, tokens, livecodebench, .*got 'words'"):
        load(tmp_path, LCB, compare="words")


DEEP = "def depth(n):\n    return n and 1 + depth(n - 1)\n"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("print(' 5')", "5"),
        ("print('1  2')", "1 2"),
        ("print(3.0)", "3"),
        ("print('0.00000015')", "1.5e-07"),
        (f"{DEEP}print(depth(3000))", "3000"),
        (f"{DEEP}print(depth(5000))", "5000"),
        ("x: List[int] = [gcd(4, 6)]\nprint(x[0], math.gcd(9, 6), defaultdict(int)['a'])", "2 3 0"),
        ("print(max(accumulate([1, 2])), sum(Counter('aa').values()), pow(2, 3, 5))", "3 2 3"),
        ("'A docstring.'\nfrom __future__ import annotations\nprint(stdin.read() == '')", "True"),
        ("\ufeffprint(reduce(lambda a, b: a + b, [1, 2]))", "3"),
    ],
)
def test_what_live_code_bench_accepts_passes(tmp_path: Path, grader: Grader, code: str, output: str) -> None:
    cases = json.dumps([{"input": "", "output": output, "testtype": "stdin"}])
    task = load(tmp_path, LCB | {"public_test_cases": cases, "private_test_cases": "[]"})[0]
    verdict = grader.grade(task, code)
    assert verdict.solved, verdict
    assert not grader.grade(task, f"{code}\nprint(7)").solved


def test_functions_of_sites_recurse_deeply(tmp_path: Path, grader: Grader) -> None:
    calls = json.dumps([{"input": "5000", "output": "5000", "testtype": "functional"}])
    row = LCB | {"public_test_cases": calls, "private_test_cases": calls, "metadata": json.dumps({"func_name": "depth"})}
    assert grader.grade(load(tmp_path, row)[0], DEEP).solved


def test_json_function_calls_become_asserts(tmp_path: Path) -> None:
    function, method, lcb = load(tmp_path, APPS_FUNCTION, APPS_METHOD, LCB_FUNCTION | {"question_id": "x"})
    assert function.entry_point == "double"
    assert function.prompt == "Double the numbers.\n\ndef double(xs):\n\t"
    # Some results are wrapped in a list, but nothing indicates which.
    assert function.tests.cases == (
        "assert _matches(double([1, 2]), [[2, 4]], [2, 4])",
        "assert _matches(double([]), [[]], [])",
    )
    assert method.entry_point == lcb.entry_point == "Solution"
    assert method.tests.cases[0] == "assert _matches(Solution().double([1, 2]), [[2, 4]], [2, 4])"
    assert lcb.tests.cases == (
        "assert _matches(Solution().double(1, 2), 2)",
        "assert _matches(Solution().double('a', 2), 'aa')",
    )
    # U+2028 and U+0085 do not end lines of JSON.
    raw = {
        **LCB_FUNCTION,
        "private_test_cases": json.dumps([{"input": '"a\u2028b\x85"\n2', "output": '"c"', "testtype": "functional"}]),
    }
    assert load(tmp_path, raw)[0].tests.cases[1] == "assert _matches(Solution().double('a\\u2028b\\x85', 2), 'c')"
    nan = {**APPS_FUNCTION, "input_output": '{"fn_name": "double", "inputs": [[NaN]], "outputs": [[-Infinity]]}'}
    assert "json').loads('NaN')" in load(tmp_path, nan)[0].tests.cases[0]


def test_packed_private_test_cases_are_read(tmp_path: Path) -> None:
    packed = pack(pickle.dumps(LCB["private_test_cases"]))
    assert load(tmp_path, LCB | {"private_test_cases": packed})[0].tests == load(tmp_path, LCB)[0].tests
    for protocol in range(6):
        pickled = pickle.dumps(LCB["private_test_cases"], protocol=protocol)
        assert len(load(tmp_path, LCB | {"private_test_cases": pack(pickled)})[0].tests.cases) == 2


class Evil:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('unpickled')",)


@pytest.mark.parametrize(
    ("packed", "complaint"),
    [
        (lambda: pack(pickle.dumps(Evil())), "more than a string"),
        (lambda: pack(pickle.dumps(["[]", "[]"])), "more than a string"),
        (lambda: pack(pickle.dumps("[]") * 2), "JSON"),
        (lambda: pack(b"\x80\x04."), "one string, got 0"),
        (lambda: pack(b"cos\nsystem\n(S'true'\ntR."), "more than a string"),
        (lambda: base64.b64encode(b"no zlib").decode(), "pickled, compressed"),
        (lambda: pack(pickle.dumps("[]"))[:-8], "truncated|Base64|pickled"),
        (lambda: "no base64!", "pickled, compressed"),
        (lambda: pack(pickle.dumps("not json")), "expected JSON"),
        (lambda: pack(pickle.dumps("[1]")), "list of objects"),
    ],
)
def test_packed_data_is_not_trusted(tmp_path: Path, packed: Any, complaint: str) -> None:
    if complaint == "JSON":
        # Data after the end of a pickle is ignored.
        assert load(tmp_path, LCB | {"private_test_cases": packed()})
        return
    with pytest.raises(ConfigurationError, match=complaint):
        load(tmp_path, LCB | {"private_test_cases": packed()})


def pack(pickled: bytes) -> str:
    return base64.b64encode(zlib.compress(pickled)).decode()


def test_unittest_rows_become_tasks(tmp_path: Path) -> None:
    big, whole, functions = load(tmp_path, BIG_CODE, CLASS_EVAL, FORMATS["pytest"])
    assert big.tests == UnitTests(preamble="import math\n", source=BIG_CODE["test"])
    assert big.prefix == big.prompt == BIG_CODE["complete_prompt"]
    assert big.reference == "import math\ndef task_func(x):\n    return 2 * x"
    instruct = load(tmp_path, BIG_CODE, instruct=True)[0]
    assert instruct.prompt == "Write a function that doubles."
    assert instruct.prefix == big.prefix
    assert whole.entry_point == "Double"
    assert whole.tests.source.startswith("import math\nimport unittest")
    assert isinstance(functions.tests, UnitTests)


def test_assert_rows_become_tasks(tmp_path: Path) -> None:
    listed, source = load(tmp_path, FORMATS["asserts"], FORMATS["source"])
    assert listed.entry_point == "double"
    assert listed.tests == Asserts(cases=("assert double(1) == 2",))
    assert source.entry_point is None
    assert source.tests == Asserts(setup="import math", cases=("assert double(1) == 2", "x = 2\nassert double(x) == 4"))


def test_evalplus_compares_with_reference_solution(tmp_path: Path) -> None:
    task = load(tmp_path, EVAL_PLUS)[0]
    assert len(task.tests.cases) == 3
    namespace: dict[str, Any] = {"double": lambda x: x + x}
    exec(task.tests.setup, namespace)
    for case in task.tests.cases:
        exec(case, namespace)
    namespace["double"] = lambda x: x * 2.1
    with pytest.raises(AssertionError):
        exec(task.tests.cases[1], namespace)


CHECKS = {
    "loop": (
        "for x in range(3):\n        assert candidate(x)\n        y = x",
        ["for x in range(3):\n    assert candidate(x)\n    y = x"],
    ),
    "data": (
        "a = 1\n    b = a\n    assert candidate(b), 'b'\n    assert candidate(a)",
        ["a = 1\nb = a\nassert candidate(b), 'b'", "assert candidate(a)"],
    ),
    "tail": ("assert candidate(1)\n    verify(candidate)", ["assert candidate(1)\nverify(candidate)"]),
    "helper": ("verify(candidate)", ["verify(candidate)"]),
    "nested": (
        "def near(a, b):\n        assert a == b\n"
        "    near(candidate(1), 2)\n    x = near(candidate(2), 4)\n    assert candidate(3)",
        [
            "def near(a, b):\n    assert a == b\nnear(candidate(1), 2)",
            "x = near(candidate(2), 4)",
            "assert candidate(3)",
        ],
    ),
    "unused": ("def never():\n        assert 0\n    assert candidate(1)", ["def never():\n    assert 0\nassert candidate(1)"]),
    "text": ("s = '''a\n      b'''\n    assert candidate(s)", ["s = '''a\n      b'''\nassert candidate(s)"]),
    "lines": ("assert candidate(\n        1\n    ) == (2,\n  3)", ["assert candidate(\n        1\n    ) == (2,\n  3)"]),
    "semicolon": ("a = 1; assert candidate(a); assert candidate(2)", ["a = 1\nassert candidate(a)", "assert candidate(2)"]),
    "try": (
        "try:\n        candidate(1)\n    except ValueError:\n        pass\n    else:\n        assert False",
        ["try:\n    candidate(1)\nexcept ValueError:\n    pass\nelse:\n    assert False"],
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_check_body_is_split_into_cases(tmp_path: Path, name: str) -> None:
    body, cases = CHECKS[name]
    test = f"def verify(f): ...\ndef check(candidate):\n    {body}\n\ncheck(double)\n"
    tests = load(tmp_path, HUMAN_EVAL | {"test": test})[0].tests
    assert list(tests.cases) == cases
    assert tests.setup == "def verify(f):\n    ...\ncandidate = double"


@pytest.mark.parametrize(
    "body", ["return", "yield", "x = 1\n    def f():\n        nonlocal x\n    assert x", "global y\n    assert 1"]
)
def test_unsplittable_check_body_stays_whole(tmp_path: Path, body: str) -> None:
    tests = load(tmp_path, HUMAN_EVAL | {"test": f"def check(candidate):\n    {body}\n"})[0].tests
    assert tests.cases == ("check(double)",)
    assert "def check(candidate):" in tests.setup


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"a": 1, "b": 2}, "no known format has these fields; the fields are a, b"),
        ({}, "it has no fields"),
        ({"prompt": None, "tests": ["assert f()"]}, "the fields are tests"),
        ([1], r"expected a JSON object, got '\[1\]'"),
        (HUMAN_EVAL | {"language": "go"}, "written in go"),
        (HUMAN_EVAL | {"test": "def check(:"}, "not Python"),
        (HUMAN_EVAL | {"test": "x = 1"}, "neither asserts"),
        (HUMAN_EVAL | {"entry_point": "not a name"}, "entry point that is a name"),
        (EVAL_PLUS | {"canonical_solution": ""}, "canonical_solution"),
        (EVAL_PLUS | {"base_input": [], "plus_input": []}, "expected inputs"),
        (MBPP | {"test_list": [], "challenge_test_list": []}, "no tests in test_list"),
        (MBPP | {"test_list": "assert double(1"}, "not Python"),
        (MBPP | {"test_list": [1]}, "list of texts"),
        (MBPP | {"code": "def other(): ..."}, "use none of"),
        (APPS | {"input_output": "{}"}, "inputs and outputs"),
        (APPS | {"input_output": "["}, "inputs and outputs"),
        (APPS | {"input_output": '{"inputs": ["1"], "outputs": []}'}, "as many outputs"),
        (APPS | {"input_output": '{"inputs": [], "outputs": []}'}, "no test cases"),
        (LCB_FUNCTION | {"metadata": "{}", "starter_code": ""}, "func_name"),
        (CODE_CONTESTS | {"public_tests": [1]}, "public_tests to have input and output"),
        ({"prompt": "", "tests": [{"input": "1"}]}, "to have output"),
        ({"id": "x", "prompt": "", "tests": {"type": "asserts"}}, "missing required field"),
    ],
)
def test_invalid_row_is_reported_with_line_number(tmp_path: Path, row: Any, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        load(tmp_path, HUMAN_EVAL | {"task_id": "first"}, row)
    assert "rows.jsonl, line 3: " in str(caught.value)


def test_json_and_compressed_files_are_read(tmp_path: Path) -> None:
    text = json.dumps(HUMAN_EVAL)
    (tmp_path / "array.json").write_text(f"[{text}]")
    (tmp_path / "packed.jsonl.gz").write_bytes(gzip.compress(f"\n{text}\n".encode()))
    assert load_suite(tmp_path / "array.json")[0] == load_suite(tmp_path / "packed.jsonl.gz")[0]
    assert load_suite(tmp_path / "packed.jsonl.gz").name == "packed"
    (tmp_path / "broken.jsonl").write_text(f"{text}\n{{")
    for indent in (None, 4):
        (tmp_path / "array.json").write_bytes(b"\xef\xbb\xbf\n" + json.dumps([HUMAN_EVAL], indent=indent).encode() + b"\n")
        assert load_suite(tmp_path / "array.json")[0] == load_suite(tmp_path / "packed.jsonl.gz")[0]
    with pytest.raises(ConfigurationError, match=r"broken.jsonl, line 2: expected JSON"):
        load_suite(tmp_path / "broken.jsonl")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(text.encode())[:-4])
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_suite(tmp_path / "cut.jsonl.gz")
    (tmp_path / "empty.jsonl").write_text("")
    assert len(load_suite(tmp_path / "empty.jsonl")) == 0


@pytest.mark.parametrize("indent", [None, 4])
def test_invalid_array_is_reported_with_its_place(tmp_path: Path, indent: int | None) -> None:
    path = tmp_path / "array.json"
    path.write_text(json.dumps([HUMAN_EVAL, {"a": 1}], indent=indent))
    with pytest.raises(ConfigurationError, match=r"array.json, element 2: no known format"):
        load_suite(path)
    path.write_text("\n" + json.dumps([MBPP, [1]], indent=indent))
    with pytest.raises(ConfigurationError, match=r"array.json, element 2: expected a JSON object, got '\[1\]'"):
        load_suite(f"mbpp:{path}")
    path.write_text(f"\n{json.dumps([HUMAN_EVAL], indent=indent)}\n]")
    with pytest.raises(ConfigurationError, match=rf"array.json: expected a JSON array, .*line {3 if indent is None else 11} "):
        load_suite(path)


def test_unknown_suites_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no suite 'nothing'\. Expected humaneval, mbpp:PATH"):
        load_suite("nothing")
    with pytest.raises(ConfigurationError, match=r"There is no file .*nothing\.jsonl"):
        load_suite(f"mbpp:{tmp_path}/nothing.jsonl")


def test_unknown_generators_are_refused() -> None:
    import_extra("reasoning_gym")
    with pytest.raises(ConfigurationError, match="with one of codeio, codeio-inverse, base_conversion"):
        load_suite("reasoning-gym:arc_agi")
    with pytest.raises(ConfigurationError, match="Unknown option 'limit'"):
        load_suite("humaneval", limit=3)


def test_reasoning_gym_generates_reproducible_tasks() -> None:
    import_extra("reasoning_gym")
    forward, inverse = (load_suite(f"reasoning-gym:{name}", size=5, seed=1, cases=3) for name in ("codeio", "codeio-inverse"))
    assert [len(task.tests.cases) for task in (*forward, *inverse)] == [3] * 10
    assert [task.id.partition("/")[2] for task in forward] == [task.id.partition("/")[2] for task in inverse]
    assert all(task.entry_point == "main_solution" and "`main_solution(" in task.prompt for task in forward)
    assert all(task.reference not in task.prompt for task in forward)
    assert all(task.entry_point == "find_inputs" and "def main_solution" in task.prompt for task in inverse)
    assert load_suite("reasoning-gym:codeio", size=5, seed=1, cases=3) == forward
    assert load_suite("reasoning-gym:codeio", size=5, seed=2, cases=3) != forward
    programs = load_suite("reasoning-gym:bf", size=3, seed=1)
    assert isinstance(programs[0].tests, Programs)
    assert "Brainf*ck" in programs[0].prompt


def test_hugging_face_data_sets_are_loaded(tmp_path: Path) -> None:
    datasets = import_extra("datasets")
    rows = {name: [value, value] for name, value in HUMAN_EVAL.items()} | {"task_id": ["a", "b"]}
    data = datasets.Dataset.from_dict(rows)
    data.to_parquet(tmp_path / "data" / "test-00000-of-00001.parquet")
    data.select([0]).to_parquet(tmp_path / "data" / "train-00000-of-00001.parquet")
    assert load_suite(tmp_path / "data").ids == ("a", "b")
    assert load_suite(f"hf:{tmp_path}/data:train").ids == ("a",)
    assert load_suite(tmp_path / "data" / "test-00000-of-00001.parquet").ids == ("a", "b")
    with pytest.raises(ConfigurationError, match="no split 'dev'; it has"):
        load_suite(f"hf:{tmp_path}/data:dev")
    datasets.DatasetDict({"all": datasets.Dataset.from_list([MBPP])}).save_to_disk(tmp_path / "disk")
    task = load_suite(tmp_path / "disk")[0]
    assert task.tests.cases == (*MBPP["test_list"], *MBPP["challenge_test_list"])
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        load_suite(f"hf:{tmp_path}/nothing")


LEET_CODE = {
    "task_id": "two-sum",
    "question_id": 1,
    "difficulty": "Easy",
    "tags": ["Array"],
    "problem_description": "Given an array, ...",
    "starter_code": "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        ",
    "prompt": "import math\nfrom typing import *\n\ninf = float('inf')\n",
    "completion": (
        "class Solution:\n    def twoSum(self, nums: List[int], target: int) -> List[int]:\n        seen = {}\n"
        "        for i, x in enumerate(nums):\n            if target - x in seen:\n"
        "                return [seen[target - x], i]\n            seen[x] = i\n"
    ),
    "entry_point": "Solution().twoSum",
    "test": (
        "def check(candidate):\n    assert candidate(nums = [3, 3], target = 6) == [0, 1]\n"
        "    assert candidate(nums = [1, 2, 4], target = 6) == [1, 2]\n"
    ),
    "input_output": [{"input": "nums = [3, 3], target = 6", "output": "[0, 1]"}],
    "query": "Answer the question: two sum.",
    "response": "...",
}


def test_entry_points_may_be_methods(tmp_path: Path, grader: Grader) -> None:
    task = load(tmp_path, LEET_CODE)[0]
    assert (task.id, task.entry_point, task.prompt) == ("two-sum", "Solution", LEET_CODE["query"])
    assert len(task.tests.cases) == 2
    verdict = grader.grade(task, task.reference)
    assert verdict.solved, verdict
    assert grader.grade(task, LEET_CODE["completion"]).solved
    wrong = grader.grade(task, LEET_CODE["completion"].replace("seen[target - x], i", "0, 1"))
    assert (wrong.passed, wrong.total) == (1, 2)
    whole = "def check(candidate):\n    if not candidate([3, 3], 6): return\n    assert candidate([1, 2, 4], 6) == [1, 2]\n"
    task = load(tmp_path, LEET_CODE | {"test": whole})[0]
    assert grader.grade(task, LEET_CODE["completion"]).solved


@pytest.mark.parametrize("private", ["", " ", "[]", [], None])
def test_private_test_cases_may_be_empty(tmp_path: Path, private: object) -> None:
    assert len(load(tmp_path, LCB | {"private_test_cases": private})[0].tests.cases) == 1
    with pytest.raises(ConfigurationError, match="no test cases"):
        load(tmp_path, LCB | {"private_test_cases": private, "public_test_cases": private or []})


POWER = "def power(a, b): return a ** b"
LONG = "1" + "0" * 6000
LONG_CALLS = f'{{"fn_name": "power", "inputs": [[10, 6000]], "outputs": [{LONG}]}}'
LONG_ROWS: dict[str, tuple[Mapping[str, Any] | str, str]] = {
    "APPS, object": (f'{{"question": "", "input_output": {LONG_CALLS}}}', POWER),
    "APPS, text": ({"question": "", "input_output": LONG_CALLS}, POWER),
    "argument": (
        f'{{"prompt": "", "fn_name": "size", "inputs": [[{LONG}]], "outputs": [{len(hex(10**6000))}]}}',
        "def size(n): return len(hex(n))",
    ),
    "LiveCodeBench": (
        {
            "question_content": "",
            "public_test_cases": json.dumps([{"input": "10\n6000", "output": LONG, "testtype": "functional"}]),
            "metadata": '{"func_name": "power"}',
        },
        POWER,
    ),
    "MBPP": (
        {
            "prompt": "",
            "code": POWER,
            "test_list": [f"assert power(10, 6000) == {LONG}", f"assert str(power(1, 2)) != '{LONG}'"],
        },
        POWER,
    ),
    "HumanEval": (
        HUMAN_EVAL | {"test": f"def check(candidate):\n    assert candidate({LONG}) == 2_{LONG[1:]}\n"},
        "    return 2 * x",
    ),
    "pytest": ({"prompt": "", "test_code": f"def test_it():\n    assert power(10, 6000) == {LONG}\n"}, POWER),
    "literals": ({"prompt": "", "entry_point": "power", "test_cases": [{"input": "10, 6000", "output": LONG}]}, POWER),
    "program": (
        {"prompt": "", "inputs": [""], "outputs": [f"{LONG} 0.5"]},
        "import sys\nsys.set_int_max_str_digits(0)\ndef end(n): return n\nprint(end(10**6000), 0.5)",
    ),
}


@pytest.mark.parametrize("name", LONG_ROWS)
def test_integers_may_have_any_size(tmp_path: Path, grader: Grader, name: str) -> None:
    row, solution = LONG_ROWS[name]
    (tmp_path / "rows.jsonl").write_text(row if isinstance(row, str) else json.dumps(row))
    task = load_suite(tmp_path / "rows.jsonl")[0]
    verdict = grader.grade(task, solution)
    assert verdict.solved, verdict
    assert grader.grade(task, solution.replace("return", "return 1 +")).outcome == "failed"


def test_saved_data_sets_are_loaded(tmp_path: Path) -> None:
    datasets = import_extra("datasets")
    data = datasets.Dataset.from_list([MBPP, MBPP | {"task_id": 3}])
    data.save_to_disk(tmp_path / "one", num_shards=2)
    assert load_suite(tmp_path / "one").ids == ("2", "3")
    assert load_suite(tmp_path / "one").name == "one"
    assert load_suite(f"hf:{tmp_path}/one:train").ids == ("2", "3")
    assert load_suite(tmp_path / "one")[0] == load(tmp_path, MBPP)[0]
    with pytest.raises(ConfigurationError, match="no split 'dev'; it has train"):
        load_suite(f"hf:{tmp_path}/one:dev")
    next((tmp_path / "one").glob("*.arrow")).write_bytes(b"cut")
    with pytest.raises(ConfigurationError, match=r"\.arrow cannot be read"):
        load_suite(tmp_path / "one")
    (tmp_path / "one" / "state.json").write_text("{}")
    with pytest.raises(ConfigurationError, match="not a complete directory of save_to_disk"):
        load_suite(tmp_path / "one")


def test_saved_data_sets_require_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"pyarrow: pip install 'coding-gym\[datasets\]'"):
        load_suite(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_task_of_every_format_can_be_written(tmp_path: Path, name: str) -> None:
    task = load(tmp_path, FORMATS[name])[0]
    assert Task.from_json(task.to_json()) == task


DOUBLE, METHOD = (
    "def double(x, by=2):\n    return x * by\n",
    "class Solution:\n    def double(self, x, by=2):\n        return x * by\n",
)
LISTS = DOUBLE.replace("x * by", "tuple(2 * y for y in x)")
PROGRAM = "print(2 * int(input()))"
SOLUTIONS = {
    "HumanEval": "    return 2 * x",
    "EvalPlus": "    return 2 * x",
    "MBPP": "def helper(x): return x\ndef double(x): return 2 * x",
    "sanitized": DOUBLE,
    "APPS": PROGRAM,
    "APPS, function": LISTS,
    "APPS, method": "class Solution:\n    def double(self, xs: List[int]) -> List[int]:\n        return [2 * x for x in xs]",
    "LiveCodeBench": PROGRAM,
    "LiveCodeBench, function": METHOD,
    "CodeContests": PROGRAM,
    "BigCodeBench": "    return math.floor(2 * x)",
    "DS-1000": "result = 2 * data",
    "ClassEval": "class Double:\n    def of(self, x): return 2 * x",
    "pairs": PROGRAM,
    "objects": PROGRAM,
    "asserts": DOUBLE,
    "source": DOUBLE,
    "pytest": DOUBLE,
}


@pytest.mark.parametrize("name", FORMATS)
def test_task_of_every_format_is_graded(tmp_path: Path, grader: Grader, name: str) -> None:
    task = load(tmp_path, FORMATS[name])[0]
    verdict = grader.grade(task, SOLUTIONS[name])
    assert verdict.solved, verdict
    assert verdict.total == (2 if name == "DS-1000" else len(getattr(task.tests, "cases", "1")))
    wrong = grader.grade(task, SOLUTIONS[name].replace("2 *", "3 *").replace("* by", "+ by"))
    assert (wrong.outcome, wrong.passed < wrong.total) == ("failed", True)
    if task.reference is not None:
        assert grader.grade(task, task.reference).solved


def test_answers_to_ds_1000_are_text(tmp_path: Path, grader: Grader) -> None:
    task = load(tmp_path, DS_1000)[0]
    assert (task.id, task.grading, task.metadata["library"]) == ("DS-1000/7", None, "Numpy")
    assert Task.from_json(task.to_json()) == task
    looped = grader.grade(task, "result = np.array([2 * each for each in data])")
    outcomes = {case.name.rpartition(".")[2]: case.outcome for case in looped.cases}
    assert outcomes == {"test_execution": "passed", "test_string": "failed"}
    for wrong in ("result = data", "'''", "\\", "result = [insert]", "raise SystemExit(0)", "answer = 1", ""):
        assert not grader.grade(task, wrong).solved, wrong
    isolated = load(tmp_path, DS_1000, grading="isolated")[0]
    assert grader.grade(isolated, "result = 2 * data").solved
    assert not grader.grade(isolated, "result = data").solved


@pytest.mark.parametrize("fields", [{"text_variable": "not a name"}, {"text_variable": "answer", "entry_point": "f"}])
def test_invalid_text_variables_are_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="text_variable"):
        Task(id="a", prompt="", tests=UnitTests(source="def test_it(): assert answer"), **fields)


def test_reasoning_gym_functions_are_graded(grader: Grader) -> None:
    import_extra("reasoning_gym")
    functions = load_suite("reasoning-gym:codeio", size=12, seed=1)
    verdicts = list(grader.grade_many([(task, task.reference or "") for task in functions]))
    assert sum(verdict.solved for verdict in verdicts) >= 11
    assert all(verdict.total == 10 for verdict in verdicts)
    stubs = grader.grade_many([(task, "def main_solution(*_, **__): return None") for task in functions])
    assert sum(verdict.solved for verdict in stubs) == 0
    primes = load_suite("reasoning-gym:count_primes", size=1)[0]
    assert grader.grade(primes, f"print({primes.tests.cases[0].stdout})").solved
