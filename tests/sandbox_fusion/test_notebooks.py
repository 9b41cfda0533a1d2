from __future__ import annotations

import base64

import pytest


@pytest.fixture
def run_jupyter(http):
    def run(*cells, **fields):
        answer = http.post("/run_jupyter", json={"cells": cells, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()

    return run


def test_cells_share_variables_and_continue_after_errors(run_jupyter):
    answer = run_jupyter("a = 20", "print(a)\na + 1", "import sys; sys.stderr.write('late')", "1 / 0", "a")
    assert answer["driver"].pop("execution_time") > 0
    assert (answer["status"], answer["message"], answer["files"]) == ("Success", "", {})
    assert answer["driver"] == {"status": "Finished", "return_code": 0, "stdout": "", "stderr": ""}
    first, second, third, fourth, fifth = answer["cells"]
    assert first == {"stdout": "", "stderr": "", "display": [], "error": []}
    assert second == {"stdout": "20\n", "stderr": "", "display": [{"text/plain": "21"}], "error": []}
    assert third["stderr"] == "late"
    assert [(error["ename"], error["evalue"]) for error in fourth["error"]] == [("ZeroDivisionError", "division by zero")]
    assert any("1 / 0" in line for line in fourth["error"][0]["traceback"])
    assert fifth["display"] == [{"text/plain": "20"}]


def test_figures_are_displays(run_jupyter):
    (cell,) = run_jupyter("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nNone")["cells"]
    assert base64.b64decode(cell["display"][0]["image/png"]).startswith(b"\x89PNG")


def test_documents_are_json(run_jupyter):
    (cell,) = run_jupyter("from IPython.display import JSON\nJSON({'a': [1]})")["cells"]
    assert cell["display"][0]["application/json"] == {"a": [1]}


def test_cell_that_exceeds_its_time_is_interrupted(run_jupyter):
    answer = run_jupyter("x = 1", "while True: pass", "x", cell_timeout=1)
    assert answer["status"] == "Success"
    assert [error["ename"] for error in answer["cells"][1]["error"]] == ["TimeoutError"]
    assert answer["cells"][2]["display"] == [{"text/plain": "1"}]


def test_cells_that_exceed_the_total_time_fail(run_jupyter):
    answer = run_jupyter("print(1)", "import time; time.sleep(60)", "print(3)", total_timeout=2)
    assert answer["status"] == "Failed"
    assert (answer["driver"]["status"], answer["driver"]["return_code"]) == ("TimeLimitExceeded", None)
    assert [cell["stdout"] for cell in answer["cells"]] == ["1\n", ""]


def test_interpreter_that_dies_is_replaced(run_jupyter):
    answer = run_jupyter("x = 1\nimport os; os._exit(3)", "'x' in dir()")
    assert answer["cells"][0]["error"] != []
    assert answer["cells"][1]["display"] == [{"text/plain": "False"}]


def test_memory_limit(run_jupyter):
    cells = run_jupyter("x = bytearray(600 << 20)", "1", memory_limit_MB=400)["cells"]
    assert [error["ename"] for error in cells[0]["error"]] == ["MemoryError"]
    assert cells[1]["display"] == [{"text/plain": "1"}]


def test_files_go_in_and_out(run_jupyter):
    answer = run_jupyter(
        "open('out.txt', 'w').write(open('in/a').read().upper())", files={"in/a": "aGk="}, fetch_files=["out.txt", "missing"]
    )
    assert answer["files"] == {"out.txt": "SEk="}
    refused = run_jupyter("1", files={"../a": ""})
    assert (refused["status"], refused["message"]) == ("SandboxError", "Path outside workspace: ../a")


def test_notebooks_are_apart(run_jupyter):
    run_jupyter("secret = 1\nopen('left', 'w')")
    (cell,) = run_jupyter("import os; ['secret' in dir(), os.listdir('.')]")["cells"]
    assert cell["display"][0]["text/plain"] == "[False, []]"


def test_no_cells_are_no_error(run_jupyter):
    assert run_jupyter()["cells"] == []
