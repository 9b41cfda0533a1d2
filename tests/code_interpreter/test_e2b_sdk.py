"""The unmodified E2B SDK from PyPI, against a plain container of the image."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.requirements import import_extra

import_extra("e2b_code_interpreter")

from e2b_code_interpreter import AsyncSandbox, Sandbox  # noqa: E402
from e2b_code_interpreter.charts import BarChart, LineChart, PieChart, ScatterChart  # noqa: E402

pytestmark = [
    pytest.mark.docker,
    pytest.mark.filterwarnings("ignore"),
    # The SDK leaves connections of timed-out calls to the garbage collector.
]


@pytest.fixture(scope="module")
def sandbox(container_url):
    return Sandbox.create(debug=True, sandbox_url=container_url, api_key="e2b_" + "0" * 40)


@pytest.fixture
def context(sandbox):
    context = sandbox.create_code_context()
    yield context
    sandbox.remove_code_context(context.id)


def test_last_expression_value_is_returned(sandbox):
    execution = sandbox.run_code("x = 1; x + 1")
    assert execution.text == "2"
    assert execution.results[0].is_main_result
    assert execution.error is None
    assert execution.execution_count >= 1


def test_quotes_of_a_string_are_stripped(sandbox):
    assert sandbox.run_code("'a b'").text == "a b"


def test_state_persists_and_executions_are_counted(sandbox, context):
    assert sandbox.run_code("x = 5", context=context).execution_count == 1
    second = sandbox.run_code("x", context=context)
    assert (second.execution_count, second.text) == (2, "5")


def test_callbacks(sandbox):
    stdout, stderr, results, errors = [], [], [], []
    execution = sandbox.run_code(
        "import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay(1)\n1/0",
        on_stdout=lambda message: stdout.append(message.line),
        on_stderr=lambda message: stderr.append(message.line),
        on_result=results.append,
        on_error=errors.append,
    )
    assert ("".join(stdout), "".join(stderr)) == ("out\n", "err\n")
    assert [result.text for result in results] == ["1"]
    assert [error.name for error in errors] == ["ZeroDivisionError"]
    assert execution.logs.stdout == ["out\n"]
    assert execution.error.value == "division by zero"


def test_output_is_streamed(sandbox, context):
    execution = sandbox.run_code(
        "import os, time\nprint('waits')\nwhile not os.path.exists('heard'): time.sleep(0.01)\nos.remove('heard')",
        timeout=60,
        on_stdout=lambda _: sandbox.run_code("open('heard', 'w').close()", context=context),
    )
    assert execution.error is None


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def f(: pass", "SyntaxError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("%nope", "UsageError"),
        ("x y", "SyntaxError"),
    ],
)
def test_errors(sandbox, code, name):
    assert sandbox.run_code(code).error.name == name
    assert sandbox.run_code("1").text == "1"


@pytest.mark.parametrize(
    ("code", "text"),
    [("    x = 2\n    x", "2"), ("'é漢🎉'", "é漢🎉"), ("import asyncio\nawait asyncio.sleep(0)\n3", "3"), ("!pwd", None)],
)
def test_cells(sandbox, code, text):
    execution = sandbox.run_code(code)
    assert execution.error is None
    assert execution.text == text
    if code == "!pwd":
        assert execution.logs.stdout == ["/home/user\n"]


def test_environment_variables(sandbox, context):
    code = "import os; os.getenv('FOO', 'default')"
    assert sandbox.run_code(code, envs={"FOO": 'it\'s "bar"\n'}, context=context).results[0].json is None
    assert sandbox.run_code("    " + code, envs={"FOO": "bar"}, context=context).text == "bar"
    assert sandbox.run_code(code, context=context).text == "default"
    sandbox.run_code("os.environ['FOO'] = 'mine'", context=context)
    assert sandbox.run_code("1/0", envs={"FOO": "bar"}, context=context).error
    assert sandbox.run_code(code, context=context).text == "mine"
    assert "line 2" in sandbox.run_code("x = 0\n1/0", envs={"FOO": "bar"}, context=context).error.traceback


def test_contexts(sandbox):
    context = sandbox.create_code_context(cwd="/root", language="python")
    listed = sandbox.list_code_contexts()
    assert (listed[-1].id, listed[-1].language, listed[-1].cwd) == (context.id, "python", "/root")
    assert {"python", "javascript"} <= {each.language for each in listed}
    assert sandbox.run_code("import os; x = 1; os.getcwd()", context=context).text == "/root"
    sandbox.restart_code_context(context.id)
    after = sandbox.run_code("import os; os.getcwd(), 'x' in globals()", context=context)
    assert (after.execution_count, after.text) == (1, "('/root', False)")
    sandbox.remove_code_context(context)
    with pytest.raises(Exception, match="not found"):
        sandbox.run_code("1", context=context)


def test_javascript(sandbox):
    assert sandbox.run_code("console.log('Hello, World!')", language="js").logs.stdout == ["Hello, World!\n"]
    assert sandbox.run_code("const x: number = 1; x + 1", language="ts").text == "2"
    assert sandbox.run_code("await Promise.resolve('done')", language="javascript").text == "done"
    assert sandbox.run_code("process.env.FOO", envs={"FOO": "bar"}, language="js").text == "bar"
    assert sandbox.run_code("process.env.FOO || 'default'", language="js").text == "default"
    assert sandbox.run_code("process.cwd()", language="js").text == "/home/user"


def test_bash(sandbox):
    stdout = sandbox.run_code("pwd; echo $FOO", language="bash", envs={"FOO": "bar"}).logs.stdout
    assert "".join(stdout) == "/home/user\nbar\n"


def test_unknown_language_raises(sandbox):
    with pytest.raises(Exception, match="kernel is not available"):
        sandbox.run_code("1", language="nope")


def test_contexts_run_parallel_and_each_sequentially(sandbox, context):
    code = "import time; began = time.time(); time.sleep(2); [began, time.time()]"

    def run(where):
        return json.loads(sandbox.run_code(code, context=where).text)

    with ThreadPoolExecutor(2) as threads:
        (began, ended), (other_began, other_ended) = threads.map(run, (None, context))
        assert max(began, other_began) < min(ended, other_ended)
        first, second = sorted(threads.map(run, (context, context)))
        assert first[1] < second[0]


@pytest.mark.parametrize("code", ["import time; time.sleep(30)", "while True: pass"])
@pytest.mark.parametrize("gap", [0, 0.5])
def test_client_timeout_interrupts_execution(sandbox, context, code, gap):
    sandbox.run_code("x = 1", context=context)
    with pytest.raises(Exception, match=r"(?i)timeout|timed out"):
        sandbox.run_code(code, timeout=0.3, context=context)
    time.sleep(gap)
    assert sandbox.run_code("x", timeout=10, context=context).text == "1"


def test_silent_execution_keeps_connection_alive(sandbox):
    assert sandbox.run_code("import time; time.sleep(5.5); 'done'").text == "done"


def test_interpreter_death_is_reported(sandbox, context):
    execution = sandbox.run_code("import os; os._exit(1)", context=context)
    assert (execution.error.name, execution.error.value) == ("ContextRestarting", "Context was restarted")
    assert sandbox.run_code("1", context=context).text == "1"


def test_dataframe_has_html_and_data(sandbox):
    (result,) = sandbox.run_code("import pandas as pd; pd.DataFrame({'a': [1, 2, 3]})").results
    assert "<table" in result.html
    assert result.data == {"a": [1, 2, 3]}


def test_formats(sandbox):
    (result,) = sandbox.run_code("display({'text/latex': 'x', 'application/x': 'y'}, raw=True)").results
    assert result.latex == "x"
    assert result.extra == {"application/x": "y"}
    assert sandbox.run_code("{'a': 1}").results[0].json == {"a": 1}


CHARTS = {
    "line": ("plt.plot([1, 2, 3], [4, 5, 6])", LineChart),
    "scatter": ("plt.scatter([1, 2], [3, 4])", ScatterChart),
    "bar": ("plt.bar(['a', 'b'], [1, 2])", BarChart),
    "pie": ("plt.pie([1, 2], labels=['a', 'b'])", PieChart),
}


@pytest.mark.parametrize("kind", CHARTS)
def test_charts(sandbox, kind):
    plot, expected = CHARTS[kind]
    code = f"import matplotlib.pyplot as plt\n{plot}\nplt.title('Title')\nplt.xlabel('x')\nplt.show()"
    (result,) = sandbox.run_code(code).results
    assert base64.b64decode(result.png).startswith(b"\x89PNG")
    assert isinstance(result.chart, expected)
    assert result.chart.title == "Title"
    assert result.chart.elements


def test_subplots_form_superchart(sandbox):
    plot = "fig, axes = plt.subplots(1, 2)\naxes[0].plot([1, 2])\naxes[1].bar(['a'], [1])"
    code = f"import matplotlib.pyplot as plt\n{plot}\nplt.show()"
    (result,) = sandbox.run_code(code).results
    assert result.chart.type.value == "superchart"
    assert [element.type.value for element in result.chart.elements] == ["line", "bar"]


def test_async_client_runs_contexts_concurrently(container_url):
    async def use() -> list[str | None]:
        sandbox = await AsyncSandbox.create(debug=True, sandbox_url=container_url, api_key="e2b_" + "0" * 40)
        contexts = [await sandbox.create_code_context() for _ in range(4)]
        executions = await asyncio.gather(*(sandbox.run_code(str(n), context=each) for n, each in enumerate(contexts)))
        for each in contexts:
            await sandbox.remove_code_context(each)
        return [execution.text for execution in executions]

    assert asyncio.run(use()) == ["0", "1", "2", "3"]
