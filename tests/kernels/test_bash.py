"""The bash backend, through sessions of a real server."""

from __future__ import annotations

import pytest

from tests.support.timing import promptly


@pytest.fixture
def bash(open_session):
    return open_session("bash")


def test_state_persists_between_cells(bash):
    first = bash.run('x=5; arr=(1 "2 3"); f() { echo "f $1 $x"; }; alias ll="echo LL"; cd /usr; set -u; export E=e')
    assert (first["stdout"], first["stderr"], first["exit_code"], first["outcome"]) == ("", "", 0, "ok")
    assert bash.run('f a; pwd; ll; echo "${arr[1]}"; printenv E')["stdout"] == "f a 5\n/usr\nLL\n2 3\ne\n"
    assert "nope: unbound variable" in bash.run("echo $nope")["stderr"]


@pytest.mark.parametrize(
    ("code", "stdout", "exit_code"),
    [
        ("true", "", 0),
        ("false", "", 1),
        ("(exit 7)", "", 7),
        ("nosuchcommand", "", 127),
        ("exit 3", "", 3),
        ("echo a; exit 300", "a\n", 44),
        ("return 5; echo never", "", 5),
        ("", "", 0),
        ("# nothing", "", 0),
        ("if true; then\n  echo yes\nfi\n", "yes\n", 0),
        ("cat <<EOF\n$((6 * 7)) 'quoted'\nEOF", "42 'quoted'\n", 0),
        ("cat <<'EOF'\n$x\nEOF\n", "$x\n", 0),
        ("echo a; fi; echo b", "", 2),
        ("echo 'never ends", "", 2),
        ("cat; read line; echo $?", "1\n", 0),
        ("printf 'grüße 🎉 \\xff\\n'", "grüße 🎉 \ufffd\n", 0),
        ("echo $0 $#; [[ $- == *i* ]] || echo no", "bash 0\nno\n", 0),
        ("ls -1 /proc/self/fd | wc -l", "5\n", 0),
    ],
)
def test_cells(bash, code, stdout, exit_code):
    step = bash.run(code)
    assert (step["stdout"], step["exit_code"], step["state_lost"]) == (stdout, exit_code, False)


def test_errors_have_line_numbers_of_cell(bash):
    bash.run("true\ntrue")
    assert "line 2: nosuchcommand: command not found" in bash.run("echo a\nnosuchcommand")["stderr"]
    assert "line 3: syntax error" in bash.run("echo a\nif true; the")["stderr"]


@pytest.mark.parametrize("end", ["exit 3", "set -e; false; echo never", "set -u; echo $nope", "f() { exit 4; }; f"])
def test_exit_ends_only_cell(bash, end):
    bash.run('x=5; declare -A m=([k]="v w"); readonly R=1; g() { echo g; }; shopt -s extglob; cd /usr')
    assert bash.run(end)["exit_code"] in (1, 3, 4)
    after = bash.run('echo "$x ${m[k]} $R"; g; pwd; shopt -q extglob && echo extglob')
    assert (after["stdout"], after["stderr"], after["state_lost"]) == ("5 v w 1\ng\n/usr\nextglob\n", "", False)


def test_shell_options_survive_exit(bash):
    bash.run("set -euo pipefail; false")
    assert bash.run("[[ $- == *e* && $- == *u* ]] && set -o | grep pipefail | cut -f2; false | true")["stdout"] == "on\n"


@pytest.mark.parametrize("loop", ["while :; do :; done", "sleep 100; echo after", "yes", "echo $(sleep 100)"])
def test_interrupt_keeps_shell_state(bash, loop):
    bash.run("x=5")
    step = bash.run(loop, timeout=0.5)
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (124, "timeout", False)
    assert "after" not in step["stdout"]
    assert len(step["stdout"]) <= 16_384
    assert bash.run("echo $x")["stdout"] == "5\n"


@pytest.mark.parametrize("end", ["true", "exit 3"])
@pytest.mark.parametrize("timeout", [0.001, 0.002, 0.005, 0.01, 0.02])
def test_interrupt_of_a_cell_that_begins_keeps_shell_state(bash, end, timeout):
    bash.run("x=5; cd /usr")
    for _ in range(3):
        # After `exit`, the next cell begins while a new shell restores the state.
        bash.run(end)
        step = bash.run("sleep 100; echo after", timeout=timeout)
        assert (step["exit_code"], step["outcome"], step["state_lost"]) == (124, "timeout", False)
        assert bash.run("echo $x $PWD")["stdout"] == "5 /usr\n"


