"""Packages of contest problems: those of Polygon, and those in the format of Kattis and the ICPC."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym.tasks import CaseGroup, Checker, Grader, GradingLimits, ProgramCase, Task, load_suite
from coding_gym_server.languages import find_language

_ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
_ADD_IN_CPP = "#include <iostream>\nint main() { int a, b; std::cin >> a >> b; std::cout << a + b; }\n"
_TESTLIB = "#include <fstream>\nenum { OK, WRONG };\n"
_CHECKER = """
#include "testlib.h"
int main(int, char** names) {
  std::ifstream output(names[2]), answer(names[3]);
  int found, wanted;
  output >> found;
  answer >> wanted;
  return found == wanted ? OK : WRONG;
}
"""
_PROBLEM_XML = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<problem revision="3" short-name="sum" url="https://polygon.example.org/sum">
  <names><name language="russian" value="Summa"/><name language="english" value="The Sum"/></names>
  <statements>
    <statement charset="UTF-8" language="english" path="statements/english/problem.tex" type="application/x-tex"/>
  </statements>
  <judging cpu-name="x" cpu-speed="3600" input-file="{input}" output-file="{output}">
    <testset name="pretests"><test-count>0</test-count></testset>
    <testset name="tests">
      <time-limit>1500</time-limit>
      <memory-limit>268435456</memory-limit>
      <test-count>2</test-count>
      <input-path-pattern>tests/%02d</input-path-pattern>
      <answer-path-pattern>tests/%02d.a</answer-path-pattern>
      <tests><test method="manual" sample="true"/><test cmd="gen 1" method="generated"/></tests>
    </testset>
  </judging>
  <files><resources><file path="files/testlib.h" type="h.g++"/></resources></files>
  <assets>
    <checker name="{checker}" type="testlib"><source path="files/check.cpp" type="cpp.g++17"/></checker>
    {interactor}
    <solutions>
      <solution tag="wrong-answer"><source path="solutions/wrong.py" type="python.3"/></solution>
      <solution tag="accepted"><source path="solutions/add.py" type="python.3"/></solution>
      <solution tag="main"><source path="solutions/add.cpp" type="cpp.g++17"/></solution>
    </solutions>
  </assets>
  <tags><tag value="math"/></tags>
</problem>
"""
_INTERACTOR = '<interactor><source path="files/interactor.cpp" type="cpp.g++17"/></interactor>'

_SAME = """
import sys

answer = open(sys.argv[2]).read().split()
open(sys.argv[3] + "/judgemessage.txt", "w").write("compared")
sys.exit(42 if sys.stdin.read().split() == answer and sys.argv[4:] == ["strict"] else 43)
"""


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def polygon(folder: Path, *, checker: str = "std::wcmp.cpp", interactor: str = "", files: tuple[str, str] = ("", "")) -> Path:
    values = {"checker": checker, "interactor": interactor, "input": files[0], "output": files[1]}
    return write(
        folder / "sum-3",
        {
            "problem.xml": _PROBLEM_XML.format(**values),
            "tests/01": "1 2\n",
            "tests/01.a": "3\n",
            "tests/02": "3 4\n",
            "tests/02.a": "7\n",
            "files/testlib.h": _TESTLIB,
            "files/check.cpp": _CHECKER,
            "files/interactor.cpp": "int main() {}\n",
            "solutions/add.py": _ADD,
            "solutions/add.cpp": _ADD_IN_CPP,
            "solutions/wrong.py": "print(3)\n",
            "statement-sections/english/legend.tex": "Add $a$ and $b$.\n",
            "statement-sections/english/input.tex": "Two numbers.\n",
            "statement-sections/english/output.tex": "Their sum.\n",
        },
    )


def kattis(folder: Path, *, problem: str = "", **others: str) -> Path:
    return write(
        folder / "sum",
        {
            "problem.yaml": f"name: The Sum\nlicense: cc by-sa\nsource: A Contest\n{problem}",
            "problem_statement/problem.en.tex": "\\problemname{The Sum}\nAdd $a$ and $b$.\n",
            "problem_statement/problem.sv.tex": "\\problemname{Summan}\n",
            "data/sample/1.in": "1 2\n",
            "data/sample/1.ans": "3\n",
            "data/secret/group/10.in": "3 4\n",
            "data/secret/group/10.ans": "7\n",
            "submissions/accepted/add.py": _ADD,
            "submissions/accepted/add2.py": "#!/usr/bin/env python2\nprint 3\n",
            "submissions/accepted/add.cc": _ADD_IN_CPP,
            "submissions/wrong_answer/three.py": "print(3)\n",
            **{name.replace("__", "/").replace("_py", ".py").replace("_cc", ".cc"): text for name, text in others.items()},
        },
    )


