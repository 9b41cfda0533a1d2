"""The code interpreter of a sandbox with E2B's SDK."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym_server.worker.backends.registry import is_installed
from tests.support.requirements import import_extra
from tests.support.timing import eventually, promptly

import_extra("e2b")
e2b = import_extra("e2b_code_interpreter")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def sandbox(options):
    sandbox = e2b.Sandbox.create(envs={"TOPIC": "graphs"}, **options)
    yield sandbox
    sandbox.kill()


def test_code_shares_files_with_commands(sandbox):
    execution = sandbox.run_code("import os; open('note', 'w').write(os.environ['TOPIC']); 6 * 7")
    assert execution.text == "42"
    assert sandbox.commands.run("cat note").stdout == "graphs"


def test_errors_and_output_are_reported(sandbox):
    execution = sandbox.run_code("print('before')\n1 / 0")
    assert execution.logs.stdout == ["before\n"]
    assert execution.error.name == "ZeroDivisionError"


def test_live_interpreter_is_forked(sandbox):
    sandbox.run_code("values = iter(range(100)); next(values); data = bytearray(100 << 20)")
    sandbox.files.write("note", "x")
    forks = sandbox.fork(count=8)
    assert [fork.run_code("next(values) + len(data)").text for fork in forks] == [str(1 + (100 << 20))] * 8
    assert sandbox.run_code("next(values)").text == "1"
    for fork in forks:
        fork.kill()


def test_contexts_share_files_and_no_variables(sandbox):
    sandbox.run_code("open('note', 'w').write('shared'); x = 1")
    context = sandbox.create_code_context(cwd="/tmp")
    assert (context.language, context.cwd) == ("python", "/tmp")
    execution = sandbox.run_code("import os; open(os.path.expanduser('~/note')).read(), os.getcwd()", context=context)
    assert execution.text == "('shared', '/tmp')"
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    sandbox.run_code("x = 2; open('/tmp/made', 'w').close()", context=context)
    assert sandbox.run_code("x").text == "1"
    assert sandbox.files.exists("/tmp/made")
    assert [item.id for item in sandbox.list_code_contexts()][-1] == context.id


def test_context_is_restarted_and_removed(sandbox):
    context = sandbox.create_code_context()
    sandbox.run_code("x = 1", context=context)
    sandbox.restart_code_context(context)
    assert sandbox.run_code("x", context=context).error.name == "NameError"
    sandbox.remove_code_context(context)
    with pytest.raises(Exception, match="not found"):
        sandbox.run_code("1", context=context)
    assert context.id not in [item.id for item in sandbox.list_code_contexts()]


def test_own_interpreter_of_a_sandbox_cannot_be_removed(sandbox):
    own = sandbox.list_code_contexts()[0]
    assert sandbox.run_code("1", context=own).text == "1"
    for refused in (sandbox.remove_code_context, sandbox.restart_code_context):
        with pytest.raises(Exception, match="interpreter of the session"):
            refused(own)
    assert sandbox.run_code("2", context=own).text == "2"


def test_other_languages(sandbox):
    sandbox.files.write("note", "x")
    assert sandbox.run_code("cat note; y=3", language="bash").logs.stdout == ["x"]
    assert sandbox.run_code('open my $f, "<", "note"; print <$f>;', language="perl").logs.stdout == ["x"]
    assert sandbox.run_code("echo $y $TOPIC", language="bash").logs.stdout == ["3 graphs\n"]
    with pytest.raises(Exception, match="Failed to create context"):
        sandbox.run_code("1", language="cobol")


@pytest.mark.skipif(not is_installed("java"), reason="this machine lacks a JDK or the distribution jjava")
def test_variables_are_properties_of_java(sandbox):
    assert sandbox.run_code('System.getProperty("TOPIC")', language="java").text == "graphs"
    assert sandbox.run_code('System.getProperty("TOPIC")', language="java", envs={"TOPIC": "trees"}).text == "trees"


def test_contexts_of_sandboxes_are_apart(options, sandbox):
    other = e2b.Sandbox.create(**options)
    try:
        context = sandbox.create_code_context()
        with pytest.raises(Exception, match="not found"):
            other.run_code("1", context=context)
        assert not other.run_code("import os; os.path.exists('note')", context=other.create_code_context()).error
    finally:
        other.kill()


def test_fork_has_interpreter_without_other_contexts(sandbox):
    sandbox.run_code("x = 1")
    context = sandbox.create_code_context()
    (fork,) = sandbox.fork()
    try:
        assert fork.run_code("x").text == "1"
        assert context.id not in [item.id for item in fork.list_code_contexts()]
        fork.files.write("of-fork", "x")
        execution = fork.run_code("import os; os.listdir()", context=fork.create_code_context())
        assert "'of-fork'" in execution.text
        assert not sandbox.files.exists("of-fork")
    finally:
        fork.kill()


def test_number_of_contexts_is_limited(sandbox):
    for _ in range(15):
        sandbox.create_code_context()
    with pytest.raises(Exception, match="16"):
        sandbox.create_code_context()
    assert sandbox.run_code("1").text == "1"


def test_context_ends_with_its_sandbox(options):
    sandbox = e2b.Sandbox.create(**options)
    context = sandbox.create_code_context()
    with ThreadPoolExecutor() as threads, promptly():
        running = threads.submit(
            sandbox.run_code, "open('begun', 'w').close()\nimport time\nwhile True: time.sleep(1)", context=context
        )
        assert eventually(lambda: sandbox.files.exists("begun"))
        sandbox.kill()
        with pytest.raises(e2b.TimeoutException, match="killed"):
            running.result()


@pytest.mark.parametrize("end", ["kill", "expire"])
def test_execution_ends_with_its_sandbox(options, end):
    sandbox = e2b.Sandbox.create(**options)
    with ThreadPoolExecutor() as threads, promptly():
        running = threads.submit(sandbox.run_code, "open('begun', 'w').close()\nimport time\nwhile True: time.sleep(1)")
        assert eventually(lambda: sandbox.files.exists("begun"))
        if end == "kill":
            sandbox.kill()
        else:
            sandbox.set_timeout(0)
        with pytest.raises(e2b.TimeoutException, match="killed"):
            running.result()
