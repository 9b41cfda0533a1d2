"""Images that are based on the sandbox's: their files are there, wherever they are, and what is not theirs is not."""

from __future__ import annotations

import contextlib
import io
import os

import pytest

from coding_gym.sandbox.docker.images import ensure_image
from coding_gym_server.protocol.grading import Asserts, Submission, VerdictOutcome
from tests.support.lasting_sandbox import lasting_sandbox
from tests.support.plain_container import plain_container

pytestmark = pytest.mark.docker

PLACES = ("/data", "/srv", "/var/log/app", "/home/agent", "/root", "/opt/tool", "/mnt/set", "/models", "/run/secrets")
FILES = f"[f'{{place}}/given' for place in {PLACES}]"
READ = f"""
def read():
    found = []
    for path in {FILES}:
        try:
            found.append(open(path).read().strip())
        except OSError:
            pass
    return found
"""
SEEN = list(PLACES[:-1])
LOOK = """
seen = []
for path in ("/home/user", "/tmp", "/dev/shm"):
    try:
        seen.append(open(f"{path}/left").read())
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def image(docker_engine):
    name = f"coding-gym-test/derived:{os.getpid()}"
    files = " && ".join(f"mkdir -p {place} && echo {place} > {place}/given" for place in PLACES)
    dockerfile = f"FROM {ensure_image(docker_engine, None)}\nUSER 0\nRUN {files}\nUSER 10001:10001\n"
    docker_engine.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=name, rm=True, forcerm=True)
    yield name
    docker_engine.images.remove(name, force=True)


@pytest.fixture(scope="module", params=["namespaces", "no namespaces"])
def box(image, request):
    if request.param == "namespaces":
        with lasting_sandbox(provider="docker", image=image, sessions=2) as box:
            yield box
    else:
        with plain_container(image=image, sessions=2) as box:
            yield box


def run(box, code):
    with contextlib.closing(box.connect()) as session:
        session.ask_step(code)
        observation = session.wait(timeout=40).observation
    assert observation.stderr == ""
    return observation.stdout.strip()


def test_session_reads_all_files_of_its_image(box):
    assert run(box, f"{READ}\nprint(read())") == str(SEEN)


def test_session_changes_no_files_of_its_image(box):
    code = f"for path in {FILES}:\n try: print(open(path, 'w'))\n except OSError: pass"
    assert run(box, code) == ""


@pytest.mark.parametrize("code", [READ, "read = None"], ids=["submission", "test"])
def test_grading_reads_all_files_of_the_image(box, code):
    setup = READ if code != READ else ""
    tests = Asserts(setup=setup, cases=(f"assert read() == {SEEN}, read()",))
    with contextlib.closing(box.connect()) as session:
        graded = session.grade(Submission(code=code, tests=tests), timeout=60)
    assert graded.outcome == VerdictOutcome.PASSED, graded


def test_submission_does_not_see_files_of_a_session(box):
    with contextlib.closing(box.connect()) as session:
        session.ask_step("for path in ('/home/user', '/tmp', '/dev/shm'): open(f'{path}/left', 'w').write('left')")
        assert session.wait(timeout=40).observation.exit_code == 0
        tests = Asserts(setup=LOOK.replace("seen", "mine"), cases=("assert seen == [], seen", "assert mine == [], mine"))
        graded = session.grade(Submission(code=LOOK, tests=tests), timeout=60)
    assert graded.outcome == VerdictOutcome.PASSED, graded
