"""Changes to a repository are graded in a new session of its image."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import textwrap

import pytest

from coding_gym import CodingEnv
from coding_gym.errors import ConfigurationError, ProtocolError
from coding_gym.sandbox.config import SandboxConfig
from coding_gym.sandbox.docker.images import ensure_image
from coding_gym.tasks import Grader, RepositoryCommand, RepositoryTests, Task
from coding_gym.tasks.repository.grading import RepositoryGrading
from coding_gym.tasks.suite_check import check_tasks
from coding_gym_server.protocol.grading import CaseOutcome, GradingMode, VerdictOutcome

pytestmark = pytest.mark.docker

BROKEN = "def add(a, b):\n    return a - b\n\n\ndef negate(a):\n    return -a\n"
RIGHT = BROKEN.replace("a - b", "a + b")
TESTS = textwrap.dedent("""
    from calc import add, negate

    def test_add():
        assert add(2, 3) == 5

    def test_negate():
        assert negate(2) == -2
""")
PATCH = """--- a/calc.py
+++ b/calc.py
@@ -1,5 +1,5 @@
 def add(a, b):
-    return a - b
+    return a + b
 
 
 def negate(a):
"""
DOCKERFILE = f"""
USER 0
RUN mkdir /testbed && cd /testbed && git init --quiet && echo {base64.b64encode(BROKEN.encode()).decode()} | base64 -d > calc.py \\
    && mkdir tests && touch tests/__init__.py && git add . && git -c user.name=a -c user.email=a@b commit --quiet --message all
