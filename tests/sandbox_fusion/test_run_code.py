from __future__ import annotations

import base64
import sys
import textwrap

import psutil
import pytest

from coding_gym_server.server.sandbox_fusion.code_runs import MAX_OUTPUT_CHARS
from coding_gym_server.workspace.fetching import MAX_FETCHED_BYTES
from tests.support.program_requests import client_of


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_response_has_the_fields_of_sandbox_fusion(run_code):
    answer = run_code("import sys\nprint(input())\nprint('late', file=sys.stderr)", stdin="hello\n")
    assert answer["run_result"].pop("execution_time") > 0
    assert answer == {
        "status": "Success",
        "message": "",
        "compile_result": None,
        "run_result": {"status": "Finished", "return_code": 0, "stdout": "hello\n", "stderr": "late\n"},
        "executor_pod_name": None,
        "files": {},
    }


@pytest.mark.parametrize(
    ("code", "return_code", "output"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no')", 1, "no\n"),
        ("import os; os._exit(7)", 7, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -11, ""),
        ("1 +", 1, '  File "main.py", line 1\n    1 +\n       ^\nSyntaxError: invalid syntax\n'),
        ("raise KeyError(1)", 1, 'Traceback (most recent call last):\n  File "main.py", line 1, in <module>\n'),
        ("x = '\\0'\n\0", 1, "SyntaxError: source code string cannot contain null bytes\n"),
        ("raise SystemExit", 0, ""),
    ],
)
def test_exit_codes_are_those_of_python(run_code, code, return_code, output):
    answer = run_code(code)
    assert answer["run_result"]["return_code"] == return_code
    assert answer["run_result"]["status"] == "Finished"
    assert answer["status"] == ("Failed" if return_code else "Success")
    assert output in answer["run_result"]["stderr"]


def test_program_is_a_main_module_with_a_file(run_code):
    code = """
        import atexit, os, pickle, sys, threading
        class Point: pass
        assert __name__ == "__main__" and pickle.loads(pickle.dumps(Point())).__class__ is Point
        assert open(__file__).read().strip().startswith("import atexit") and os.path.isabs(__file__)
        assert sys.argv == ["main.py"] and sys.path[0] == ""
        atexit.register(print, "at exit")
        threading.Timer(0.1, print, ["from a thread"]).start()
        """
    assert run_code(textwrap.dedent(code))["run_result"]["stdout"] == "from a thread\nat exit\n"


def test_endless_program_exceeds_its_time(run_code):
    answer = run_code("print('begun', flush=True)\nwhile True: pass", run_timeout=0.5)
    assert answer["status"] == "Failed"
    assert answer["run_result"]["status"] == "TimeLimitExceeded"
    assert answer["run_result"]["return_code"] is None
    assert answer["run_result"]["stdout"] == "begun\n"
    assert 0.5 <= answer["run_result"]["execution_time"] < 60


def test_compilation_counts_towards_the_time_limit(run_code):
    answer = run_code("print('reached')\n" + "a = b = [1, 2, 3]\n" * 400_000, run_timeout=0.3)
    assert (answer["run_result"]["status"], answer["run_result"]["stdout"]) == ("TimeLimitExceeded", "")


@pytest.mark.parametrize("timeout", [0, -1, 1e-9])
def test_no_time_is_exceeded_at_once(run_code, timeout):
    answer = run_code("import time; time.sleep(60)", run_timeout=timeout)
    assert answer["run_result"]["status"] == "TimeLimitExceeded"


@pytest.mark.every_provider
def test_memory_limit_holds_for_one_run(run_code):
    code = "x = bytearray(200 << 20); print(len(x))"
    limited = run_code(code, memory_limit_MB=100)
    assert limited["status"] == "Failed"
    assert limited["run_result"]["stderr"].endswith("MemoryError\n")
    assert run_code(code)["run_result"]["stdout"] == f"{200 << 20}\n"
    assert run_code(code, memory_limit_MB=1024)["status"] == "Success"


@pytest.mark.parametrize("limit", [1 << 44, sys.maxsize])
@pytest.mark.parametrize("language", ["python", "bash"])
def test_memory_limit_may_be_larger_than_any_memory(run_code, language, limit):
    code = {"python": "print(1)", "bash": "echo 1"}[language]
    assert run_code(code, language=language, memory_limit_MB=limit)["run_result"]["stdout"] == "1\n"


def test_memory_limit_is_inherited_by_child_processes(run_code):
    code = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', 'bytearray(200 << 20)']).returncode)"
    assert run_code(code, memory_limit_MB=100)["run_result"]["return_code"] == 1


