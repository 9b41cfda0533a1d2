"""MultiPL-E and HumanEval-X: rows in several languages, whose tests are the end of their programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Asserts, Grader, TaskSuite, load_suite
from coding_gym_server.languages import find_language

_FIELDS = {"doctests": "transform", "original": "HumanEval_2_double.py", "prompt_terminology": "reworded"}
MULTIPL_E = {
    "cpp": {
        "prompt": "#include<assert.h>\n#include<bits/stdc++.h>\n// Double it.\nlong twice(long x) {\n",
        "tests": "}\nint main() {\n    auto candidate = twice;\n    assert(candidate((2)) == (4));\n}\n",
        "stop_tokens": ["\n}"],
        "right": "    return 2 * x;\n}",
    },
    "java": {
        "prompt": (
            "import java.util.*;\nimport org.javatuples.*;\nclass Problem {\n    // Twice.\n"
            "    public static Pair<Long, Long> twice(long x) {\n"
        ),
        "tests": (
            "    }\n    public static void main(String[] args) {\n"
            "    assert(twice((2l)).equals((Pair.with(2l, 4l))));\n    }\n\n}\n"
        ),
        "stop_tokens": ["\n    }\n"],
        "right": "        return new Pair<>(x, 2 * x);\n    }\n",
    },
    "js": {
        "prompt": "//Double it.\nfunction twice(x){\n",
        "tests": (
            "const assert = require('node:assert');\n\n\nfunction test() {\n  let candidate = twice;\n"
            "  assert.deepEqual(candidate(2),4);\n}\n\ntest();"
        ),
        "stop_tokens": ["\nfunction ", "\n/*", "\n//", "\nconsole.log"],
        "right": "  return 2 * x;\n}\n",
    },
    "pl": {
        "prompt": "# Double them.\nsub twice {\n    my($x) = @_;\n",
        "tests": (
            "use Test::Deep;\n\n\nsub testhumaneval {\n    my $candidate = \\&twice;\n"
            '        if(eq_deeply($candidate->([1, {"a" => 2}]),[2, {"a" => 4}])) {\n        print "ok!" }else{\n'
            "        exit 1;\n        }\n}\n\ntesthumaneval();\n"
        ),
        "stop_tokens": ["\nsub", "\n#", "\n\n"],
        "right": '    return [2 * $x->[0], {"a" => 2 * $x->[1]{"a"}}];\n}\n',
    },
    "sh": {
        "prompt": "#!/bin/bash\n# Double it.\n#\n# $1 is an integer\ntwice() {\n",
        "tests": (
            '}\n\ncandidate() {\n    twice "$@"\n}\n\nset -e\nrun_test() {\n    [[ $(candidate "2") = "4" ]]\n}\n\nrun_test\n'
        ),
        "stop_tokens": ["\n}"],
        "right": '    echo "$((2 * $1))"\n}',
    },
}
_LANGUAGES = {"js": "javascript", "pl": "perl", "sh": "bash"}

CPP = {
    "task_id": "CPP/2",
    "prompt": "/*\nDouble it.\n*/\n#include<stdio.h>\nusing namespace std;\nint twice(int x){\n",
    "declaration": "#include<stdio.h>\nusing namespace std;\nint twice(int x){\n",
    "canonical_solution": "    return 2 * x;\n}\n",
    "test": "#undef NDEBUG\n#include<assert.h>\nint main(){\n    assert (twice(2) == 4);\n}\n",
    "example_test": "#undef NDEBUG\n#include<assert.h>\nint main(){}\n",
}
JAVA = {
    "task_id": "Java/2",
    "prompt": "import java.util.*;\n\nclass Solution {\n    /**\n    Double it.\n     */\n    public int twice(int x) {\n",
    "declaration": "import java.util.*;\n\nclass Solution {\n    public int twice(int x) {\n",
    "canonical_solution": "        return 2 * x;\n    }\n}",
    "test": (
        "public class Main {\n    public static void main(String[] args) {\n"
        "        if (Arrays.asList(new Solution().twice(2) == 4).contains(false)) {\n"
        "            throw new AssertionError();\n        }\n    }\n}\n"
    ),
    "text": "    Double it.",
    "example_test": "public class Main {}\n",
}
JAVASCRIPT = {
    "task_id": "JavaScript/2",
    "prompt": "/* Double it.\n  */\nconst twice = (x) => {\n",
    "declaration": "\nconst twice = (x) => {\n",
    "canonical_solution": "  return 2 * x;\n}\n\n",
    "test": "const testTwice = () => {\n  console.assert(twice(2) === 4)\n}\n\ntestTwice()\n",
    "example_test": "const testTwice = () => {\n}\ntestTwice()\n",
}
PYTHON = {
    "task_id": "Python/2",
    "prompt": '\n\ndef twice(x: int) -> int:\n    """ Double it.\n    """\n',
    "declaration": "\n\ndef twice(x: int) -> int:\n",
    "canonical_solution": "    return 2 * x\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(twice):\n    assert twice(2) == 4\n    assert twice(3) == 6\n\ncheck(twice)\n",
    "text": "    Double it.",
    "example_test": "def check(twice):\n    assert twice(2) == 4\ncheck(twice)\n",
}
RUST = {
    "task_id": "Rust/2",
    "prompt": "\n/*\n Double it.\n*/\n",
    "declaration": ("\nuse std::cmp::max;\nuse rand::Rng;\nuse regex::Regex;\nuse md5;\n\nfn twice(x: i32) -> i32{\n"),
    "canonical_solution": "\n    return 2 * x;\n}\n",
    "test": (
        "\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n#[test]\n    fn test_twice() {\n"
        "        assert_eq!(twice(2), 4);\n    }\n\n}\n"
    ),
    "example_test": "None",
}
GO = {
    "task_id": "Go/2",
    "prompt": 'import (\n    "math"\n)\n\n// Double it.\nfunc Twice(x int) int {\n',
    "import": 'import (\n    "math"\n)\n',
    "docstring": "// Double it.\n",
    "declaration": "\nfunc Twice(x int) int {\n",
    "canonical_solution": "    return 2 * x\n}\n\n",
    "test": "func TestTwice(t *testing.T) {\n    assert := assert.New(t)\n    assert.Equal(4, Twice(2))\n}\n",
    "test_setup": 'package main\n\nimport (\n    "testing"\n    "github.com/stretchr/testify/assert"\n)\n',
    "example_test": "func TestTwice(t *testing.T) {\n}\n",
}


def load(path: Path, *rows: Mapping[str, Any], **options: Any) -> TaskSuite:
    path = path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return load_suite(path, **options)


def multipl_e(language: str) -> dict[str, Any]:
    """Return a row of MultiPL-E, with a solution, which its rows do not have."""
    return {"name": "HumanEval_2_double", "language": language, **_FIELDS, **MULTIPL_E[language]}


def skip_without(language: str) -> None:
    if missing := find_language(language).missing():
        pytest.skip(f"this machine lacks {', '.join(missing)}")


@pytest.mark.parametrize("name", MULTIPL_E)
def test_multipl_e_is_graded(tmp_path: Path, grader: Grader, name: str) -> None:
    skip_without(language := _LANGUAGES.get(name, name))
    row = multipl_e(name)
    (task,) = load(tmp_path, row)
    assert (task.id, task.prompt, task.tests.language) == ("HumanEval_2_double", row["prompt"], language)
    completion = row["right"]
    for code in (completion, f"{row['prompt']}{completion}"):
        verdict = grader.grade(task, code)
        assert verdict.solved, (code, verdict)
    wrong = grader.grade(task, completion.replace("2 *", "3 *"))
    assert (wrong.solved, wrong.is_infrastructure) == (False, False)


@pytest.mark.parametrize("row", [CPP, JAVA, JAVASCRIPT, RUST, GO], ids=lambda row: row["task_id"])
def test_humaneval_x_is_graded(tmp_path: Path, grader: Grader, row: Mapping[str, Any]) -> None:
    (task,) = load(tmp_path, row)
    skip_without(task.tests.language)
    assert (task.id, task.reference) == (row["task_id"], row["canonical_solution"])
    try:
        verdict = grader.grade(task, task.reference)
    except ConfigurationError as error:
        # Including programs that only this user may execute, such as those of rustup.
        pytest.skip(str(error))
    assert verdict.solved, verdict
    wrong = grader.grade(task, task.reference.replace("2 *", "3 *"))
    assert (wrong.solved, wrong.is_infrastructure) == (False, False)


def test_humaneval_x_in_python_is_humaneval(tmp_path: Path, grader: Grader) -> None:
    (task,) = load(tmp_path, PYTHON)
    assert isinstance(task.tests, Asserts)
    assert (task.entry_point, len(task.tests.cases)) == ("twice", 2)
    assert grader.grade(task, task.reference).solved
    assert not grader.grade(task, "    import os; os._exit(0)").solved


def test_program_that_ends_before_its_tests_is_weak(tmp_path: Path, grader: Grader) -> None:
    skip_without("javascript")
    verdict = grader.grade(load(tmp_path, multipl_e("js"))[0], "  return 3 * x;\n}\nprocess.exit(0);")
    assert (verdict.solved, verdict.is_weak, verdict.tamper_resistant) == (True, True, False)


def test_tests_use_no_libraries(tmp_path: Path) -> None:
    rust, go, java = (task.tests for task in load(tmp_path, RUST, GO, multipl_e("java")))
    assert not any(crate in rust.prefix for crate in ("rand", "regex", "md5"))
    assert "fn main() { tests::test_twice(); }" in rust.suffix
    assert "github.com" not in f"{go.prefix}{go.suffix}"
    assert '{Name: "TestTwice", F: TestTwice}' in go.suffix
    assert "javatuples" not in java.prefix


def test_go_tests_of_multipl_e_are_a_program(tmp_path: Path) -> None:
    row = {
        "name": "HumanEval_2_double",
        "language": "go_test.go",
        "prompt": 'package double_test\n\nimport (\n    "testing"\n    "fmt"\n)\n\n// Double it.\nfunc twice(x int) int {\n',
        "tests": "func TestTwice(t *testing.T) {\n}\n",
        "stop_tokens": ["\nfunc", "struct", "\n// "],
        **_FIELDS,
    }
    (task,) = load(tmp_path, row)
    assert (task.tests.language, task.tests.prefix[:13]) == ("go", "package main\n")
    assert "func main() {" in task.tests.suffix


@pytest.mark.parametrize(
    ("row", "options", "complaint"),
    [
        (multipl_e("js") | {"language": "jl"}, {}, "cannot be run: expected a language.*'jl'.*unsupported='skip'"),
        (multipl_e("js"), {"language": "cpp"}, "it is in javascript, and language='cpp' is another one"),
    ],
)
def test_rows_that_cannot_be_run_are_refused(
    tmp_path: Path, row: Mapping[str, Any], options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(tmp_path, row, **options)