def load(folder: Path, **options: object) -> Task:
    (task,) = load_suite(folder, **options)
    return task


def test_polygon_packages_become_tasks(tmp_path: Path, grader: Grader) -> None:
    task = load(polygon(tmp_path))
    assert (task.id, task.sample_input, task.reference) == ("sum", "1 2\n", _ADD)
    assert task.metadata == {
        "source": "Polygon",
        "name": "The Sum",
        "url": "https://polygon.example.org/sum",
        "tags": ["math"],
    }
    assert task.tests.cases == (ProgramCase(stdin="1 2\n", stdout="3\n"), ProgramCase(stdin="3 4\n", stdout="7\n"))
    assert (task.tests.compare, task.tests.checker, task.tests.interactor) == ("tokens", None, None)
    assert task.limits == GradingLimits(cpu_timeout=1.5, max_memory_bytes=256 << 20)
    assert task.prompt.startswith(
        "The Sum\n\nAdd $a$ and $b$.\n\nInput\n\nTwo numbers.\n\nOutput\n\nTheir sum.\n\nExample input"
    )
    assert "3 4" not in task.prompt
    assert grader.grade(task, task.reference).solved
    assert grader.grade(task, "print(3)").passed == 1
    assert load(tmp_path, language="cpp").reference == _ADD_IN_CPP


def test_polygon_checkers_decide(tmp_path: Path, grader: Grader) -> None:
    if find_language("cpp").missing():
        pytest.skip("this machine lacks g++")
    task = load(polygon(tmp_path, checker="check.cpp"))
    assert task.tests.checker == Checker(code=_CHECKER, language="cpp", files={"testlib.h": _TESTLIB})
    assert grader.grade(task, _ADD).solved
    assert grader.grade(task, "print(3)").passed == 1
    assert load(polygon(tmp_path, checker="std::nyesno.cpp")).tests.compare == "case-insensitive"


def test_polygon_problems_with_files_and_interactors(tmp_path: Path, grader: Grader) -> None:
    task = load(polygon(tmp_path, files=("sum.in", "sum.out")))
    code = "a, b = map(int, open('sum.in').read().split())\nprint(a + b, file=open('sum.out', 'w'))"
    assert grader.grade(task, code).solved
    task = load(polygon(tmp_path, interactor=_INTERACTOR))
    assert (task.tests.interactor.language, task.tests.interactor.code) == ("cpp", "int main() {}\n")
    assert task.sample_input is None


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("tests/02", None, "tests/02 to be a file: the package is not complete"),
        ("problem.xml", "<problem>", "to be XML"),
        ("problem.xml", "<problem/>", "to have a testset"),
        ("statement-sections/english/legend.tex", None, "or a statement in TeX"),
        ("problem.xml", _PROBLEM_XML.replace("tests/%02d<", "tests/<"), "input-path-pattern .* a path with one number"),
        ("problem.xml", _PROBLEM_XML.replace("files/check.cpp", "files/check.dpr"), "checker .* 'files/check.dpr'"),
    ],
)
def test_polygon_packages_that_lack_a_part_are_refused(tmp_path: Path, name: str, text: str | None, complaint: str) -> None:
    folder = polygon(tmp_path)
    if text is None:
        (folder / name).unlink()
        (folder / "problem.xml").write_text(
            (folder / "problem.xml").read_text().replace("application/x-tex", "application/pdf")
        )
    else:
        (folder / name).write_text(text)
    with pytest.raises(ConfigurationError, match=complaint):
        load(folder)


def test_kattis_packages_become_tasks(tmp_path: Path, grader: Grader) -> None:
    task = load(kattis(tmp_path, problem="limits: {memory: 512}\n"))
    assert (task.id, task.sample_input, task.reference) == ("sum", "1 2\n", _ADD)
    assert task.metadata == {"source": "Kattis", "name": "The Sum", "contest": "A Contest", "license": "cc by-sa"}
    assert task.tests.cases == (ProgramCase(stdin="1 2\n", stdout="3\n"), ProgramCase(stdin="3 4\n", stdout="7\n"))
    assert (task.tests.compare, task.tests.checker) == ("case-insensitive", None)
    assert task.limits == GradingLimits(max_memory_bytes=512 << 20)
    assert "Add $a$" in task.prompt
    assert "Summan" not in task.prompt
    assert grader.grade(task, task.reference).solved
    assert grader.grade(task, "print(3)").passed == 1
    assert load(tmp_path, language="cpp").reference == _ADD_IN_CPP


