"""Programs run as plain Python runs them: their streams, their main module, and their end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from coding_gym_server.protocol.grading import Graded, ProgramCase, Programs, Submission, VerdictOutcome
from tests.grading.judging import Judge

SUM = "print(sum(map(int, sys.stdin.read().split())))"
PROGRAMS = {
    "wrapped stdin": f"import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)\n{SUM}",
    "wrapped stdin, encoding": f"import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer, encoding='utf-8')\n{SUM}",
    "wrapped and collected": f"import gc, io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)\ngc.collect()\n{SUM}",
    "reader": f"import codecs, sys\nsys.stdin = codecs.getreader('utf-8')(sys.stdin.buffer)\n{SUM}",
    "text": "import io, sys\nsys.stdin = io.StringIO(sys.stdin.read())\nprint(int(input()) + int(input()))",
    "bytes": "import io, os, sys\ninput = io.BytesIO(os.read(0, os.fstat(0).st_size)).readline\nprint(int(input()) + int(input()))",
    "descriptor": "import sys\nsys.stdin = open(0)\nprint(sum(map(int, sys.stdin)))",
    "detached": f"import io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.detach())\n{SUM}",
    "original": "import sys\nassert sys.stdin is sys.__stdin__\nprint(sum(map(int, sys.__stdin__)))",
    "attributes": (
        "import io, sys\nfor number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):\n"
        "    print(type(stream) is io.TextIOWrapper, stream.mode, stream.name, stream.fileno(), stream.encoding, stream.newlines)\n"
        "    print(type(stream.buffer), stream.buffer.raw.name, stream.buffer.raw.mode, stream.isatty())"
    ),
    "wrapped stdout": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer, line_buffering=False)\nprint('a')",
    "written by a writer": "import codecs, sys\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)\nprint('\u00e9')",
    "not flushed": "out = open(1, 'w', closefd=False)\nout.write('a')",
    "not flushed, hidden": "_buffers = [open(1, 'wb', closefd=False)]\n_buffers[0].write(b'a')",
    "finalizer": "class Last:\n    def __del__(self): print('end')\nlast = Last()\nprint('a')",
    "cycle": "class Last:\n    def __del__(self): print('end')\nlast = Last()\nlast.me = last\nprint('a')",
    "exit handler": "import atexit\natexit.register(print, 'end')\nprint('a')",
    "exit handler, stream": "import atexit, io, sys\nout = sys.stdout = io.StringIO()\n"
    "atexit.register(lambda: sys.__stdout__.write(out.getvalue()))\nprint('a')",
    "thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print('end'))).start()\nprint('a')",
    "own file": "print(open(__file__).read().count('print'))",
    "own directory": "import os\nprint(os.path.isfile(__file__), os.path.dirname(os.path.abspath(__file__)) == os.getcwd())",
    "arguments": "import os, sys\nprint(len(sys.argv), os.path.abspath(sys.argv[0]) == __file__)",
    "builtins": "import builtins\nprint(__builtins__ is builtins, __builtins__.len([1]))",
    "names": "print(sorted(name for name in globals()))",
    "main": "import sys\nprint(__name__, sys.modules['__main__'].__dict__ is globals(), __spec__, __doc__, __annotations__)",
    "source": "import inspect\ndef f(): return 1\nprint(inspect.getsource(f))",
    "pickle": "import pickle\nclass A: x = 1\nprint(pickle.loads(pickle.dumps(A())).x, A.__module__)",
    "byte order mark": "\ufeffprint('a')",
    "hook": "import sys\nsys.excepthook = lambda *error: print(error[0].__name__)\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    print('a')",
    "recursion limit": "import sys\nprint(sys.getrecursionlimit())",
    "annotations": "x: int = 1\nprint(__annotations__)",
}
FAILING = {
    "exception": "print('a')\nraise ValueError",
    "exit": "import sys\nsys.exit('message')",
    "deep": "def f(n): return n and f(n - 1)\nprint(f(1100))",
    "mark inside": "print('a')\n\ufeffprint('b')",
}
STDIN = "3\n4\n"


def _plain(path: Path, code: str) -> subprocess.CompletedProcess[str]:
    (path / "main.py").write_text(code, encoding="utf-8")
    (path / "stdin").write_text(STDIN)
    command = [sys.executable, "-E", "-X", "utf8", "main.py"]
    with (path / "stdin").open() as stdin:
        return subprocess.run(command, cwd=path, stdin=stdin, capture_output=True, text=True, encoding="utf-8", check=False)


def _grade(judge: Judge, code: str, stdout: str, **options: object) -> Graded:
    tests = Programs(cases=(ProgramCase(stdin=STDIN, stdout=stdout),))
    return judge(Submission(code=code, tests=tests, **options))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_what_plain_python_prints(judge: Judge, tmp_path: Path, name: str) -> None:
    plain = _plain(tmp_path, PROGRAMS[name])
    assert plain.returncode == 0, plain.stderr
    graded = _grade(judge, PROGRAMS[name], plain.stdout)
    assert graded.outcome is VerdictOutcome.PASSED, (graded, plain.stdout)


@pytest.mark.parametrize("name", FAILING)
def test_programs_fail_as_in_plain_python(judge: Judge, tmp_path: Path, name: str) -> None:
    plain = _plain(tmp_path, FAILING[name])
    assert plain.returncode == 1
    graded = _grade(judge, FAILING[name], plain.stdout)
    assert graded.outcome is VerdictOutcome.ERROR
    assert graded.stderr.rstrip().rpartition("\n")[2] == plain.stderr.rstrip().rpartition("\n")[2]


def test_functions_may_begin_with_a_byte_order_mark(judge: Judge) -> None:
    assert judge.asserts("\ufeffdef f(): return 1", "assert f() == 1", entry_point="f").outcome is VerdictOutcome.PASSED


def test_file_of_a_program_replaces_no_file(judge: Judge) -> None:
    code = "import os\nprint(open('main.py').read(), sorted(os.listdir()), os.path.basename(__file__))"
    files = {"main.py": "text", "main_0.py/x": ""}
    assert _grade(judge, code, "text ['main.py', 'main_0.py', 'main_1.py'] main_1.py", files=files).outcome == "passed"


def test_random_numbers_are_reproducible_unless_chance_is_asked_for(judge: Judge) -> None:
    cases = (ProgramCase(stdout=""),)
    code = "import random\nprint(random.getrandbits(64))"
    seeded, other, chance = (
        [judge(Submission(code=code, tests=Programs(cases=cases, random_seed=seed))).stdout for _ in range(2)]
        for seed in (0, 1, None)
    )
    assert seeded[0] == seeded[1] != other[0] == other[1]
    assert len({*seeded, *other, *chance}) == 4
