"""``POST /execute``: output of cells and its order, errors, rich results, environment variables and invalid requests."""

from __future__ import annotations

import base64
import json

import pytest

pytestmark = pytest.mark.usefixtures("context")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("1 + 1", "2"),
        ("x = 3\nx", "3"),
        ("'a b'", "a b"),
        ('"it\'s"', "it's"),
        ("None", None),
        ("x = 1", None),
        ("1;", None),
        ("", None),
        ("# nothing", None),
        ("    x = 1\n    x", "1"),
        ("import asyncio\nawait asyncio.sleep(0.01)\n'done'", "done"),
        ("async def f():\n    return 6\nawait f() + 1", "7"),
        ("list(range(2000))[-1]", "1999"),
        ("'é漢🎉'", "é漢🎉"),
        ("'\\ud800'", "\\ud800"),
        ("get_ipython().__class__.__mro__[1].__name__", "InteractiveShell"),
        ("In[-1]", "In[-1]"),
    ],
)
def test_values(interpreter, code, text):
    execution = interpreter.execute(code)
    assert execution.error is None
    assert execution.text == text


def test_messages_keep_order_of_cell(interpreter):
    code = "print(1)\ndisplay('a')\nprint(2)\ndisplay('b')\nimport sys\nprint(3, file=sys.stderr)\n'c'"
    kinds = [message["type"] for message in interpreter.execute(code).messages]
    assert kinds[0] == "number_of_executions"
    assert kinds[-1] == "end_of_execution"
    shown = [kind for kind in kinds if kind != "stderr"]
    assert shown == ["number_of_executions", "stdout", "result", "stdout", "result", "result", "end_of_execution"]


def test_execution_count_skips_empty_cells(interpreter):
    assert [interpreter.execute(code).count for code in ("1", "1/0", "", "2")] == [1, 2, 2, 3]


def test_output_is_streamed_live(interpreter):
    other = interpreter.create()["id"]
    code = f"import os, time\nprint(1)\nwhile not os.path.exists('{other}'): time.sleep(0.01)\nos.remove('{other}')\nprint(2)"
    texts = []
    with interpreter.http.stream("POST", "/execute", json=interpreter.body(code, timeout=60)) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        for line in response.iter_lines():
            if (message := json.loads(line))["type"] == "stdout":
                texts.append(message["text"])
                if texts == ["1\n"]:
                    interpreter.execute(f"open('{other}', 'w').close()", context_id=other)
    assert texts == ["1\n", "2\n"]
    interpreter.http.delete(f"/contexts/{other}")


def test_text_has_a_timestamp(interpreter):
    (message,) = interpreter.execute("print('é')").of("stdout")
    assert message["text"] == "é\n"
    assert message["timestamp"].endswith("+00:00")


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("1/0", "ZeroDivisionError", "division by zero"),
        ("def f(: pass", "SyntaxError", None),
        ("undefined", "NameError", "name 'undefined' is not defined"),
        ("import sys; sys.exit(3)", "SystemExit", "3"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt", ""),
        ("%no_such_magic", "UsageError", None),
        ("input()", "StdinNotImplementedError", None),
        ("raise ExceptionGroup('both', [ValueError(1), TypeError(2)])", "ExceptionGroup", None),
        ("def f(): f()\nf()", "RecursionError", None),
        ("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd", None, None),
        ("raise ValueError('\\ud800' * 3)", "ValueError", "???"),
        ("raise ValueError('x' * 10**7)", "ValueError", None),
        ("import asyncio\nawait asyncio.wait_for(asyncio.sleep(9), 0.01)", "TimeoutError", ""),
    ],
)
def test_errors(interpreter, code, name, value):
    execution = interpreter.execute(f"print('before')\n{code}" if "(:" not in code else code)
    assert execution.error is not None
    if name is not None:
        assert execution.error["name"] == name
    if value is not None:
        assert execution.error["value"] == value
    assert isinstance(execution.error["traceback"], str)
    assert "\x1b" not in execution.error["traceback"]
    assert len(execution.error["value"]) < 100_000
    assert interpreter.execute("1").text == "1"


def test_error_keeps_output_and_cell_line_numbers(interpreter):
    execution = interpreter.execute("print('before')\n\n1/0", env_vars={"SECRET": "hidden"})
    assert execution.stdout == "before\n"
    assert "line 3" in execution.error["traceback"]
    assert "hidden" not in execution.error["traceback"]


# Rich results


def test_dataframe_has_html_and_data(interpreter):
    (result,) = interpreter.execute(
        "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [pd.Timestamp('2024-01-02'), None], 'c': [0.5, float('nan')]})"
    ).results
    assert "<table" in result["html"]
    assert result["data"] == {"a": [1, 2], "b": ["2024-01-02T00:00:00", None], "c": [0.5, None]}


