"""``/contexts``: create, list, restart and delete."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.timing import promptly


def test_context_is_listed_until_deleted(interpreter):
    created = interpreter.create()
    assert created.keys() == {"id", "language", "cwd"}
    assert (created["language"], created["cwd"]) == ("python", "/home/user")
    assert interpreter.http.get("/contexts").json()[-1] == created
    assert interpreter.execute("1", context_id=created["id"]).text == "1"
    answer = interpreter.http.delete(f"/contexts/{created['id']}")
    assert (answer.status_code, answer.json()) == (200, None)
    assert created not in interpreter.http.get("/contexts").json()
    response = interpreter.post("1", context_id=created["id"])
    assert (response.status_code, response.text) == (404, f"Context {created['id']} not found")


def test_contexts_share_only_files(interpreter):
    one, two = interpreter.create()["id"], interpreter.create()["id"]
    interpreter.execute("x = 1\nopen('shared.txt', 'w').write('text')\nimport os\nos.environ['V'] = '1'", context_id=one)
    assert interpreter.execute("x", context_id=two).error["name"] == "NameError"
    assert interpreter.execute("open('shared.txt').read()", context_id=two).text == "text"
    assert interpreter.execute("import os\n'V' in os.environ", context_id=two).text == "False"
    assert interpreter.execute("x", context_id=one).text == "1"
    for identifier in (one, two):
        interpreter.http.delete(f"/contexts/{identifier}")


def test_default_context_always_exists(interpreter):
    interpreter.execute("default_x = 5")
    assert interpreter.execute("default_x", language="python").text == "5"
    assert interpreter.execute("default_x", language=" Python ").text == "5"
    (default, *_) = [each for each in interpreter.http.get("/contexts").json() if each["language"] == "python"]
    assert interpreter.execute("default_x", context_id=default["id"]).text == "5"
    interpreter.http.post(f"/contexts/{default['id']}/restart")
    assert interpreter.execute("default_x").error["name"] == "NameError"
    interpreter.http.delete(f"/contexts/{default['id']}")
    assert interpreter.execute("2").text == "2"
    assert interpreter.execute("3", language="python").text == "3"


def test_restart_clears_state_but_keeps_context(interpreter):
    interpreter.http.put("/files/place/file.txt", content=b"x")
    created = interpreter.create(cwd="/home/user/place")
    interpreter.execute("import os\nx = 1\nos.chdir('/')", context_id=created["id"])
    answer = interpreter.http.post(f"/contexts/{created['id']}/restart")
    assert (answer.status_code, answer.json()) == (200, None)
    after = interpreter.execute("import os\nos.path.basename(os.getcwd()), os.listdir()", context_id=created["id"])
    assert (after.count, after.text) == (1, "('place', ['file.txt'])")
    assert interpreter.execute("x", context_id=created["id"]).error["name"] == "NameError"
    interpreter.http.delete(f"/contexts/{created['id']}")


@pytest.mark.parametrize("end", ["restart", "delete"])
def test_busy_context_can_be_restarted_or_deleted(interpreter, end):
    identifier = interpreter.create()["id"]
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(interpreter.execute, "print('begun')\nwhile True: pass", context_id=identifier)
        time.sleep(0.3)
        waiting = threads.submit(interpreter.execute, "print('never')", context_id=identifier)
        time.sleep(0.2)
        with promptly():
            if end == "restart":
                interpreter.http.post(f"/contexts/{identifier}/restart")
            else:
                interpreter.http.delete(f"/contexts/{identifier}")
        assert running.result().stdout == "begun\n"
        assert running.result().error["name"] == "ContextRestarting"
        assert waiting.result().error["name"] == "ExecutionAborted"
        assert waiting.result().stdout == ""
    if end == "restart":
        assert interpreter.execute("1", context_id=identifier).text == "1"
        interpreter.http.delete(f"/contexts/{identifier}")


def test_interrupt_ends_running_execution_only(interpreter):
    identifier = interpreter.create()["id"]
    interpreter.execute("x = 1", context_id=identifier)
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(interpreter.execute, "print('begun')\nwhile True: pass", context_id=identifier)
        time.sleep(0.3)
        waiting = threads.submit(interpreter.execute, "x + 1", context_id=identifier)
        time.sleep(0.2)
        assert interpreter.http.post(f"/contexts/{identifier}/interrupt").status_code == 200
        assert running.result().stdout == "begun\n"
        assert running.result().error["name"] == "KeyboardInterrupt"
        assert waiting.result().text == "2"
    assert interpreter.http.post(f"/contexts/{identifier}/interrupt").status_code == 200
    assert interpreter.execute("x", context_id=identifier).text == "1"
    interpreter.http.delete(f"/contexts/{identifier}")


@pytest.mark.parametrize("cwd", ["/nowhere", "relative", "/etc/passwd", "/home/user/../../nowhere", ""])
def test_invalid_working_directory_is_refused(interpreter, cwd):
    response = interpreter.http.post("/contexts", json={"cwd": cwd})
    if cwd == "":
        assert response.json()["cwd"] == "/home/user"
        interpreter.http.delete(f"/contexts/{response.json()['id']}")
        return
    assert response.status_code == 400
    assert cwd in response.text


def test_working_directory_outside_workspace_is_allowed(interpreter):
    created = interpreter.create(cwd="/usr")
    assert interpreter.execute("import os\nos.getcwd()", context_id=created["id"]).text == "/usr"
    interpreter.http.delete(f"/contexts/{created['id']}")


def test_context_survives_removal_of_working_directory(interpreter):
    interpreter.http.put("/files/gone/file", content=b"")
    created = interpreter.create(cwd="/home/user/gone")
    interpreter.http.delete("/files/gone")
    interpreter.http.post(f"/contexts/{created['id']}/restart")
    assert interpreter.execute("1", context_id=created["id"]).text == "1"
    interpreter.http.delete(f"/contexts/{created['id']}")


@pytest.mark.parametrize("path", ["/contexts/nope", "/contexts/nope/restart", "/contexts/nope/interrupt", "/contexts/%2e%2e"])
def test_unknown_context_is_not_found(interpreter, path):
    method = interpreter.http.post if path.endswith(("restart", "interrupt")) else interpreter.http.delete
    assert method(path).status_code == 404


def test_unknown_language_is_refused(interpreter):
    expected = (
        'Failed to create context: {"message": "The \'nope\' kernel is not available. Please pick another suitable kernel'
        ' instead, or install that kernel.", "short_message": "nope not found"}'
    )
    for response in (interpreter.post("1", language="nope"), interpreter.http.post("/contexts", json={"language": "nope"})):
        assert (response.status_code, response.text) == (500, expected)


def test_context_and_language_are_mutually_exclusive(interpreter):
    response = interpreter.http.post("/execute", json={"code": "1", "context_id": "x", "language": "python"})
    assert (response.status_code, response.text) == (400, "Only one of context_id or language can be provided")


def test_number_of_contexts_is_limited(interpreter):
    made = []
    try:
        while (response := interpreter.http.post("/contexts", json={})).status_code == 200:
            made.append(response.json()["id"])
            assert len(made) < 100
        assert response.status_code == 503
        assert "max-sessions" in response.text
    finally:
        for identifier in made:
            interpreter.http.delete(f"/contexts/{identifier}")
    assert interpreter.execute("1").text == "1"
