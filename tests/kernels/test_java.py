"""Java's kernel, through sessions of a real server, if this machine has it."""

from __future__ import annotations

import pytest

from coding_gym_server.worker.backends.registry import is_installed

pytestmark = pytest.mark.skipif(not is_installed("java"), reason="this machine lacks a JDK or the distribution jjava")

_START_SECONDS = 60.0


@pytest.fixture
def java(open_session):
    session = open_session("java")
    session.run("int x = 41;", timeout=_START_SECONDS)
    return session


def test_state_persists_between_cells(java):
    java.run("int next(int n) { return n + 1; }\nimport java.util.stream.*;")
    step = java.run('System.out.println("grüße 🎉"); next(x)')
    assert (step["stdout"], step["stderr"], step["exit_code"], step["outcome"]) == ("grüße 🎉\n42\n", "", 0, "ok")
    assert java.run("IntStream.range(0, 3).boxed().toList()")["stdout"] == "[0, 1, 2]\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "java.lang.ArithmeticException: / by zero"),
        ('throw new IllegalStateException("no");', "java.lang.IllegalStateException: no"),
        ("int y = missing;", "symbol:   variable missing"),
        ('int z = "a";', "String cannot be converted to int"),
        ("int f( {", "|   int f( {"),
    ],
)
def test_errors(java, code, message):
    step = java.run(code)
    assert message in step["stderr"]
    assert (step["stdout"], step["exit_code"], step["state_lost"]) == ("", 1, False)


@pytest.mark.parametrize("code", ["while (true) { }", "Thread.sleep(100_000);"])
def test_limits_keep_the_state(java, code):
    step = java.run(code, timeout=2)
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (124, "timeout", False)
    assert java.run("x")["stdout"] == "41\n"


def test_interrupt_keeps_the_state(java):
    java.begin("while (true) { }", timeout=60)
    java.interrupt()
    step = java.wait()
    assert (step["exit_code"], step["state_lost"]) == (130, False)
    assert java.run("x")["stdout"] == "41\n"


def test_exit_is_a_dead_interpreter(java):
    step = java.run("System.exit(3);")
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (3, "killed", True)
    assert java.run("1 + 1", timeout=_START_SECONDS)["stdout"] == "2\n"


def test_environment_variables_last_one_cell(interpreter):
    interpreter.use_fresh_context(language="java")
    variables = {"A": "it's ü 🎉 \"\\ \n", "PATH": "/usr/bin:/bin"}
    program = """
System.out.print(System.getenv("A") + "|" + System.getenv("PATH") + "|");
var builder = new ProcessBuilder("printenv", "A");
builder.environment();  // which it would else take from the process, not from Java
System.out.print(new String(builder.start().getInputStream().readAllBytes()));
"""
    execution = interpreter.execute(program, env_vars=variables)
    assert (execution.error, execution.stdout) == (None, "it's ü 🎉 \"\\ \n|/usr/bin:/bin|it's ü 🎉 \"\\ \n\n")
    after = interpreter.execute('System.getenv("A") + System.getenv("PATH").contains("local")')
    assert after.text == "nulltrue"


def test_environment_variables_are_properties_as_in_e2b(interpreter):
    interpreter.use_fresh_context(language="java")
    interpreter.execute('System.setProperty("A", "before")')
    code = 'System.getProperty("A") + System.getProperty("B")'
    assert interpreter.execute(code, env_vars={"A": "a", "B": "b"}).text == "ab"
    assert interpreter.execute(code).text == "beforenull"


def test_results_are_rich(interpreter):
    interpreter.use_fresh_context(language="java")
    execution = interpreter.execute('display("shown"); 6 * 7')
    assert [(result["text"], result["is_main_result"]) for result in execution.results] == [("shown", False), ("42", True)]
    error = interpreter.execute("1 / 0").error
    assert "java.lang.ArithmeticException: / by zero" in error["traceback"]
