"""Jupyter kernels, through sessions of a real server: Deno's over TCP, ipykernel's over Unix sockets."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from coding_gym_server.protocol.backends import UnknownBackendError, canonical_backend, check_backend
from coding_gym_server.worker.backends.jupyter.kernelspecs import installed_kernels, missing_kernel
from coding_gym_server.worker.backends.registry import backend_class, check_installed
from tests.support.requirements import import_extra
from tests.support.sandbox_processes import command_line
from tests.support.timing import eventually

for _library in ("deno", "ipykernel", "jupyter_client"):
    import_extra(_library)

KERNELS = {"deno": "jupyter:deno", "python": "jupyter:python3"}


ECHO_KERNEL = """
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel

class Echo(Kernel):
    implementation, implementation_version, banner = "Echo", "1", ""
    language_info = {"name": "echo", "mimetype": "text/plain", "file_extension": ".txt"}

    async def do_execute(self, code, silent, *_, **__):
        self.send_response(self.iopub_socket, "stream", {"name": "stdout", "text": code})
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

IPKernelApp.launch_instance(kernel_class=Echo)
"""


@pytest.fixture
def deno(open_session):
    return open_session("jupyter:deno")


@pytest.fixture(params=KERNELS)
def kernel(request, open_session):
    session = open_session(KERNELS[request.param])
    session.is_deno = request.param == "deno"
    return session


@pytest.fixture
def context(interpreter):
    interpreter.use_fresh_context(language="typescript")
    return interpreter


def test_state_persists_between_cells(kernel):
    assert kernel.run("let x = 41" if kernel.is_deno else "x = 41")["stdout"] == ""
    step = kernel.run("console.log('a'); x + 1" if kernel.is_deno else "print('a'); x + 1")
    assert (step["stdout"], step["stderr"], step["exit_code"], step["outcome"]) == ("a\n42\n", "", 0, "ok")
    kernel.reset(show_value=False)
    assert kernel.run("5")["stdout"] == ""
    step = kernel.run("x")
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (1, "error", False)
    assert "x is not defined" in step["stderr"] or "'x' is not defined" in step["stderr"]


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("const x: number = await Promise.resolve(5); x", "5\n"),
        ("enum E { A = 4 }\ninterface I { z: number }\nconst i: I = { z: E.A }; i", "{ z: 4 }\n"),
        ("let y = 1; let z = 2;\nconst y2 = y + z; y2", "3\n"),
        ('import { join } from "node:path"; join("a", "b")', '"a/b"\n'),
        ('console.log("grüße 🎉 \\ud800 \\0")', "grüße 🎉 \ufffd \ufffd\n"),
        ("console.log({ a: [1, { b: null }] }, 1n, undefined)", "{ a: [ 1, { b: null } ] } 1n undefined\n"),
        ('process.stdout.write("node\\n"); Deno.stdout.writeSync(new TextEncoder().encode("deno\\n"));', "node\ndeno\n5\n"),
        ('console.log(prompt("?"))', "null\n"),
        ('await new Promise((resolve) => setTimeout(resolve, 30)); console.log("later")', "later\n"),
        ('Deno.writeTextFileSync("f", "text"); Deno.readTextFileSync("f")', '"text"\n'),
        ('new TextDecoder().decode(new Deno.Command("echo", { args: ["hi"] }).outputSync().stdout)', '"hi\\n"\n'),
        (
            'console.log("a"); await Deno.jupyter.display({ "text/plain": "D" }, { raw: true }); console.log("b"); 7',
            "a\nD\nb\n7\n",
        ),
        ("undefined", ""),
        ("", ""),
    ],
)
def test_typescript(shared_deno, code, stdout):
    step = shared_deno.run(code)
    assert (step["stdout"], step["stderr"], step["exit_code"]) == (stdout, "", 0)


@pytest.mark.parametrize(
    ("code", "stderr"),
    [
        ('throw new TypeError("no")', "TypeError: no\n    at "),
        ("const f = () => { null.x };\nf()", "TypeError: Cannot read properties of null"),
        ('throw "text"', "Error: text\n"),
        ('await Promise.reject(new Error("late"))', "Error: late"),
        ("if (", "SyntaxError: "),
        ("syntax error", "SyntaxError: Expected ';'"),
        ('await fetch("http://127.0.0.1:8000")', "TypeError: fetch failed"),
        ('new Deno.Command("nosuchprogram").outputSync()', "NotFound"),
    ],
)
def test_exceptions(shared_deno, code, stderr):
    step = shared_deno.run(f"console.log(1);{code}" if "rror" not in stderr[:12] else code)
    assert step["stderr"].startswith(stderr)
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (1, "error", False)
    assert shared_deno.run("1 + 1")["stdout"] == "2\n"


def test_timeout_interrupts_endless_loop(kernel):
    kernel.run("let x = 5" if kernel.is_deno else "x = 5")
    step = kernel.run("while (true) {}" if kernel.is_deno else "while True: pass", timeout=0.5)
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (124, "timeout", False)
    assert kernel.run("x")["stdout"] == "5\n"


def test_client_can_interrupt(kernel):
    kernel.run("1")
    kernel.begin("while (true) {}" if kernel.is_deno else "while True: pass")
    time.sleep(0.2)
    kernel.interrupt()
    assert kernel.wait()["exit_code"] == 130
    assert kernel.run("2")["stdout"] == "2\n"


def test_uninterruptible_wait_restarts_kernel(deno):
    deno.run("let x = 5")
    step = deno.run("await new Promise((resolve) => setTimeout(resolve, 1e6))", timeout=0.3)
    assert (step["exit_code"], step["state_lost"]) == (124, True)
    assert deno.run("typeof x")["stdout"] == '"undefined"\n'


@pytest.mark.parametrize("line", ['"x".repeat(1000)', '"x"'])
def test_flood_of_output_is_bounded(shared_deno, line):
    shared_deno.run("let x = 5")
    step = shared_deno.run(f"while (true) console.log({line})", timeout=0.5)
    assert step["exit_code"] == 124
    assert len(step["stdout"]) == 16_384
    # A kernel that is too busy with its output to handle the interrupt in time is restarted.
    kept = shared_deno.run("typeof x")["stdout"]
    assert kept == ('"undefined"\n' if step["state_lost"] else '"number"\n')


def test_many_lines_are_truncated_in_middle(shared_deno):
    step = shared_deno.run("for (let i = 0; i < 200_000; i++) console.log(i)")
    assert step["stdout"].startswith("0\n1\n")
    assert step["stdout"].endswith("199998\n199999\n")
    assert "characters cut" in step["stdout"]


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [
        ('console.log("last words"); Deno.exit(3)', 3),
        ('console.log("last words"); process.exit(4)', 4),
        ('console.log("last words"); await 0; Deno.kill(Deno.pid, "SIGKILL")', 137),
    ],
)
def test_kernel_death_in_cell_loses_state(deno, end, exit_code):
    deno.run("let x = 5")
    step = deno.run(end)
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (exit_code, "killed", True)
    if exit_code != 137:
        assert step["stdout"] == "last words\n"
    assert deno.run("typeof x")["stdout"] == '"undefined"\n'


def kernels_of(server):
    programs = psutil.Process(server.process.pid).children(recursive=True)
    return {program for program in programs if " jupyter " in command_line(program)}


def test_kernel_death_between_cells_restarts_kernel(open_session, server):
    before = kernels_of(server)
    deno = open_session("jupyter:deno")
    deno.run("1")
    (kernel,) = kernels_of(server) - before
    worker = kernel.parent()
    kernel.kill()
    # A cell that is sent before the server has noticed is lost with the kernel.
    assert eventually(lambda: not worker.is_running())
    httpx.get(f"{server.url}/health", trust_env=False).raise_for_status()
    step = deno.run("6 * 7")
    assert (step["stdout"], step["exit_code"], step["state_lost"]) == ("42\n", 0, True)


def test_kernel_death_at_start_shows_stderr(open_session, kernel_spec):
    kernel_spec("dying", {"argv": ["sh", "-c", "echo reason >&2; exit 9"], "display_name": "Dying", "language": "none"})
    step = open_session("jupyter:dying").run("1")
    assert (step["exit_code"], step["outcome"]) == (9, "killed")
    assert "reason" in step["stderr"]


@pytest.fixture
def kernel_spec():
    """Function that installs a kernelspec next to the interpreter's for one test."""
    made = []

    def install(name, spec):
        directory = Path(sys.prefix, "share", "jupyter", "kernels", name)
        directory.mkdir(parents=True)
        made.append(directory)
        (directory / "kernel.json").write_text(json.dumps(spec))

    yield install
    for directory in made:
        (directory / "kernel.json").unlink()
        directory.rmdir()


