"""The code interpreter of a sandbox with E2B's SDK."""

from __future__ import annotations

import pytest

from tests.support.requirements import import_extra

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


def test_other_languages_and_contexts_are_refused(sandbox):
    with pytest.raises(Exception, match="executes Python"):
        sandbox.run_code("1", language="r")
    with pytest.raises(Exception, match="one interpreter"):
        sandbox.create_code_context()