def test_figure_has_png_and_chart(interpreter):
    (result,) = interpreter.execute(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='line')\nplt.title('title')\nplt.show()"
    ).results
    assert base64.b64decode(result["png"]).startswith(b"\x89PNG")
    assert result["chart"]["type"] == "line"
    assert result["chart"]["title"] == "title"
    assert result["chart"]["elements"][0]["points"] == [[1, 3], [2, 4]]


def test_open_figure_is_shown_at_cell_end(interpreter):
    execution = interpreter.execute("import matplotlib.pyplot as plt\n_ = plt.hist([1, 2, 2])\nprint('end')")
    assert [message["type"] for message in execution.messages[1:3]] == ["stdout", "result"]


@pytest.mark.parametrize(
    ("code", "field", "value"),
    [
        ("from IPython.display import HTML; HTML('<b>x</b>')", "html", "<b>x</b>"),
        ("from IPython.display import Markdown; Markdown('# x')", "markdown", "# x"),
        ("from IPython.display import Latex; Latex('$x$')", "latex", "$x$"),
        ("from IPython.display import SVG; SVG('<svg></svg>')", "svg", "<svg/>"),
        ("from IPython.display import JSON; JSON({'a': [1]})", "json", {"a": [1]}),
        ("from IPython.display import Javascript; Javascript('f()')", "javascript", "f()"),
        ("{'a': [1, None]}", "json", {"a": [1, None]}),
        ("[1, float('inf')]", "json", [1, None]),
        ("display({'text/latex': 'x'}, raw=True)", "latex", "x"),
        ("display({'application/vnd.x+json': {'b': 1}}, raw=True)", "extra", {"application/vnd.x+json": {"b": 1}}),
        ("class C:\n    def _repr_html_(self): return '<i>'\nC()", "html", "<i>"),
        ("class C:\n    def _repr_png_(self): return b'\\x89PNG'\nC()", "png", "iVBORw=="),
    ],
)
def test_formats(interpreter, code, field, value):
    (result,) = interpreter.execute(code).results
    assert result[field] == value


@pytest.mark.parametrize("way", ["image", "image.save('x.png')", "image.show()"])
def test_pictures(interpreter, way):
    code = f"import numpy\nfrom PIL import Image\nimage = Image.fromarray(numpy.zeros((4, 4, 3), 'uint8'))\n{way}"
    execution = interpreter.execute(code)
    assert execution.error is None
    assert execution.results[0]["png"]


def test_failing_format_leaves_other_formats(interpreter):
    execution = interpreter.execute("class C:\n    def _repr_html_(self): 1/0\n    def __repr__(self): return 'C'\nC()")
    assert execution.text == "C"
    assert execution.error["name"] == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("class C:\n    def __repr__(self): 1/0\nC()", "ZeroDivisionError"),
        ("class C:\n    def __repr__(self): 1/0\ndisplay([C()])", "ZeroDivisionError"),
        ("class C:\n    def _repr_png_(self): raise OSError('no picture')\nC()", "OSError"),
        ("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.title('$\\\\frac{$')\nprint()", "ValueError"),
        ("import matplotlib.pyplot as plt\nplt.plot([1])\nplt.title('$\\\\frac{$')\nplt.gcf()", "ValueError"),
        ("try: 1/0\nexcept Exception: get_ipython().showtraceback()", "ZeroDivisionError"),
        ("try: {}['k']\nexcept Exception: get_ipython().showtraceback()\n2", "KeyError"),
    ],
)
def test_shown_exception_is_the_error_of_a_cell_that_ends(interpreter, code, name):
    # ipykernel sends a message of the type "error", while its reply says "ok".
    execution = interpreter.execute(f"after = 0\n{code}")
    assert execution.error["name"] == name
    assert name in execution.error["traceback"]
    assert interpreter.execute("after").text == "0"


@pytest.mark.parametrize(
    "code",
    [
        "y = [1]; y.append(y); y",
        "y = {}; y[1] = [y]; y",
        "y = []\nfor _ in range(5000): y = [y]\ny = {1: y}; y[2] = 2; del y[1]; z = []\nfor _ in range(400): z = [z]\nz",
        "class D(dict):\n    def items(self): 1/0\n    def __repr__(self): return 'D'\nD()",
        "import pandas; y = [1]; y.append(y); pandas.DataFrame({'a': [y]})",
        "import matplotlib.pyplot as plt\n_ = plt.boxplot([[1, 2, 3], [2, 3, 4]], tick_labels=['a', 'b'])\nplt.show()",
        "import matplotlib.pyplot as plt\nplt.imshow([[1, 2], [3, 4]])\nplt.colorbar()\nplt.show()",
        "import matplotlib.pyplot as plt\nplt.pcolormesh([[1, 2], [3, 4]])\nplt.colorbar()\nplt.show()",
    ],
)
def test_formats_that_cannot_be_made_are_omitted_silently(interpreter, code):
    execution = interpreter.execute(code)
    assert (execution.error, execution.stderr) == (None, "")
    (result,) = execution.results
    assert result["text"]