def test_missing_kernel_is_refused(open_session):
    with pytest.raises(ValueError, match=r"The 'nope' kernel is not available\. Please pick another suitable kernel instead"):
        open_session("jupyter:nope")
    with pytest.raises(ValueError, match="expected one of python, "):
        open_session("jupyter:../../etc")


def test_backend_names_are_validated(kernel_spec):
    assert {"deno", "python3"} <= installed_kernels().keys()
    check_backend("jupyter:anything")
    check_installed("jupyter:deno")
    check_installed("python")
    with pytest.raises(UnknownBackendError):
        check_installed("jupyter:anything")
    for name in ("jupyter:", "jupyter:a/b", "jupyter", ""):
        with pytest.raises(UnknownBackendError):
            check_backend(name)
    kernel_spec("gone", {"argv": ["/no/such/program"], "display_name": "Gone", "language": "none"})
    assert "gone" not in installed_kernels()
    assert backend_class("jupyter:bash") is backend_class("bash")


@pytest.mark.parametrize(
    ("language", "backend", "said"),
    [
        ("java", "jupyter:jjava", r"languages=\('java',\) .*'apt install default-jdk-headless' and 'pip install jjava'"),
        ("r", "jupyter:ir", r"languages=\('r',\) .*'apt install r-base-core r-cran-irkernel'"),
        ("javascript", "jupyter:deno", "The 'deno' kernel is not available"),
    ],
)
def test_languages_are_names_of_their_kernels(language, backend, said):
    assert canonical_backend(language) == backend
    assert re.search(said, missing_kernel(backend.removeprefix("jupyter:")))


