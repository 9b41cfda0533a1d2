"""``POST /execute``: timeouts, interrupts and exits, disconnected clients, and concurrent calls."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.interpreter_client import InterpreterClient
from tests.support.side_by_side import check_side_by_side
from tests.support.timing import promptly

pytestmark = pytest.mark.usefixtures("context")

ENDLESS = ["while True: pass", "import time; time.sleep(99)", "import asyncio; await asyncio.sleep(99)"]


@pytest.fixture
def check_in_contexts(url):
    """Function that calls ``check(interpreter, case)`` for each case, all at once, each in its own context."""

    def check_cases(check, cases):
        def check_case(case):
            with InterpreterClient(url) as interpreter:
                interpreter.use_fresh_context()
                check(interpreter, case)

        check_side_by_side(check_case, cases)

    return check_cases


@pytest.mark.every_provider
def test_timeout_keeps_variables(check_in_contexts):
    def check(interpreter, code):
        interpreter.execute("x = 1")
        with promptly():
            execution = interpreter.execute(f"print('begun')\n{code}", timeout=0.5)
        assert execution.stdout == "begun\n"
        assert execution.error["name"] == "TimeoutError"
        assert "variables are kept" in execution.error["value"]
        assert interpreter.execute("x").text == "1"

    check_in_contexts(check, ENDLESS)


@pytest.mark.every_provider
def test_code_that_ignores_interrupts_is_killed(interpreter):
    execution = interpreter.execute(
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", timeout=0.3
    )
    assert "variables are lost" in execution.error["value"]
    assert interpreter.execute("1").count == 1


@pytest.mark.every_provider
@pytest.mark.parametrize(
    "code", ["import os; os._exit(3)", "import ctypes; ctypes.string_at(0)", "import os; os.kill(os.getpid(), 9)"]
)
def test_interpreter_death_is_reported_and_survived(interpreter, code):
    interpreter.execute("open('kept', 'w').close()")
    execution = interpreter.execute(f"print('before')\n{code}")
    assert execution.stdout == "before\n"
    assert (execution.error["name"], execution.error["value"]) == ("ContextRestarting", "Context was restarted")
    assert "interpreter died" in execution.error["traceback"]
    after = interpreter.execute("import os\n'kept' in os.listdir()")
    assert (after.count, after.text) == (1, "True")


@pytest.mark.every_provider
def test_client_disconnect_interrupts_execution(check_in_contexts):
    def check(interpreter, code):
        interpreter.execute("x = 1")
        for _ in range(3):
            with pytest.raises(httpx.ReadTimeout):
                interpreter.http.post("/execute", json=interpreter.body(code), timeout=0.2)
            with promptly():
                assert interpreter.execute("x").text == "1"

    check_in_contexts(check, ENDLESS)


def test_queued_call_is_dropped_on_disconnect(interpreter):
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(interpreter.execute, "import time; time.sleep(1); x = 'first'; x")
        time.sleep(0.2)
        with pytest.raises(httpx.ReadTimeout):
            interpreter.http.post("/execute", json=interpreter.body("x = 'second'"), timeout=0.2)
        assert first.result().text == "first"
    assert interpreter.execute("x").text == "first"


def test_disconnect_during_context_start_interrupts_execution(interpreter):
    for delay in (0.001, 0.003, 0.01, 0.03):
        identifier = interpreter.create()["id"]
        interpreter.http.post(f"/contexts/{identifier}/restart")
        with pytest.raises(httpx.ReadTimeout):
            interpreter.http.post("/execute", json={"code": "while True: pass", "context_id": identifier}, timeout=delay)
        with promptly():
            assert interpreter.execute("1", context_id=identifier).text == "1"
        interpreter.http.delete(f"/contexts/{identifier}")


def test_calls_queue_per_context(interpreter):
    other = interpreter.create()["id"]
    interpreter.execute("import os, time\norder = []")
    wait = f"while not os.path.exists('{other}'): time.sleep(0.01)"
    with ThreadPoolExecutor(3) as threads:
        calls = [
            threads.submit(interpreter.execute, f"order.append({number})\n{wait}\norder.append({number})")
            for number in range(3)
        ]
        # A call in another context does not wait for those calls, which wait for it.
        interpreter.execute(f"open('{other}', 'w').close()", context_id=other)
        assert [call.result().error for call in calls] == [None] * 3
    order = json.loads(interpreter.execute(f"os.remove('{other}')\norder").text)
    assert order[::2] == order[1::2]
    assert sorted(order[::2]) == [0, 1, 2]
    interpreter.http.delete(f"/contexts/{other}")


def test_many_concurrent_calls_complete(url, interpreter):
    async def all_of_them() -> list[str]:
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            body = interpreter.body("n = globals().get('n', 0) + 1")
            answers = await asyncio.gather(*(client.post("/execute", json=body) for _ in range(50)))
            return [answer.text.splitlines()[-1] for answer in answers]

    assert asyncio.run(all_of_them()) == ['{"type":"end_of_execution"}'] * 50
    assert interpreter.execute("n").text == "50"


def test_client_threads_get_their_own_results(interpreter):
    texts: dict[int, str] = {}

    def work(number: int) -> None:
        texts[number] = interpreter.execute(str(number)).text

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: str(number) for number in range(10)}


def test_interrupt_during_large_displays_keeps_variables(interpreter):
    interpreter.execute("from IPython.display import HTML\nx = 1")
    for timeout in (0.1, 0.2, 0.3):
        execution = interpreter.execute("while True: display(HTML('y' * 10**6))", timeout=timeout)
        assert "variables are kept" in execution.error["value"]
    assert interpreter.execute("x").text == "1"