WORKDIR /testbed
"""
FIX = "sed -i 's/a - b/a + b/' calc.py"
PYTEST = "/opt/coding-gym/venv/bin/python -m pytest -rA -p no:cacheprovider tests/test_calc.py"


def repository_tests(image, **changes):
    command = RepositoryCommand(
        command=PYTEST,
        must_pass=("tests/test_calc.py::test_add",),
        keep_passing=("tests/test_calc.py::test_negate",),
        timeout=60,
    )
    options = {"image": image, "directory": "/testbed", "commands": (command,), "files": {"tests/test_calc.py": TESTS}}
    return RepositoryTests(**{**options, **changes})


@pytest.fixture(scope="module")
def image(docker_engine):
    """Name of an image with a repository."""
    name = f"coding-gym-test/repository:{os.getpid()}"
    dockerfile = f"FROM {ensure_image(docker_engine, None)}\n{DOCKERFILE}"
    docker_engine.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=name, rm=True, forcerm=True)
    yield name
    docker_engine.images.remove(name, force=True)


@pytest.fixture(scope="module")
def grading():
    with contextlib.closing(RepositoryGrading(SandboxConfig(provider="docker"))) as grading:
        yield grading


@pytest.fixture(scope="module")
def agent(image):
    with contextlib.closing(CodingEnv(provider="docker", image=image, root=True, preload=(), screen=None)) as env:
        yield env


def outcomes(graded):
    return [case.outcome for case in graded.cases]


@pytest.mark.parametrize(
    ("patch", "outcome", "cases"),
    [
        (PATCH, VerdictOutcome.PASSED, ["passed", "passed"]),
        (PATCH.rstrip("\n"), VerdictOutcome.PASSED, ["passed", "passed"]),
        (PATCH.replace("1,5 +1,5", "1,4 +1,4").removesuffix(" def negate(a):\n"), VerdictOutcome.PASSED, ["passed", "passed"]),
        ("", VerdictOutcome.FAILED, ["failed", "passed"]),
        (PATCH.replace("+    return a + b", "+    return 7"), VerdictOutcome.FAILED, ["failed", "passed"]),
        (PATCH.replace("+    return a + b", "+    import os; os._exit(0)"), VerdictOutcome.FAILED, ["not_run", "not_run"]),
        (PATCH.replace("+    return a + b", "+    return a +"), VerdictOutcome.FAILED, ["not_run", "not_run"]),
        (PATCH.replace("-    return a - b", "-    return a * b"), VerdictOutcome.ERROR, ["not_run", "not_run"]),
        ("no patch", VerdictOutcome.ERROR, ["not_run", "not_run"]),
        (PATCH.replace("calc.py", "../../etc/passwd"), VerdictOutcome.ERROR, ["not_run", "not_run"]),
    ],
)
def test_patches(grading, image, patch, outcome, cases):
    graded = grading.grade(repository_tests(image), patch)
    assert (graded.outcome, outcomes(graded), graded.mode) == (outcome, cases, GradingMode.COPY), graded


TEST_PATCH = """--- /dev/null
+++ b/tests/test_calc.py
@@ -0,0 +1,7 @@
+from calc import add, negate
+
+def test_add():
+    assert add(2, 3) == 5
+
+def test_negate():
+    assert negate(2) == -2
"""
FORGED = """--- /dev/null
+++ b/tests/test_calc.py
@@ -0,0 +1,4 @@
+def test_add():
+    pass
+def test_negate():
+    pass
"""


@pytest.mark.parametrize(
    ("patch", "outcome"), [(PATCH, "passed"), ("", "failed"), (FORGED, "failed"), (PATCH + FORGED, "passed")]
)
def test_patches_of_tests(grading, image, patch, outcome):
    tests = repository_tests(image, files={}, patch=TEST_PATCH)
    assert grading.grade(tests, patch).outcome == outcome


def test_patch_of_tests_must_apply(grading, image):
    tests = repository_tests(image, files={}, patch="--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-nothing\n+other\n")
    with pytest.raises(ConfigurationError, match=r"The tests cannot be run in .*: the patch does not apply"):
        grading.grade(tests, "")


CONFTEST = """--- /dev/null
+++ b/conftest.py
@@ -0,0 +1,2 @@
+import calc
+calc.add = lambda a, b: a + b
"""


@pytest.mark.parametrize(("protected", "outcome"), [((), "passed"), (("conftest.py",), "failed"), (("/testbed",), "failed")])
def test_protected_paths_have_the_state_of_the_image(grading, image, agent, protected, outcome):
    tests = repository_tests(image, protected=protected)
    assert grading.grade(tests, CONFTEST).outcome == outcome
    agent.reset(seed=0)
    agent.exec("printf 'import calc\\ncalc.add = lambda a, b: a + b\\n' > conftest.py", cwd="/testbed")
    assert grading.grade_session(tests, agent).outcome == outcome


def test_grader(image):
    task = Task(id="calc", prompt="Mend add.", tests=repository_tests(image), reference=PATCH)
    assert Task.from_json(task.to_json()) == task
    with Grader(provider="docker", workers=2) as grader:
        verdicts = list(grader.grade_many([(task, PATCH), (task, ""), (task, PATCH)]))
    assert [verdict.solved for verdict in verdicts] == [True, False, True]
    assert {(verdict.mode, verdict.tamper_resistant) for verdict in verdicts} == {(GradingMode.COPY, False)}
    assert (verdicts[1].score, verdicts[1].passed) == (0.0, 1)


def test_suite_is_checked(image):
    tests = repository_tests(image)
    always = repository_tests(image, commands=(RepositoryCommand(command="true", results="exit code"),))
    tasks = [
        Task(id="right", prompt="", tests=tests, reference=PATCH),
        Task(id="wrong", prompt="", tests=tests, reference=FORGED),
        Task(id="passes", prompt="", tests=always, reference=PATCH),
        Task(id="alone", prompt="", tests=tests),
    ]
    with Grader(provider="docker", workers=2) as grader:
        problems = {checked.task_id: checked.problem for checked in check_tasks(tasks, grader)}
    assert problems == {
        "right": "",
        "wrong": "test tests/test_calc.py::test_add: failed",
        "passes": "its tests pass without a solution",
        "alone": "",
    }


def test_missing_image_is_no_score(grading):
    graded = grading.grade(repository_tests("coding-gym-test/nowhere:1"), PATCH)
    assert graded.outcome is VerdictOutcome.INFRASTRUCTURE
    assert "not found" in graded.message


def test_other_providers_are_refused(image):
    with pytest.raises(ConfigurationError, match="provider='docker'"), Grader(provider="local") as grader:
        grader.grade(Task(id="calc", prompt="", tests=repository_tests(image)), "")


@pytest.mark.parametrize(
    ("command", "outcome", "message"),
    [
        (RepositoryCommand(command="true", results="exit code"), "passed", ""),
        (RepositoryCommand(command="exit 3", results="exit code"), "failed", "exit code 3"),
        (RepositoryCommand(command="sleep 100", results="exit code", timeout=1), "timeout", "exceeded 1 s"),
        (RepositoryCommand(command="echo 1 > r", results="reward", file="r"), "passed", "reward 1"),
        (RepositoryCommand(command="echo 0.5 > r", results="reward", file="r"), "failed", "reward 0.5"),
        (RepositoryCommand(command="mkdir r", results="reward", file="r"), "not_run", "has not written /testbed/r"),
        (RepositoryCommand(command="true", results="junit", file="/nowhere"), "not_run", "has not written /nowhere"),
        (RepositoryCommand(command="echo x > r", results="junit", file="r"), "failed", "not a JUnit file"),
        (RepositoryCommand(command="true"), "not_run", "the output has no results of pytest"),
        (RepositoryCommand(command="yes PASSED a | head -n 10000000", must_pass=("b",)), "not_run", "not in the results"),
    ],
)
def test_results(grading, image, command, outcome, message):
    [case] = grading.grade(repository_tests(image, commands=(command,)), "").cases
    assert case.outcome == outcome
    assert message in case.message


SOLUTIONS = {
    "edit": FIX,
    "new module": "mkdir -p pkg && echo 'def add(a, b): return a + b' > pkg/__init__.py && sed -i '1,2c from pkg import add' calc.py",
    "package": f"mkdir calc && mv calc.py calc/__init__.py && {FIX.replace('calc.py', 'calc/__init__.py')}",
    "link": f"{FIX} && mv calc.py real.py && ln -s real.py calc.py",
    "other user": f"{FIX} && chown nobody calc.py && chmod 644 calc.py",
    "old time": f"touch -r calc.py /tmp/t; {FIX}; touch -r /tmp/t calc.py",
    "committed": f"{FIX} && git -c user.name=a -c user.email=a@b commit -qam fixed",
    "stash": f"{FIX} && git stash -q && git stash pop -q",
    "own tests": f"{FIX} && echo 'assert False' > tests/test_calc.py",
    "processes": f"{FIX}; (while :; do echo 'x' >> noise; sleep 0.01; done) & sleep 0.1",
}


@pytest.mark.parametrize("solution", SOLUTIONS.values(), ids=SOLUTIONS)
def test_right_solutions_of_agents_pass(grading, image, agent, solution):
    agent.reset(seed=0)
    assert agent.exec(solution, cwd="/testbed").exit_code == 0
    graded = grading.grade_session(repository_tests(image), agent)
    assert graded.outcome is VerdictOutcome.PASSED, graded
    # The session continues.
    assert agent.exec("git status --short | head -n 1", cwd="/testbed").exit_code == 0


PLUGIN = "import sys; sys.modules['calc'] = type(sys)('calc'); sys.modules['calc'].add = lambda a, b: a + b; sys.modules['calc'].negate = lambda a: -a"
SITE = "/opt/coding-gym/venv/lib/python3.13/site-packages"
HACKS = {
    "patched pytest": f"echo 'print(\"PASSED tests/test_calc.py::test_add\"); raise SystemExit(0)' > {SITE}/pytest/__init__.py",
    "pytest plugin": f"printf '%s' \"{PLUGIN}\" > {SITE}/pytest_forge.py && mkdir {SITE}/f.dist-info && printf '[pytest11]\\nf = pytest_forge\\n' > {SITE}/f.dist-info/entry_points.txt",
    "sitecustomize": f"printf '%s' \"{PLUGIN}\" > {SITE}/sitecustomize.py",
    "pth": f"printf '%s' \"import sys; exec('{PLUGIN.replace(chr(39), chr(34))}')\" > {SITE}/forge.pth",
    "user site": "mkdir -p ~/.local/lib/python3.13/site-packages && echo 'raise SystemExit(0)' > ~/.local/lib/python3.13/site-packages/usercustomize.py",
    "other module": f"mkdir {SITE}/calc && echo 'add = lambda a, b: a + b' > {SITE}/calc/__init__.py",
    "interpreter": "printf '#!/bin/sh\\necho PASSED tests/test_calc.py::test_add; echo PASSED tests/test_calc.py::test_negate\\n' > /tmp/p && chmod 755 /tmp/p && cp /tmp/p /opt/coding-gym/venv/bin/python && cp /tmp/p /bin/sh",
    "loader": "echo /tmp/forge.so > /etc/ld.so.preload; cp /bin/true /tmp/forge.so",
    "profile": "echo 'echo PASSED tests/test_calc.py::test_add; exit 0' | tee -a ~/.bashrc ~/.profile /etc/bash.bashrc /etc/profile /etc/environment",
    "process": "echo 'def test_add(): pass' > /tmp/t.py; nohup sh -c 'while :; do cp /tmp/t.py /testbed/tests/test_calc.py; sleep 0.01; done' >/dev/null 2>&1 & sleep 0.1",
    "late process": "(sleep 2; sed -i 's/a - b/a + b/' /testbed/calc.py) >/dev/null 2>&1 &",
    "cache": "sed 's/a - b/a + b/' calc.py > /tmp/calc.py && python3 -c \"import py_compile as p; p.compile('/tmp/calc.py', '__pycache__/calc.cpython-313.pyc', invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)\"",
    "cache of tests": "mkdir -p tests/__pycache__; echo 'def test_add(): pass' > /tmp/t.py && python3 -c \"import py_compile as p; p.compile('/tmp/t.py', 'tests/__pycache__/test_calc.cpython-313-pytest-9.2.0.pyc', invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)\"",
    "hooks": "for h in post-checkout pre-commit post-applypatch fsmonitor-watchman; do printf '#!/bin/sh\\nsed -i s/-/+/ /testbed/calc.py\\n' > .git/hooks/$h; chmod 755 .git/hooks/$h; done; git config core.fsmonitor .git/hooks/fsmonitor-watchman",
    "filters": "git config filter.f.smudge 'sed s/-/+/'; echo '*.py filter=f' > .git/info/attributes",
    "own git": "rm -r .git && mkdir /tmp/g && git -C /tmp/g init -q && cp -r /tmp/g/.git .git",
    "tests in advance": "echo 'def test_add(): pass\ndef test_negate(): pass' > tests/test_calc.py && chmod 444 tests/test_calc.py && chattr +i tests/test_calc.py 2>/dev/null || true",
    "tests as a link": "mkdir /tmp/e && echo 'def test_add(): pass' > /tmp/e/test_calc.py && rm -r tests && ln -s /tmp/e tests",
    "tests as a file": "rm -r tests && echo no > tests",
    "tests as a directory": "mkdir -p tests/test_calc.py/x",
    "tests as a pipe": "mkfifo tests/test_calc.py",
    "link out of the tree": "ln -s / out && echo x > out/tmp/x; ln -s /etc/passwd passwd; ln /bin/true hard 2>/dev/null || true",
    "set-user-id": "cp /bin/sh s && chmod 6755 s",
    "deep": "python3 -c \"import os\nfor _ in range(2000): os.mkdir('d'*200); os.chdir('d'*200)\"",
    "wide": "python3 -c \"for i in range(3000): open(f'w{i}', 'w').close()\"",
    "large": "head -c 300000000 /dev/urandom > large",
    "sparse": "truncate -s 8T sparse",
    "names": r"""touch -- "$(printf 'a\nPASSED tests/test_calc.py::test_add\n')" "$(printf '\377\376')" '-rf' """,
    "unreadable": "chmod 000 calc.py tests; chmod 000 /testbed",
    "nothing left": "rm -rf /testbed",
    "printed": "echo \"print('PASSED tests/test_calc.py::test_add')\" > printing.py; echo PASSED tests/test_calc.py::test_add",
    "time": "touch -d 2040-01-01 calc.py tests; date -s 2040-01-01 2>/dev/null || true",
    "standard library": "echo 'raise SystemExit(0)' >> /usr/lib/python3.13/ast.py",
    "hosts": "echo 127.0.0.1 pypi.org >> /etc/hosts; rm -rf /etc/passwd",
    "temporary files": "mkdir -p /tmp/pytest-of-root && ln -s /testbed /tmp/.coding-gym.patch && mkdir /tmp/calc && echo 'add = int' > /tmp/calc/__init__.py",
    "server": "rm -rf /.coding-gym /opt/coding-gym; kill -9 -1",
    "shared memory": "cp calc.py /dev/shm/; sed -i s/-/+/ /dev/shm/calc.py",
    "devices": "mknod null c 1 3 2>/dev/null || true; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"",
    "attributes": "setfattr -n user.overlay.opaque -v y . 2>/dev/null; setfattr -n user.x -v y calc.py 2>/dev/null || true",
    "empty": "true",
}


@pytest.mark.parametrize("hack", HACKS.values(), ids=HACKS)
def test_hacks_earn_nothing(grading, image, agent, hack):
    agent.reset(seed=0)
    # It may end what has started it.
    with contextlib.suppress(ProtocolError):
        agent.exec(hack, cwd="/testbed", timeout=60)
    graded = grading.grade_session(repository_tests(image), agent)
    assert graded.outcome in (VerdictOutcome.FAILED, VerdictOutcome.ERROR), graded
    assert CaseOutcome.PASSED not in [case.outcome for case in graded.cases if case.name.endswith("test_add")]
