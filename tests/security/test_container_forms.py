"""Containers that are started by hand: what sessions have of their own depends on what the container permits."""

from __future__ import annotations

import contextlib
import json

import pytest

from coding_gym.sandbox.docker import provider
from tests.support.timing import eventually

pytestmark = pytest.mark.docker


@pytest.fixture
def start_container(docker_engine, sandbox_of):
    image = sandbox_of(provider="docker").container.image

    with contextlib.ExitStack() as stack:

        def start(**options):
            host = docker_engine.api.create_host_config(
                cap_add=options.pop("cap_add", ()),
                cap_drop=["ALL"],
                security_opt=["no-new-privileges", *options.pop("security_opt", ())],
                read_only=True,
                network_mode="none",
                tmpfs=options.pop("tmpfs", TMPFS),
            )
            if options.pop("unmasked", False):
                # As docker run does with --security-opt systempaths=unconfined.
                host |= {"MaskedPaths": [], "ReadonlyPaths": []}
            arguments = ["--port", "8123", *options.pop("arguments", ())]
            created = docker_engine.api.create_container(image.id, arguments, host_config=host, **options)
            container = docker_engine.containers.get(created["Id"])
            stack.callback(container.remove, force=True)
            container.start()
            return container

        yield start


TMPFS = {"/workspaces": "exec,mode=1777", "/tmp": "exec,mode=1777", "/home/user": "exec,mode=1777"}
ROOT = {"user": "0:0", "cap_add": ["SETUID", "SETGID"]}
STEP = """
import json, urllib.request as u
body = {"action": {"code": "import os; open('/tmp/a', 'w').close(); print(os.getcwd(), os.getuid())"}}
request = u.Request("http://127.0.0.1:8123/step", json.dumps(body).encode(), {"Content-Type": "application/json"})
print(json.load(u.urlopen(request))["observation"]["stdout"], end="")
"""
GRADE = """
import json
from websockets.sync.client import connect
code = "import os; open('mine', 'w').close(); print(os.getcwd(), os.getuid())"
tests = {"type": "asserts", "cases": ["assert workspace.listdir() == ['mine']"]}
with connect("ws://127.0.0.1:8123/ws") as connection:
    connection.send(json.dumps({"type": "grade", "data": {"code": code, "tests": tests}}))
    graded = json.loads(connection.recv())["data"]
    print(graded["outcome"], graded.get("message", ""), graded.get("stdout", ""), end="")
"""
LOOK = "import json, urllib.request as u; print(u.urlopen('http://127.0.0.1:8123/health').read().decode())"


def isolation_of(container):
    found = []

    def is_healthy():
        code, printed = container.exec_run(["python3", "-c", LOOK])
        found[:] = [printed.decode()]
        return code == 0

    assert eventually(is_healthy)
    return json.loads(found[0])["isolation"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"user": "10001:10001"}, "runs as user 10001"), (ROOT, "may not create user namespaces")],
    ids=["unprivileged", "engine's own profile"],
)
def test_container_is_the_border_of_one_session_where_it_must_be(start_container, options, reason):
    container = start_container(**options)
    isolation = isolation_of(container)
    assert (isolation["session_users"], isolation["session_mounts"], isolation["capabilities"]) == (False, False, False)
    assert reason in isolation["shared_user_reason"]
    assert "may not create user namespaces" in isolation["shared_files_reason"]
    assert "one session at a time" in container.logs().decode()
    code, printed = container.exec_run(["python3", "-c", STEP])
    assert (code, printed.decode()) == (0, "/home/user 10001\n")
    code, printed = container.exec_run(["python3", "-c", GRADE])
    assert code == 0
    assert printed.startswith(b"passed  /workspaces/sessions/submissions-1/work 10001")
    servers = [row[1] for row in container.top(ps_args="-eo pid,uid,args")["Processes"] if "coding-gym-server" in row[2]]
    assert servers[-1] == "10001"


def test_sessions_of_unprivileged_container_have_mounts_where_engine_permits(start_container):
    profile = provider._SECCOMP_PROFILE.read_text()
    container = start_container(user="10001:10001", security_opt=[f"seccomp={profile}"], unmasked=True)
    isolation = isolation_of(container)
    assert (isolation["session_users"], isolation["session_mounts"], isolation["capabilities"]) == (False, True, False)
    assert "runs as user 10001" in isolation["shared_user_reason"]
    code, printed = container.exec_run(["python3", "-c", STEP])
    assert (code, printed.decode()) == (0, "/home/user 10001\n")
    code, printed = container.exec_run(["python3", "-c", GRADE])
    assert (code, printed.decode()) == (0, "passed  /home/user 10001\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"user": "10001:10001", "tmpfs": {"/workspaces": "exec,mode=1777", "/tmp": "mode=1777"}},
            "user 10001 cannot write /home/user",
        ),
        ({"user": "0:0"}, "start the container with the capabilities SETUID and SETGID"),
    ],
    ids=["no home directory", "root"],
)
def test_server_that_cannot_isolate_does_not_start(start_container, options, message):
    container = start_container(**options)
    assert container.wait(timeout=60)["StatusCode"] == 1
    assert message in container.logs().decode()