def test_long_output_is_cut_in_the_middle(run_code):
    answer = run_code(
        "import sys\nprint('\\n'.join(f'line {i:08}' for i in range(400_000))); sys.stderr.write('e' * 4_000_000)"
    )
    stdout, stderr = answer["run_result"]["stdout"], answer["run_result"]["stderr"]
    assert answer["status"] == "Success"
    assert len(stdout) == len(stderr) == MAX_OUTPUT_CHARS
    assert stdout.startswith("line 00000000\n")
    assert stdout.endswith("line 00399999\n")


def test_endless_output_ends_with_the_time_limit(run_code):
    answer = run_code("import os\nwhile True: os.write(1, b'x' * 65536)", run_timeout=1)
    assert answer["run_result"]["status"] == "TimeLimitExceeded"
    assert len(answer["run_result"]["stdout"]) <= MAX_OUTPUT_CHARS


def test_other_bytes_than_text_are_replaced(run_code):
    answer = run_code("import os, sys\nos.write(1, b'a\\xff\\x00b'); sys.stdout.write('\\ud800'); print('grün')")
    assert (
        answer["run_result"]["stdout"] == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}grün\n"
    )


def test_programs_are_plain_python(run_code):
    code = (
        "\ufeffimport builtins, io, sys\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer)\n"
        "print(sys.stdin.read(), __builtins__ is builtins, open(__file__, encoding='utf-8-sig').read()[:6])"
    )
    assert run_code(code, stdin="text")["run_result"]["stdout"] == "text True import\n"
    chance = "import random; print(random.getrandbits(64))"
    assert run_code(chance)["run_result"]["stdout"] != run_code(chance)["run_result"]["stdout"]


def test_megabytes_of_stdin_arrive(run_code):
    text = "ü\n" * 2_000_000
    code = "import sys; data = sys.stdin.read(); print(len(data), len(data.splitlines()))"
    assert run_code(code, stdin=text)["run_result"]["stdout"] == "4000000 2000000\n"
    assert run_code("print(1)", stdin=text)["run_result"]["stdout"] == "1\n"
    assert run_code("print(repr(input()))")["run_result"]["stderr"].endswith("EOFError: EOF when reading a line\n")


def test_files_go_in_and_out(run_code):
    code = """
        import os
        os.makedirs("out/deep")
        open("out/deep/result.bin", "wb").write(open("in/data.txt", "rb").read() + bytes([0, 255]))
        print(sorted(os.listdir(".")), sorted(os.listdir("in")))
        """
    files = {"in/data.txt": encode("grün"), "skipped": None, "in/IGNORE_THIS_FILE": "?", "empty": ""}
    answer = run_code(
        textwrap.dedent(code), files=files, fetch_files=["out/deep/result.bin", "empty", "missing", "none/at/all"]
    )
    assert answer["run_result"]["stdout"] == "['empty', 'in', 'main.py', 'out'] ['data.txt']\n"
    assert answer["files"] == {
        "out/deep/result.bin": base64.b64encode("grün".encode() + b"\x00\xff").decode(),
        "empty": "",
    }
    assert answer["message"] == ""


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("../out", "", "Path outside workspace: ../out"),
        ("a/../../out", "", "Path outside workspace: a/../../out"),
        ("/etc/out", "", "Path outside workspace: /etc/out"),
        ("", "", "Is a directory: "),
        (".", "", "Is a directory: ."),
        ("nul\0", "", "Path outside workspace: nul\0"),
        ("x" * 300, "", f"File name too long: {'x' * 300}"),
        ("a", "A", "Expected the file 'a' to be Base64 text: "),
        ("a", "ü", "Expected the file 'a' to be Base64 text: "),
    ],
)
def test_impossible_files_are_refused(run_code, path, content, reason):
    answer = run_code("print('run')", files={"fine": "", path: content})
    assert answer["status"] == "SandboxError"
    assert answer["message"].startswith(reason)
    assert answer["run_result"] is None
    assert run_code("import os; print(os.listdir())")["run_result"]["stdout"] == "['main.py']\n"


def test_only_files_of_the_workspace_are_returned(run_code):
    code = f"""
        import os
        os.symlink("/etc/passwd", "link"); os.symlink("main.py", "inner"); os.mkfifo("pipe"); os.mkdir("directory")
        with open("sparse", "wb") as file: file.truncate({MAX_FETCHED_BYTES + 1})
        """
    wanted = ["link", "pipe", "directory", "sparse", "../work/main.py", "/etc/passwd", "inner", "main.py"]
    answer = run_code(textwrap.dedent(code), fetch_files=wanted)
    assert answer["status"] == "Success"
    assert list(answer["files"]) == ["inner", "main.py"]
    assert answer["message"].split("; ") == [
        "Path outside workspace: link",
        "Not a file: pipe",
        "Is a directory: directory",
        f"The requested files have more than {MAX_FETCHED_BYTES:,} bytes: sparse",
        "Path outside workspace: ../work/main.py",
        "Path outside workspace: /etc/passwd",
    ]


