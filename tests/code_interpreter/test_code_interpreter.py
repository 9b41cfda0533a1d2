"""``CodeInterpreter``, the Python client of the code interpreter API."""

from __future__ import annotations

import io
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from coding_gym import CodeInterpreter
from coding_gym.errors import ConfigurationError, ProtocolError, TransportError
from tests.support.sandbox_faults import kill_sandbox
from tests.support.timing import promptly


@pytest.fixture(scope="module")
def own():
    with CodeInterpreter(provider="local", preload=()) as interpreter:
        yield interpreter


@pytest.fixture(params=["own", "url"])
def interpreter(request):
    if request.param == "own":
        yield request.getfixturevalue("own")
        return
    with CodeInterpreter(request.getfixturevalue("local_url")) as interpreter:
        yield interpreter


def test_execution_has_output_results_and_error(interpreter):
    execution = interpreter.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)\ndisplay('shown')\n1 + 1")
    assert (execution.stdout, execution.stderr, execution.text, execution.error) == ("out\n", "err\n", "2", None)
    assert [(result.text, result.is_value) for result in execution.results] == [("'shown'", False), ("2", True)] or [
        result.text for result in execution.results
    ] == ["shown", "2"]
    failed = interpreter.execute("1/0")
    assert (failed.error.name, failed.error.value) == ("ZeroDivisionError", "division by zero")


def test_formats(interpreter):
    (result,) = interpreter.execute("import pandas as pd; pd.DataFrame({'a': [1, 2]})").results
    assert result.table == {"a": [1, 2]}
    assert "<table" in result.html
    (figure,) = interpreter.execute("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()").results
    assert figure.png.startswith(b"\x89PNG")
    assert figure.chart["type"] == "line"
    assert interpreter.execute("{'a': 1}").results[0].json == {"a": 1}
    (odd,) = interpreter.execute("display({'image/png': 'no base64!', 'x/y': 'z'}, raw=True)").results
    assert odd.data == {"image/png": "no base64!", "x/y": "z"} or odd.data["x/y"] == "z"


def test_listeners_receive_output_as_it_arrives(interpreter):
    heard = []

    def go_on(text):
        heard.append(text)
        interpreter.files.write("heard", text)

    interpreter.execute(
        "import os, sys, time\nprint('a')\nwhile not os.path.exists('heard'): time.sleep(0.01)\nos.remove('heard')\n"
        "print('b', file=sys.stderr)\n3\n1/0",
        timeout=60,
        on_stdout=go_on,
        on_stderr=heard.append,
        on_result=lambda result: heard.append(result.text),
        on_error=lambda error: heard.append(error.name),
    )
    assert heard == ["a\n", "b\n", "ZeroDivisionError"]


def test_contexts(interpreter):
    context = interpreter.contexts.create(cwd="/tmp")
    assert context in interpreter.contexts.list()
    assert interpreter.execute("import os; x = 1; os.getcwd()", context=context).text == "/tmp"
    interpreter.contexts.interrupt(context)
    assert interpreter.execute("x", context=context.id).text == "1"
    interpreter.contexts.restart(context)
    assert interpreter.execute("x", context=context.id).error.name == "NameError"
    interpreter.contexts.delete(context)
    with pytest.raises(ProtocolError, match="not found"):
        interpreter.execute("1", context=context)
    with pytest.raises(ConfigurationError, match="kernel is not available"):
        interpreter.execute("1", language="nope")


def test_environment_variables_and_timeout_are_applied(interpreter):
    assert interpreter.execute("import os; os.environ['V']", env_vars={"V": "it's"}).text == "it's"
    execution = interpreter.execute("while True: pass", timeout=0.3)
    assert execution.error.name == "TimeoutError"
    with pytest.raises(ProtocolError, match="greater than 0"):
        interpreter.execute("1", timeout=-1)


def test_files(interpreter):
    files = interpreter.files
    files.write("d/text é.txt", "é\n")
    files.write("d/bytes", bytes(range(256)))
    files.write("d/stream", io.BytesIO(b"x" * 3_000_000))
    assert files.read_text("d/text é.txt") == "é\n"
    assert files.read("/home/user/d/bytes") == bytes(range(256))
    assert sum(map(len, files.read_chunks("d/stream"))) == 3_000_000
    assert [(entry.name, entry.type, entry.size) for entry in files.list("d")] == [
        ("bytes", "file", 256),
        ("stream", "file", 3_000_000),
        ("text é.txt", "file", 3),
    ]
    assert interpreter.execute("open('d/text é.txt').read()").text.startswith("é")
    files.remove("d")
    for call in (files.read, files.list, files.remove):
        with pytest.raises(FileNotFoundError, match="d"):
            call("d")
    with pytest.raises(ProtocolError, match="outside workspace"):
        files.read("../../etc/passwd")


def test_raising_listener_interrupts_execution(interpreter):
    def stop(_: str) -> None:
        raise RuntimeError("enough")

    interpreter.execute("n = 0")
    with pytest.raises(RuntimeError, match="enough"):
        interpreter.execute("import time\nwhile True:\n    n += 1\n    print(n)\n    time.sleep(0.01)", on_stdout=stop)
    with promptly():
        assert interpreter.execute("n > 0").text == "True"


def test_client_is_thread_safe(interpreter):
    contexts = [interpreter.contexts.create() for _ in range(4)]
    texts = {}

    def work(number: int) -> None:
        for _ in range(10):
            texts[number] = interpreter.execute(f"{number} * 2", context=contexts[number % 4]).text

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: str(number * 2) for number in range(8)}
    for context in contexts:
        interpreter.contexts.delete(context)


def test_unreachable_server_and_invalid_options_raise():
    with pytest.raises(TransportError), CodeInterpreter("http://127.0.0.1:9") as interpreter:
        interpreter.execute("1")
    with pytest.raises(ConfigurationError):
        CodeInterpreter("nonsense://")
    with pytest.raises(ConfigurationError):
        CodeInterpreter(memory="1g")


def test_execution_that_ends_with_its_sandbox_is_an_error():
    with CodeInterpreter(provider="local", preload=()) as interpreter, ThreadPoolExecutor(1) as thread:
        printed = threading.Event()
        cell = "import time\nprint('on', flush=True)\ntime.sleep(60)"
        running = thread.submit(interpreter.execute, cell, on_stdout=lambda _: printed.set())
        assert printed.wait(30)
        kill_sandbox(interpreter.sandbox)
        with pytest.raises(TransportError):
            running.result(timeout=30)


@pytest.mark.docker
def test_docker_provider_starts_dedicated_container(docker_engine):
    with CodeInterpreter(provider="docker") as interpreter:
        interpreter.files.write("a.txt", "text")
        assert interpreter.execute("import os; os.getcwd(), open('a.txt').read()").text == "('/home/user', 'text')"


def test_quotes_of_strings_are_kept_on_request(interpreter):
    assert interpreter.execute("'a'").text == "a"
    assert interpreter.execute("'a'", quotes=True).text == "'a'"
    assert interpreter.execute("1", quotes=True).text == "1"
