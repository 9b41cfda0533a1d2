"""Memory limits of programs."""

from __future__ import annotations

import pytest

from coding_gym_server.languages import find_language
from coding_gym_server.protocol.grading import CaseOutcome, Graded, GradingLimits, ProgramCase, Programs, Submission
from tests.grading.judging import Judge

_MEBIBYTE = 1 << 20

FILL = {
    "c": "#include <stdlib.h>\nint main() {{ char *p = malloc({n}L << 20); for (long i = 0; i < {n}L << 20; i += 64) ((volatile char *)p)[i] = 1; }}",
    "cpp": "#include <vector>\nint main() {{ std::vector<char> all; while (all.size() < {n}L << 20) all.push_back(1); }}",
    "java": (
        "import java.util.*;\nclass main {{ public static void main(String[] a) {{ List<byte[]> all = new ArrayList<>();\n"
        "  for (int i = 0; i < {n}; i++) {{ byte[] b = new byte[1 << 20]; Arrays.fill(b, (byte) 1); all.add(b); }} }} }}"
    ),
    "javascript": "const all = []; for (let i = 0; i < {n}; i++) all.push(new Array(1 << 17).fill(1.5));",
    "python": "all = b'x' * ({n} << 20)",
}
"""Programs that have a number of mebibytes in use."""


@pytest.fixture
def run(judge: Judge):
    """Function that grades a program in a language of this machine, with a limit of 128 MiB."""

    def grade(language: str, code: str) -> Graded:
        if language != "python" and find_language(language).missing():
            pytest.skip(f"this machine lacks what {language} needs")
        limits = GradingLimits(cpu_timeout=20.0, wall_timeout=60.0, max_memory_bytes=128 * _MEBIBYTE)
        tests = Programs(cases=(ProgramCase(stdout=""),), language=language)
        return judge(Submission(code=code, tests=tests, limits=limits))

    return grade


@pytest.mark.parametrize("language", FILL)
def test_program_within_its_memory_passes(run, language):
    graded = run(language, FILL[language].format(n=60))
    assert graded.cases[0].outcome is CaseOutcome.PASSED, graded.stderr


@pytest.mark.parametrize("language", FILL)
def test_program_beyond_its_memory_does_not_pass(run, language):
    graded = run(language, FILL[language].format(n=300))
    assert graded.cases[0].outcome is CaseOutcome.MEMORY
    assert graded.cases[0].message == "it exceeded the memory limit"


@pytest.mark.parametrize("language", ["cpp", "java"])
def test_program_without_bounds_is_ended(run, language):
    graded = run(language, FILL[language].format(n=8 << 10))
    assert graded.cases[0].outcome in (CaseOutcome.MEMORY, CaseOutcome.ERROR, CaseOutcome.KILLED)


def test_what_is_reserved_but_not_in_use_does_not_count(run):
    code = "static char all[400 << 20];\nint main() { return all[1 << 20]; }"
    assert run("c", code).cases[0].outcome is CaseOutcome.PASSED
    code = "import mmap; all = mmap.mmap(-1, 300 << 20)"
    assert run("python", code).cases[0].outcome is CaseOutcome.PASSED


def test_output_beyond_the_limit_is_told_apart(run):
    graded = run("python", "print('x' * (5 << 20))")
    assert (graded.cases[0].outcome, graded.cases[0].message) == (CaseOutcome.OUTPUT, "it exceeded the output limit")
    assert len(graded.stdout) <= 2000
    # It would go on until its time is over.
    graded = run("python", "import os\nwhile True: os.write(1, b'x' * 65536)")
    assert graded.cases[0].outcome is CaseOutcome.OUTPUT
    assert graded.cpu_seconds < 15