@pytest.mark.parametrize(
    ("flags", "output", "is_right"),
    [
        ("", "SEVEN 1.5", True),
        ("", "Seven 1.50", False),
        ("case_sensitive", "SEVEN 1.5", False),
        ("case_sensitive", "Seven\n1.5", True),
        ("case_sensitive space_change_sensitive", "Seven\n1.5\n", False),
        ("space_change_sensitive", "SEVEN 1.5\n", True),
        ("float_tolerance 1e-2", "seven 1.51", True),
        ("float_tolerance 1e-2", "seven 1.6", False),
        ("float_absolute_tolerance 1e-2", "seven 1.505", True),
        ("float_relative_tolerance 1e-3", "seven 1.51", False),
        ("float_tolerance 1e-2", "seven x", False),
    ],
)
def test_flags_of_the_default_validator(tmp_path: Path, grader: Grader, flags: str, output: str, is_right: bool) -> None:
    answers = {"data__sample__1.ans": "Seven 1.5\n", "data__secret__group__10.ans": "Seven 1.5\n"}
    task = load(kattis(tmp_path, problem=f"validator_flags: {flags}\n", **answers))
    verdict = grader.grade(task, f"print({output!r}, end='')")
    assert (verdict.solved, verdict.is_infrastructure) == (is_right, False)


def test_integers_are_floats_for_the_default_validator(tmp_path: Path, grader: Grader) -> None:
    task = load(kattis(tmp_path, problem="validator_flags: float_tolerance 1e-6\n"))
    assert grader.grade(task, f"{_ADD}".replace("a + b", "float(a + b) + 1e-7")).solved


def test_kattis_validators_decide(tmp_path: Path, grader: Grader) -> None:
    folder = kattis(tmp_path, problem="validation: custom\nvalidator_flags: strict\n", output_validators__same_py=_SAME)
    task = load(folder)
    checker = task.tests.checker
    assert (checker.code, checker.protocol, checker.arguments) == (_SAME, "kattis", ("strict",))
    assert grader.grade(task, _ADD).solved
    assert grader.grade(task, "print(3)").passed == 1


def test_validators_of_several_files_are_one_program(tmp_path: Path) -> None:
    parts = {f"output_validators__v__{name}": f"// {name}\n" for name in ("a_cc", "b_cc", "v.h")}
    checker = load(kattis(tmp_path, problem="validation: custom\n", **parts)).tests.checker
    assert (checker.language, checker.code) == ("cpp", '#include "a.cc"\n#include "b.cc"\n')
    assert checker.files == {"a.cc": "// a_cc\n", "b.cc": "// b_cc\n", "v.h": "// v.h\n"}


@pytest.mark.parametrize(
    "problem", ["validation: custom interactive\n", "problem_format_version: 2023-07\ntype: interactive\n"]
)
def test_kattis_interactive_problems(tmp_path: Path, problem: str) -> None:
    folder = kattis(tmp_path, problem=problem, output_validator__guess_py=_SAME, **{"data__sample__1.interaction": ">1\n<2\n"})
    task = load(folder)
    assert (task.tests.checker, task.tests.interactor.code, task.sample_input) == (None, _SAME, None)
    assert task.prompt.endswith("Example\n\n>1\n<2")


def test_time_limits_of_kattis_packages(tmp_path: Path) -> None:
    folder = kattis(tmp_path, problem="limits: {time_limit: 2.5}\n")
    assert load(folder).limits.cpu_timeout == 2.5
    for name, text in {"domjudge-problem.ini": "timelimit='3'\n", ".timelimit": "4\n"}.items():
        write(kattis(tmp_path), {name: text})
        assert load(folder).limits.cpu_timeout == float(text.strip("timel='\n"))


