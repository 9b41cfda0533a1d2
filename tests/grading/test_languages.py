"""Programs in languages of the table, with the compilers and interpreters that this machine has."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from coding_gym.errors import ConfigurationError
from coding_gym_server.languages import UnknownLanguageError, find_language, languages, packages_of
from coding_gym_server.packages.system import check_system_packages
from coding_gym_server.protocol.grading import (
    CaseOutcome,
    FileContent,
    Graded,
    GradingLimits,
    ProgramCase,
    Programs,
    Submission,
    VerdictOutcome,
)
from tests.grading.judging import Judge, grade_all

_LIMITS = GradingLimits(cpu_timeout=5.0, wall_timeout=30.0)
_SUMS = tuple(ProgramCase(stdin=f"{number} {number + 1}\n", stdout=f"{2 * number + 1}\n") for number in range(3))

ADD = {
    "bash": 'read a b; echo "$((a + b))"',
    "c": '#include <stdio.h>\nint main(void) { long a, b; scanf("%ld %ld", &a, &b); printf("%ld\\n", a + b); return 0; }',
    "cpp": "#include <bits/stdc++.h>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }",
    "java": (
        "import java.util.*;\n\npublic final class Sum {\n  public static void main(String[] args) {\n"
        "    Scanner in = new Scanner(System.in);\n    System.out.println(in.nextLong() + in.nextLong());\n  }\n}"
    ),
    "javascript": "const [a, b] = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\nconsole.log(a + b);",
    "perl": 'my ($a, $b) = split " ", <STDIN>; print $a + $b, "\\n";',
    "python": "print(sum(map(int, input().split())))",
    "ruby": "puts gets.split.map(&:to_i).sum",
    "rust": (
        "fn main() { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap();\n"
        '  println!("{}", s.split_whitespace().map(|x| x.parse::<i64>().unwrap()).sum::<i64>()); }'
    ),
}


DEEP = {
    "cpp": (
        "#include <cstdio>\nlong f(volatile long n) { return n ? f(n - 1) + n % 2 : 0; }\n"
        'int main() { long n; std::scanf("%ld", &n); std::printf("%ld\\n", f(n)); }'
    ),
    "java": (
        "class Deep { static long f(long n) { return n == 0 ? 0 : f(n - 1) + n % 2; }\n  public static void main(String[] a) "
        "{ System.out.println(f(new java.util.Scanner(System.in).nextLong())); } }"
    ),
    "javascript": "const f = n => n === 0 ? 0 : f(n - 1) + n % 2;\nconsole.log(f(+require('fs').readFileSync(0)));",
    "python": (
        "import functools, sys\nsys.setrecursionlimit(10**7)\n@functools.lru_cache(None)\n"
        "def f(n): return f(n - 1) + n % 2 if n else 0\nprint(f(int(input())))"
    ),
    "rust": (
        "#[inline(never)]\nfn f(n: u64) -> u64 { if n == 0 { 0 } else { std::hint::black_box(f(n - 1)) + n % 2 } }\n"
        "fn main() { let mut s = String::new(); std::io::stdin().read_line(&mut s).unwrap();\n"
        '  println!("{}", f(s.trim().parse().unwrap())); }'
    ),
}
"""Programs that count half of their nested calls."""


@pytest.fixture
def run(judge: Judge):
    """Function that grades a program in a language that this machine has."""

    def grade(language: str, code: str, *cases: ProgramCase, **options) -> Graded:
        options.setdefault("limits", _LIMITS)
        try:
            return judge(Submission(code=code, tests=Programs(cases=cases or _SUMS, language=language), **options))
        except ConfigurationError as error:
            # Including programs that only this user may execute, such as those of rustup.
            pytest.skip(str(error))

    return grade


@pytest.mark.parametrize("language", sorted(ADD))
def test_right_and_wrong_programs(run, language):
    right = run(language, ADD[language])
    assert (right.outcome, right.stderr) == (VerdictOutcome.PASSED, "")
    assert [case.outcome for case in right.cases] == [CaseOutcome.PASSED] * 3
    wrong = run(language, ADD[language].replace("+", "-").replace("sum", "max"))
    assert wrong.outcome in (VerdictOutcome.FAILED, VerdictOutcome.ERROR)


def test_what_a_compiler_refuses_is_an_error_with_its_text(run):
    graded = run("cpp", "int main() { return missing; }")
    assert graded.outcome is VerdictOutcome.ERROR
    assert graded.message.startswith("g++: exit code 1\nmain.cpp: In function")
    assert re.search("missing.{0,5} was not declared", graded.message)
    assert {case.outcome for case in graded.cases} == {CaseOutcome.NOT_RUN}


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("int main() { for (;;); }", CaseOutcome.TIMEOUT),
        ("#include <cstdlib>\nint main() { abort(); }", CaseOutcome.KILLED),
        ("int main() { return 3; }", CaseOutcome.ERROR),
        ('#include <cstdio>\nint main() { puts("5"); }', CaseOutcome.FAILED),
    ],
)
def test_how_programs_end(run, code, outcome):
    graded = run("cpp", code, _SUMS[0], limits=GradingLimits(cpu_timeout=0.5, wall_timeout=30.0))
    assert [case.outcome for case in graded.cases] == [outcome]


def test_standards_are_languages(run):
    code = "#include <iostream>\nint main() { std::cout << __cplusplus << std::endl; }"
    assert run("c++", code, ProgramCase(stdout="201703")).outcome is VerdictOutcome.PASSED
    assert run("cpp20", code, ProgramCase(stdout="202002")).outcome is VerdictOutcome.PASSED


def test_source_is_compiled_once(run, local_sandbox):
    """The time of compilation is in the program; equal submissions at once share one compiler."""
    code = '#include <cstdio>\nint main() { puts(__TIME__ " " __DATE__); }'
    graded = run("cpp", code, ProgramCase(stdout="x"))
    compiled = graded.stdout
    tests = Programs(cases=(ProgramCase(stdout=compiled),) * 3, language="cpp")
    submissions = [Submission(code=code, tests=tests, limits=_LIMITS) for _ in range(8)]
    assert {graded.outcome for graded in grade_all(local_sandbox, submissions)} == {VerdictOutcome.PASSED}


def test_programs_cannot_change_what_the_next_run_executes(run):
    code = """
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
int main() {
  unlink("main");
  system("printf '#!/bin/sh\\\\necho forged' > main; chmod +x main; cp main /tmp/main");
  puts("1");
}
"""
    cases = [ProgramCase(stdout="1")] * 3
    assert run("cpp", code, *cases).outcome is VerdictOutcome.PASSED


@pytest.mark.parametrize(
    ("language", "depth"),
    [("cpp", 1_000_000), ("java", 200_000), ("javascript", 200_000), ("python", 60_000), ("rust", 1_000_000)],
)
def test_calls_can_be_nested_more_deeply_than_the_usual_stack_permits(run, language, depth):
    if language == "python" and sys.version_info >= (3, 12):
        pytest.skip("since Python 3.12, the interpreter itself limits recursion in C")
    graded = run(language, DEEP[language], ProgramCase(stdin=f"{depth}\n", stdout=f"{depth // 2}"))
    assert graded.outcome is VerdictOutcome.PASSED, graded


JAVA_PROGRAMS = {
    "no class is public": "class Helper {{}}\nclass Solution {{ {main} }}",
    "another class has main, too": "class A {{ public static void main(String[] a) {{}} }}\nclass Main {{ {main} }}",
    "the public class has no main": "public class Data {{}}\nclass Start {{ {main} }}",
    "a package": "package a.b;\npublic final class Start {{ {main} }}",
    "a comment and a string": '/* public class A */\nclass B {{ String s = "public class C"; }}\npublic class D {{ {main} }}',
    "a nested class": "class Outer {{ public interface Inner {{}} {main} }}",
}


@pytest.mark.parametrize("kind", JAVA_PROGRAMS)
def test_main_class_of_java_is_found(run, kind):
    code = JAVA_PROGRAMS[kind].format(main='public static void main(String... a) { System.out.println("ok"); }')
    graded = run("java", code, ProgramCase(stdout="ok"))
    assert graded.outcome is VerdictOutcome.PASSED, graded


@pytest.mark.parametrize("code", ['#include "/dev/zero"\n', "template<int N> struct A { A<N + 1> a; }; A<0> a;\n"])
def test_sources_that_exhaust_a_compiler(run, code):
    graded = run("cpp", code + "int main() {}")
    assert graded.outcome is VerdictOutcome.ERROR
    assert len(graded.message) < 20_000
    assert run("cpp", ADD["cpp"]).outcome is VerdictOutcome.PASSED


def test_files_are_beside_the_program(run):
    code = '#include "table.h"\n#include <cstdio>\nint main() { std::printf("%d", table[1]); }'
    graded = run("cpp", code, ProgramCase(stdout="7"), files={"table.h": "static int table[] = {3, 7};"})
    assert graded.outcome is VerdictOutcome.PASSED
    reads = 'open my $f, "<", "in.bin" or die; print -s $f;'
    graded = run("perl", reads, ProgramCase(stdout="3"), files={"in.bin": FileContent(b"\0\1\2")})
    assert graded.outcome is VerdictOutcome.PASSED


def test_language_that_is_not_there_is_refused(judge):
    lacking = next((name for name, language in languages().items() if language.missing()), None)
    if lacking is None:
        pytest.skip("this machine has all languages")
    with pytest.raises(ConfigurationError, match=rf"lacks .*{re.escape(lacking)}.*languages=\('{re.escape(lacking)}',\)"):
        judge(Submission(code="", tests=Programs(cases=_SUMS, language=lacking)))


def test_unknown_languages_are_refused():
    with pytest.raises(UnknownLanguageError, match=r"expected a language, one of python, c, cpp, .*got 'klingon'"):
        Programs(cases=(), language="klingon")
    assert Programs(cases=(), language="C++").language == "C++"


def test_table():
    names = list(languages())
    aliases = [alias for name in names for alias in (name, name.upper())]
    assert [find_language(alias).name for alias in aliases] == [name for name in names for _ in range(2)]
    check_system_packages(packages_of(names))
    for language in languages().values():
        assert language.needs
        assert language.product == language.file or language.compile


def test_page_has_all_languages():
    page = (Path(__file__).parents[2] / "docs" / "languages.md").read_text()
    assert all(f"`{name}`" in page for name in languages())
    matrix = page.partition("<!-- matrix -->")[2].partition("<!-- end -->")[0]
    assert all(f"\n| `{name}` |" in matrix for name in ("c", "cpp", "java", "go", "rust", "kotlin"))


def test_java_programs_have_the_file_of_their_public_class():
    java = find_language("java")
    assert java.of_program("class A {}\npublic abstract class B {}").file == "B.java"
    assert java.of_program("class A { public static void main(String[] a) {} }").file == "main.java"