# Environment variables


@pytest.mark.parametrize("value", ["plain", "quote' and \"", "line\nbreak", "", "é漢", "$HOME", "\\"])
def test_environment_variables_last_one_call(interpreter, value):
    assert interpreter.execute("import os\nprint(repr(os.environ['V']))", env_vars={"V": value}).stdout == f"{value!r}\n"
    assert interpreter.execute("os.environ.get('V', 'gone')").text == "gone"


def test_environment_variables_are_restored_after_error(interpreter):
    interpreter.execute("import os\nos.environ['V'] = 'before'")
    assert (
        interpreter.execute("os.environ['V'] = 'changed'\n1/0", env_vars={"V": "during"}).error["name"] == "ZeroDivisionError"
    )
    assert interpreter.execute("os.environ['V']").text == "before"


def test_environment_variables_reach_magics_and_commands(interpreter):
    assert interpreter.execute("%%bash\necho $V", env_vars={"V": "there"}).stdout == "there\n"
    assert interpreter.execute("!echo $V", env_vars={"V": "there"}).stdout == "there\n"
    assert interpreter.execute("    import os\n    os.environ['V']", env_vars={"V": "there"}).text == "there"


# Invalid requests


@pytest.mark.parametrize(
    ("body", "kind", "location"),
    [
        ({}, "missing", ["body", "code"]),
        ({"code": 1}, "string_type", ["body", "code"]),
        ({"code": "1", "env_vars": {"A": 1}}, "string_type", ["body", "env_vars", "A"]),
        ({"code": "1", "env_vars": {"A=B": "1"}}, "value_error", ["body", "env_vars", "A=B"]),
        ({"code": "1", "env_vars": []}, "dict_type", ["body", "env_vars"]),
        ({"code": "1", "timeout": -1}, "greater_than", ["body", "timeout"]),
        ({"code": "1", "timeout": True}, "greater_than", ["body", "timeout"]),
        ([], "model_attributes_type", ["body"]),
    ],
)
def test_invalid_body_is_refused(interpreter, body, kind, location):
    response = interpreter.http.post("/execute", json=body)
    assert response.status_code == 422
    fault = response.json()["detail"][-1]
    assert (fault["type"], fault["loc"]) == (kind, location)


def test_non_json_body_is_refused(interpreter):
    response = interpreter.http.post("/execute", content=b"{")
    assert response.status_code == 422
    assert response.json()["detail"][0]["type"] == "json_invalid"


def test_null_fields_equal_missing_fields(interpreter):
    response = interpreter.http.post(
        "/execute", json={"code": "1", "context_id": None, "language": None, "env_vars": None, "timeout": None}
    )
    assert response.status_code == 200


def test_command_and_descriptor_output_is_captured(interpreter):
    execution = interpreter.execute("import os\nos.write(1, b'raw\\n')\n!echo command\nos.system('echo system')")
    assert execution.stdout == "raw\ncommand\nsystem\n"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("%cd /tmp", "/tmp"),
        ("%env VARIABLE=5\n!echo $VARIABLE", "5"),
        ("%who_ls", ""),
        ("%%time\n1", "time"),
        ("%timeit -n1 -r1 1", "loop"),
        ("%%writefile written.txt\ntext", "Writing written.txt"),
        ("%pwd", ""),
        ("%history", ""),
        ("%alias hi echo hello\n%hi", "hello"),
        ("%%capture out\nprint(1)", ""),
        ("%pinfo print", "Prints the values"),
        ("print?", "Prints the values"),
        ("%matplotlib inline", ""),
        ("%load_ext autoreload", ""),
        ("%lsmagic", ""),
        ("%xmode Plain", ""),
        ("%precision 3", ""),
        ("%bookmark here", ""),
        ("%reset -f", ""),
    ],
)
def test_magics(interpreter, code, shown):
    execution = interpreter.execute(code)
    assert execution.error is None
    assert shown in execution.stdout + execution.stderr + str(execution.results)


def test_displays_arrive_from_threads_but_not_children(interpreter):
    code = """
import os, threading
def show():
    for number in range(50):
        display(number)
threads = [threading.Thread(target=show) for _ in range(4)]
[thread.start() for thread in threads]
show()
[thread.join() for thread in threads]
if os.fork() == 0:
    display('child')
    os._exit(0)
os.wait()
"""
    execution = interpreter.execute(code)
    assert execution.error is None
    assert len([result for result in execution.results if not result["is_main_result"]]) == 250
    assert interpreter.execute("1").text == "1"