def test_sessions_are_isolated(open_session):
    one, other = open_session("jupyter:deno"), open_session("jupyter:deno")
    one.run('globalThis.secret = 1; Deno.writeTextFileSync("f", "")')
    assert other.run('[typeof secret, [...Deno.readDirSync(".")].length]')["stdout"] == '[ "undefined", 0 ]\n'


def test_reset_starts_fresh_kernel(server, open_session):
    before = kernels_of(server)
    deno = open_session("jupyter:deno")
    deno.run("let x = 5")
    (kernel,) = kernels_of(server) - before
    deno.reset()
    assert deno.run("x")["exit_code"] == 1
    assert not kernel.is_running()


def test_reset_during_kernel_start_works(deno):
    for _ in range(3):
        deno.reset()
    assert deno.run("1")["stdout"] == "1\n"


@pytest.mark.parametrize("language", ["js", "ipy"])
def test_environment_variables_last_one_cell(interpreter, kernel_spec, language):
    if language == "ipy":
        argv = ["python", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel_spec("ipy", {"argv": argv, "display_name": "Python", "language": "python", "env": {"A": "${LANG}"}})
    interpreter.use_fresh_context(language=language)
    show = "console.log(%s)" if language == "js" else "import os; print(%s)"
    get = "Deno.env.get('%s')" if language == "js" else "os.environ.get('%s')"
    value = "ü🎉 \"'`${1}\\ \n{}%s"
    assert interpreter.execute(show % (get % "A"), env_vars={"A": value, "HOME": "h"}).stdout == f"{value}\n"
    before = "undefined" if language == "js" else "C.UTF-8"
    after = interpreter.execute(show % f"{get % 'A'}, {get % 'HOME'}").stdout
    assert after.startswith(f"{before} /")
    assert interpreter.execute("throw 1" if language == "js" else "1 / 0", env_vars={"A": value}).error is not None
    assert interpreter.execute(show % (get % "A")).stdout == f"{before}\n"


def test_unsupported_environment_variables_are_reported(interpreter, kernel_spec):
    kernel_spec(
        "echo", {"argv": ["python", "-c", ECHO_KERNEL, "-f", "{connection_file}"], "display_name": "Echo", "language": "echo"}
    )
    interpreter.use_fresh_context(language="echo")
    assert interpreter.execute("hello").stdout == "hello"
    assert "cannot be set in echo: leave them out" in interpreter.execute("hello", env_vars={"A": "b"}).error["traceback"]
    assert interpreter.execute("again").stdout == "again"


def test_rich_results(context):
    execution = context.execute("console.log('out'); console.error('err'); ({ a: 1 })")
    assert (execution.stdout, execution.stderr, execution.text) == ("out\n", "err\n", "{ a: 1 }")
    execution = context.execute(
        "await Deno.jupyter.display(Deno.jupyter.html`<b>x</b>`); Deno.jupyter.svg`<svg/>`",
    )
    assert [result.get("html") or result.get("svg") for result in execution.results] == ["<b>x</b>", "<svg/>"]
    error = context.execute('throw new RangeError("far")').error
    assert (error["name"], error["value"]) == ("RangeError", "far")
    assert "RangeError: far" in error["traceback"]
    assert context.execute("if (").error["name"] == "SyntaxError"


def test_javascript_and_typescript_share_context(interpreter):
    interpreter.execute("globalThis.shared = 1", language="javascript")
    assert interpreter.execute("shared as number", language="ts").text == "1"
    response = interpreter.post("1", language="cobol")
    assert response.status_code >= 400


def test_eight_kernels_run_concurrently(open_session):
    sessions = [open_session("jupyter:deno") for _ in range(8)]
    for number, session in enumerate(sessions):
        session.begin(f"let n = {number}")
    assert all(session.wait()["exit_code"] == 0 for session in sessions)
    for session in sessions:
        session.begin("n")
    assert [session.wait()["stdout"] for session in sessions] == [f"{number}\n" for number in range(8)]


def test_backend_works_in_sandbox(sandbox, connect):
    one, other = connect(sandbox), connect(sandbox)
    for session in (one, other):
        session.reset(backend="jupyter:deno")
    assert one.run('let x: number = await Promise.resolve(41); console.log("a"); x + 1').stdout == "a\n42\n"
    assert other.run("typeof x").stdout == '"undefined"\n'
    serve = 'const s = Deno.serve({ hostname: "127.0.0.1", port: 8000 }, () => new Response("own")); await 0'
    ask = 'await (await fetch("http://127.0.0.1:8000")).text()'
    one.run(serve)
    assert (one.run(ask).stdout, other.run(ask).stdout) == ('"own"\n', "")
    assert one.run("while (true) {}", timeout=0.5).exit_code == 124
    assert one.run("x").stdout == "41\n"
    assert one.run("Deno.exit(3)").exit_code == 3
    assert one.run("1").stdout == "1\n"