def test_interrupts_while_state_is_saved_do_not_lose_it(bash):
    bash.run("x=5; cd /usr")
    # A job in the background ignores the signal. Without pauses, no process of the group could fork: they become longer, as a
    # fork can take any time on a busy machine.
    pause = "for ((i = RANDOM % (500 + 5 * n++); i--; )); do :; done"
    interrupts = f"n=0; while kill -0 $$; do kill -INT 0; {pause}; done 2>/dev/null &"
    for _ in range(30):
        step = bash.run(f"{interrupts} sleep 100; echo after")
        assert (step["stdout"], step["exit_code"], step["state_lost"]) == ("", 130, False)
        assert bash.run("echo $x $PWD")["stdout"] == "5 /usr\n"


def test_traces_show_the_cell_alone(bash):
    bash.run("set -x")
    assert bash.run("echo a")["stderr"].count("printf") == 1  # which reports the exit code


def test_ignored_interrupt_restarts_shell(bash):
    step = bash.run("trap '' INT; while :; do :; done", timeout=0.3)
    assert (step["exit_code"], step["state_lost"]) == (124, True)
    assert bash.run("echo again")["stdout"] == "again\n"


def test_background_jobs_do_not_block_cells(bash):
    with promptly():
        assert bash.run("sleep 100 & (while :; do sleep 0.1; done) & echo started")["stdout"] == "started\n"
        assert bash.run("jobs -rp | wc -l")["stdout"] == "2\n"
        # The background jobs keep the descriptors inherited from the shell open.
        assert bash.run("exit 4")["exit_code"] == 4
        assert bash.run("echo on")["stdout"] == "on\n"


@pytest.mark.parametrize("end", ["kill -9 $$", "exec true", "trap 'echo bye' EXIT; exit 0"])
def test_killed_shell_loses_state(bash, end):
    bash.run("x=5")
    step = bash.run(end)
    assert (step["outcome"], step["state_lost"]) == ("killed", True)
    assert "variables are lost" in step["stderr"]
    assert bash.run('echo "[${x-unset}]"')["stdout"] == "[unset]\n"


def test_sessions_are_isolated_and_reset_clears(open_session):
    one, other = open_session("bash"), open_session("bash")
    one.run("x=1; echo secret > file")
    assert other.run('echo "[$x]"; ls')["stdout"] == "[]\n"
    one.reset()
    assert one.run('echo "[$x]"; ls')["stdout"] == "[]\n"


def test_environment_variables_last_one_cell(interpreter):
    interpreter.use_fresh_context(language="bash")
    interpreter.execute("export A=before; B=(1 2); readonly C=c")
    variables = {"A": "it's $(touch pwned) `x` \n\"", "B": "b", "D": "ü"}
    inside = interpreter.execute('printf "%s|" "$A" "$B" "$D"; printenv B D', env_vars=variables)
    assert inside.stdout == "it's $(touch pwned) `x` \n\"|b|ü|b\nü\n"
    after = interpreter.execute('declare -p A B; echo "[${D-unset}]"; ls')
    assert after.stdout == 'declare -x A="before"\ndeclare -a B=([0]="1" [1]="2")\n[unset]\n'
    # Nor do they outlive a cell that ends the shell.
    interpreter.execute("exit 1", env_vars={"D": "d"})
    assert interpreter.execute('echo "[${D-unset}]"').stdout == "[unset]\n"
    assert "cannot be a variable of bash" in interpreter.execute("echo", env_vars={"a-b": ""}).error["traceback"]


def test_interpreter_reports_output_and_exit_code(interpreter):
    interpreter.use_fresh_context(language="sh")
    execution = interpreter.execute("echo out; echo err >&2; (exit 7)")
    assert (execution.stdout, execution.stderr) == ("out\n", "err\n")
    assert (execution.error["name"], execution.error["value"]) == ("ExitCode", "7")


def test_jupyter_bash_selects_bash_backend(open_session):
    assert open_session("jupyter:bash").run("echo $BASH | wc -l")["stdout"] == "1\n"


def test_backend_works_in_sandbox(sandbox, connect):
    session = connect(sandbox)
    session.reset(backend="bash")
    session.run("x=5; set -e")
    assert session.run("false").exit_code == 1
    assert session.run("sleep 100", timeout=0.5).exit_code == 124
    assert session.run("echo $x").stdout == "5\n"
