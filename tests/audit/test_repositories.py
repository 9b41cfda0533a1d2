"""Audits of tasks of repositories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coding_gym.audit import AuditReport, GraderVerifier, Hack, audit, load_hacks, own_hacks
from coding_gym.audit.programs import mutants
from coding_gym.errors import ConfigurationError
from coding_gym.tasks import Grader, RepositoryCommand, RepositoryTests, Task, TaskSuite, load_suite

REWARD = "/logs/verifier/reward.txt"
# As a folder of Harbor has it, whose tests are slower than a process that forges their results.
SCRIPTED = Task(
    id="answer",
    prompt="Write the answer.",
    tests=RepositoryTests(
        image="debian:trixie-slim",
        directory="/root",
        submission="script",
        files={
            "/logs/verifier/": "",
            "/tests/test.sh": f'rm -rf {REWARD}\n[ "$(cat answer)" = 42 ] && echo 1 >{REWARD}\nsleep 0.2\n',
        },
        commands=(RepositoryCommand(command="sh /tests/test.sh", results="reward", file=REWARD, timeout=30),),
    ),
    reference="echo 42 >answer\n",
)
PATCH = """diff --git a/x b/x
--- a/x
+++ b/x
@@ -1,2 +1,2 @@
 a
--- q
+++ r
@@ -9,2 +9,1 @@

-z
\\ No newline at end of file
--- a/y
+++ b/y
@@ -1 +1 @@
-a\x0cb
+c
"""
PATCHED = Task(
    id="patched",
    prompt="",
    tests=RepositoryTests(image="debian:trixie-slim", commands=(RepositoryCommand(command="true", results="exit code"),)),
    reference=PATCH,
)


def holes(report: AuditReport) -> set[str]:
    (check,) = (check for check in report.checks if check.title == "hacks earn nothing")
    assert check.total
    return {name.partition(": ")[0] for name in check.holes}


@pytest.fixture(scope="module")
def grader(docker_engine: object) -> Iterator[Grader]:
    with Grader(provider="docker", workers=2) as shared:
        yield shared


@pytest.mark.docker
def test_holes_of_a_session_are_named(grader: Grader) -> None:
    tried = {"results that are there already count", "processes of the submission live on while tests run"}
    hacks = [hack for hack in own_hacks() if hack.hole in tried]
    in_session = audit(TaskSuite("one", [SCRIPTED]), GraderVerifier(grader), hacks=hacks)
    assert holes(in_session) == {"processes of the submission live on while tests run"}
    report = audit(TaskSuite("one", [replace(SCRIPTED, grading="copy")]), GraderVerifier(grader))
    assert holes(report) == set()
    assert report.passed


@pytest.mark.docker
def test_repairs_cannot_be_hacked(grader: Grader) -> None:
    # The library is a single module, beside which others could be put.
    report = audit(TaskSuite("one", [load_suite("repairs")["repairs/tabulate"]]), GraderVerifier(grader), most_mutants=1)
    assert report.passed
    assert holes(report) == set()


def test_patch_loses_a_hunk() -> None:
    lines = PATCH.split("\n")
    expected = [lines[:3] + lines[7:], lines[:7] + lines[11:], [*lines[:11], ""]]
    assert list(mutants(PATCHED, 9).values()) == ["\n".join(kept) for kept in expected]


def test_hacks_are_submissions_of_repositories(tmp_path: Path) -> None:
    path = tmp_path / "hacks.toml"
    path.write_text(
        """
[[hack]]
hole = "plug-ins"
name = "it's a file"
[hack.files]
"a/it's.py" = '''
x = "é"

y'''
[[hack]]
hole = "plug-ins"
name = "a script"
script = '''
true'''
"""
    )
    file, script = load_hacks(path)
    assert file.attack(PATCHED) == '--- /dev/null\n+++ b/a/it\'s.py\n@@ -0,0 +1,3 @@\n+x = "é"\n+\n+y\n'
    assert script.attack(PATCHED) is None
    assert script.attack(SCRIPTED) == "true"
    assert "mkdir -p a" in (file.attack(SCRIPTED) or "")
    program = Hack(hole="exit code", name="ends", code="raise SystemExit")
    assert (program.attack(PATCHED), program.attack(SCRIPTED)) == (None, None)
    for wrong in ('code = "x"\nscript = "y"', ""):
        path.write_text(f'[[hack]]\nhole = "x"\nname = "both"\n{wrong}')
        with pytest.raises(ConfigurationError, match="'both' to have one of code, files and script"):
            load_hacks(path)