def test_runs_leave_neither_files_nor_processes(run_code):
    mark = "987654.5"
    code = f"""
        import os, subprocess, tempfile
        print(sum(len(files) for place in (".", tempfile.gettempdir()) for _, _, files in os.walk(place)))
        open("left", "w"); open(f"{{tempfile.gettempdir()}}/left", "w"); os.chmod(".", 0)
        subprocess.Popen(["sleep", "{mark}"], start_new_session=True, stdin=subprocess.DEVNULL)
        if os.fork() == 0: os.setsid(); os.execvp("sleep", ["sleep", "{mark}"])
        """
    for _ in range(2):
        answer = run_code(textwrap.dedent(code))
        assert (answer["status"], answer["run_result"]["stdout"]) == ("Success", "1\n"), answer
    assert [process for process in psutil.process_iter(["cmdline"]) if mark in (process.info["cmdline"] or ())] == []


def test_files_are_removed_before_the_next_program(sandbox_of):
    code = """
        import os, pathlib, sys, tempfile
        places = {os.getcwd(), tempfile.gettempdir(), os.path.expanduser("~")}
        for place in places:
            directory = pathlib.Path(place, "left-by-fusion")
            directory.mkdir()
            (directory / "file").write_text("x" * 1000)
            directory.chmod(0)
        print(*places, sep="\\n")
        """
    sandbox = sandbox_of(provider="local", sessions=1)
    with client_of(sandbox) as http:
        body = {"code": textwrap.dedent(code), "language": "python"}
        for _ in range(2):
            result = http.post("/run_code", json=body).json()["run_result"]
            assert result["return_code"] == 0, result["stderr"]


def test_background_process_does_not_delay_the_response(run_code):
    answer = run_code("import subprocess; subprocess.Popen(['sleep', '600']); print('done')")
    assert answer["run_result"]["stdout"] == "done\n"
    assert answer["run_result"]["execution_time"] < 30


def test_libraries_are_imported_in_advance(run_code):
    code = "import sys; print('numpy' in sys.modules); import numpy; print(numpy.arange(4).sum())"
    assert run_code(code)["run_result"]["stdout"] == "True\n6\n"


def test_program_is_compiled_once(run_code):
    # Compiling it takes more memory than running it.
    code = "pass\n" * 300_000 + "print('done')"
    assert "MemoryError" in run_code(code, memory_limit_MB=60)["run_result"]["stderr"]
    assert run_code(code)["run_result"]["stdout"] == "done\n"
    assert run_code(code, memory_limit_MB=60)["run_result"]["stdout"] == "done\n"
    assert "MemoryError" in run_code(f"{code}#", memory_limit_MB=60)["run_result"]["stderr"]


def test_each_run_shows_the_warnings_of_the_compiler(run_code):
    for _ in range(3):
        stderr = run_code("print(1 is 1)")["run_result"]["stderr"]
        assert stderr.startswith("main.py:1: SyntaxWarning: ")
        assert "print(1 is 1)" in stderr


FORGERY = """
    import marshal, os, socket, struct
    forged = marshal.dumps(compile("print('forged')", "main.py", "exec"))
    body = bytes([0x92, 15, 0xc5]) + struct.pack(">H", len(forged)) + forged
    for number in range(3, 1024):
        try: socket.socket(fileno=os.dup(number)).sendall(struct.pack("<I", len(body)) + body)
        except OSError: continue
        print("sent")
    """
"""Program that answers the server's request for its compilation, as its process does before it executes it."""


# The compiler warns of the second one, which is not kept.
@pytest.mark.parametrize("first_line", ["", "1 is 1\n"])
def test_forged_compilation_is_not_kept(run_code, first_line):
    code = first_line + textwrap.dedent(FORGERY) + "    import time; time.sleep(0.2)\n"
    assert {run_code(code)["run_result"]["stdout"] for _ in range(3)} == {"sent\n"}


# The compiler normalizes the identifier with a module that it may import.
@pytest.mark.parametrize("line", ["1 is 1", "\N{LATIN SMALL LIGATURE FI} = 1"])
@pytest.mark.parametrize("module", ["solution", "unicodedata"])
def test_files_of_a_program_cannot_forge_its_compilation(run_code, line, module):
    harness = f"{line}\nimport sys; sys.path.insert(0, ''); import {module} as found; print('right', getattr(found, 'y', 0))"
    hostile = textwrap.dedent(FORGERY) + "import time; time.sleep(0.2); y = 5\n"
    attacked = run_code(harness, files={f"{module}.py": encode(hostile)})["run_result"]
    assert ("sent" in attacked["stdout"]) == (module == "solution")
    for _ in range(2):
        answer = run_code(harness, files={f"{module}.py": encode("y = 6")})["run_result"]
        assert answer["stdout"] == f"right {6 if module == 'solution' else 0}\n"