@pytest.mark.parametrize(
    ("problem", "complaint"),
    [
        ("type: [multi-pass]\n", "type multi-pass is not supported: a program runs once"),
        ("type: submit-answer\n", "type submit-answer is not supported"),
        ("validation: custom interactive\n", "to have a program in output_validators or output_validator"),
    ],
)
def test_unsupported_kattis_packages_are_refused(tmp_path: Path, problem: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(kattis(tmp_path, problem=problem))


def test_groups_with_different_flags_are_refused(tmp_path: Path) -> None:
    flags = {
        "data__secret__group__testdata.yaml": "output_validator_flags: case_sensitive\n",
        "data__secret__testdata.yaml": "output_validator_flags: ''\n",
    }
    with pytest.raises(ConfigurationError, match="groups of tests whose output validators have different flags"):
        load(kattis(tmp_path, **flags))


def test_directories_of_packages_are_suites(tmp_path: Path) -> None:
    polygon(tmp_path)
    (kattis(tmp_path) / "problem.yaml").write_text("- 1\n")
    with pytest.raises(ConfigurationError, match=r"problem.yaml to be a mapping.*unsupported='skip'"):
        load_suite(tmp_path)
    suite = load_suite(tmp_path, unsupported="skip", limits=GradingLimits(cpu_timeout=7))
    assert [(task.id, task.limits.cpu_timeout) for task in suite] == [("sum", 7)]


def test_tasks_of_repositories_have_no_limits(tmp_path: Path) -> None:
    write(tmp_path / "task", {"task.toml": "", "instruction.md": ""})
    with pytest.raises(ConfigurationError, match="a task of a repository, which has no options but"):
        load(tmp_path, language="cpp")


_GROUP = '<group name="1" points-policy="{}"><dependencies><dependency group="0"/></dependencies></group>'


@pytest.mark.parametrize(
    ("tests", "groups"),
    [
        (f'<test group="0"/><test group="1" points="30"/>|{_GROUP.format("complete-group")}', [(30, (0, 1))]),
        (
            f'<test group="0" points="10"/><test group="1" points="30"/>|{_GROUP.format("each-test")}',
            [(10, (0,)), (30, (0, 1))],
        ),
        ('<test points="10.5"/><test points="0"/>|', [(10.5, (0,))]),
        ("<test/><test/>|", []),
    ],
)
def test_points_of_polygon_belong_to_groups(tmp_path: Path, tests: str, groups: list[tuple[float, tuple[int, ...]]]) -> None:
    path = polygon(tmp_path) / "problem.xml"
    parts = "<tests>{}</tests><groups>{}</groups>".format(*tests.split("|"))
    path.write_text(re.sub(r"<tests>.*</tests>", parts, path.read_text()))
    assert load(tmp_path).tests.groups == tuple(CaseGroup(points=points, cases=cases) for points, cases in groups)


def test_points_that_are_no_number_are_refused(tmp_path: Path) -> None:
    path = polygon(tmp_path) / "problem.xml"
    path.write_text(path.read_text().replace('sample="true"', 'sample="true" points="many"'))
    with pytest.raises(ConfigurationError, match=r"Expected the points of a test of problem.xml to be a number, got 'many'"):
        load(tmp_path)
    kattis(tmp_path / "k", problem="type: scoring\n", **{"data/secret/group/testdata.yaml": "accept_score: many\n"})
    with pytest.raises(ConfigurationError, match=r"Expected the points of .*group to be a number: .*many"):
        load(tmp_path / "k")


@pytest.mark.parametrize(
    ("settings", "groups"),
    [
        ({"group/testdata.yaml": "accept_score: 40\ngrader_flags: min\n"}, [(40, (1, 2)), (1, (3,))]),
        ({"group/testdata.yaml": "accept_score: 4\n"}, [(4, (1,)), (4, (2,)), (1, (3,))]),
        (
            {
                "group/test_group.yaml": "max_score: 40\n",
                "other/test_group.yaml": "max_score: 60\nscore_aggregation: sum\nrequire_pass: [sample, secret/group]\n",
            },
            [(40, (1, 2)), (60, (0, 1, 2, 3))],
        ),
    ],
)
def test_points_of_kattis_belong_to_groups(
    tmp_path: Path, settings: dict[str, str], groups: list[tuple[float, tuple[int, ...]]]
) -> None:
    tests = {
        f"data/secret/{name}.{kind}": text
        for name in ("group/11", "other/1")
        for kind, text in (("in", "1 1\n"), ("ans", "2\n"))
    }
    settings = {f"data/secret/{name}": text for name, text in settings.items()}
    kattis(tmp_path, problem="type: scoring\n", **tests, **settings)
    assert load(tmp_path).tests.groups == tuple(CaseGroup(points=points, cases=cases) for points, cases in groups)
    (tmp_path / "sum" / "problem.yaml").write_text("name: The Sum\n")
    assert load(tmp_path).tests.groups == ()


def test_links_count_only_where_files_are_used(tmp_path: Path) -> None:
    folder = kattis(tmp_path)
    for name in ("input_validators", "output_validators"):
        (folder / name).mkdir()
    (folder / "input_validators" / "validate.h").symlink_to(tmp_path / "shared.h")
    assert load(tmp_path).id == "sum"
    (folder / "output_validators" / "validate.h").symlink_to(tmp_path / "shared.h")
    with pytest.raises(ConfigurationError, match=r"validate.h is neither .*: replace it by a file"):
        load(tmp_path)
