"""Cells in languages of the image that ``languages=`` makes: R's and Java's kernels, and programs in C++."""

from __future__ import annotations

import pytest

from coding_gym import CodeInterpreter
from coding_gym.tasks import Grader, ProgramCase, Programs, Task
from coding_gym_server.languages import distributions_of, packages_of
from tests.support.lasting_sandbox import lasting_sandbox

pytestmark = pytest.mark.docker

LANGUAGES = ("r", "java", "cpp")
_PATIENCE = 60.0


@pytest.fixture(scope="module")
def languages_sandbox(docker_engine):
    with lasting_sandbox(provider="docker", sessions=8, languages=LANGUAGES) as sandbox:
        yield sandbox


@pytest.fixture
def session(languages_sandbox, connect):
    def open_one(language):
        session = connect(languages_sandbox)
        session.reset(backend=language)
        return session

    return open_one


@pytest.fixture
def r(session):
    session = session("r")
    session.run("x <- 41", timeout=_PATIENCE)
    return session


@pytest.fixture(scope="module")
def interpreter(docker_engine):
    with CodeInterpreter(provider="docker", preload=(), languages=LANGUAGES) as interpreter:
        yield interpreter


def test_state_persists_between_cells(r):
    r.run("following <- function(n) n + 1")
    step = r.run('cat("grüße 🎉\\n"); following(x)')
    assert (step.stdout, step.stderr, step.exit_code) == ("grüße 🎉\n[1] 42\n", "", 0)
    assert r.run("y <- 2; invisible(3)").stdout == ""


@pytest.mark.parametrize(
    ("code", "message"),
    [('stop("no")', "no"), ("missing_variable", "object 'missing_variable' not found"), ("f(", "unexpected end of input")],
)
def test_errors(r, code, message):
    step = r.run(code)
    assert message in step.stderr
    assert (step.stdout, step.exit_code) == ("", 1)
    assert r.run("x").stdout == "[1] 41\n"


@pytest.mark.parametrize("code", ["while (TRUE) {}", "Sys.sleep(100)", 'repeat cat("0123456789\\n")'])
def test_limits_keep_the_state(r, code):
    step = r.run(code, timeout=2)
    assert step.exit_code == 124
    assert len(step.stdout) <= 16_384
    assert r.run("x").stdout == "[1] 41\n"


def test_killed_kernel_is_a_dead_interpreter(r):
    assert r.run("tools::pskill(Sys.getpid(), 9)").exit_code == 137
    assert r.run("exists('x')", timeout=_PATIENCE).stdout == "[1] FALSE\n"


def test_environment_variables_last_one_cell(interpreter):
    variables = {"A": "it's ü 🎉 \"\\ \n", "LANG": "C.UTF-8"}
    code = 'cat(Sys.getenv("A"), "|", sep = ""); system("printenv A")'
    # What the program prints comes by another way than what R prints.
    assert interpreter.execute(code, language="r", env_vars=variables).stdout.count(variables["A"]) == 2
    (after,) = interpreter.execute('Sys.getenv("A", unset = NA)', language="r").results
    assert after.data["text/plain"] == "[1] NA"


def test_results_are_rich(interpreter):
    (table,) = interpreter.execute("data.frame(a = c(1, 2))", language="r").results
    assert "<table" in table.html
    execution = interpreter.execute("plot(1:3)", language="r")
    assert execution.error is None
    assert execution.results[0].png


def test_programs_run_in_the_same_image(session):
    cpp = session("cpp")
    step = cpp.run('#include <iostream>\nint main() { std::cout << "hello" << std::endl; return 3; }', timeout=_PATIENCE)
    assert (step.stdout, step.stderr, step.exit_code) == ("hello\n", "", 3)
    assert cpp.run("int main() { for (;;); }", timeout=3).exit_code == 124


@pytest.mark.parametrize("standard", ["gnu++17", "gnu++20"])
def test_header_of_contests_is_compiled_in_advance(session, standard):
    compile_header = f"echo '#include <bits/stdc++.h>' | g++ -O2 -std={standard} -H -x c++ -c -o /dev/null - 2>&1 | grep '^!'"
    assert session("bash").run(compile_header, timeout=_PATIENCE).stdout.rstrip().endswith(f"/bits/stdc++.h.gch/{standard}")


def test_java_is_in_the_same_image(session):
    java = session("java")
    assert java.run("int x = 41;", timeout=_PATIENCE).exit_code == 0
    assert java.run("x + 1").stdout == "42\n"


def test_whole_programs_stay_programs():
    tests = Programs(cases=(ProgramCase(stdin="1 2", stdout="3"),), language="r")
    task = Task(id="sum", prompt="Print the sum of two numbers.", tests=tests)
    with Grader(provider="docker", languages=LANGUAGES, preload=()) as grader:
        verdict = grader.grade(task, 'cat(sum(scan(file("stdin"), quiet = TRUE)), "\\n")')
    assert verdict.solved


def test_languages_have_the_packages_of_their_kernels():
    assert packages_of(("r", "java")) == ("r-base-core", "default-jdk-headless", "r-cran-irkernel")
    assert distributions_of(("r", "java", "cpp", "javascript", "python")) == ("jjava",)
