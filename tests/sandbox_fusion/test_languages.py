from __future__ import annotations

import pytest

from coding_gym_server.languages import UnknownLanguageError, find_language, languages
from coding_gym_server.server.sandbox_fusion.languages import AVAILABLE
from coding_gym_server.server.sandbox_fusion.messages import LANGUAGES

READ = "const text = require('fs').readFileSync(0, 'utf8');"


def test_bash_runs_with_stdin_and_files(run_code):
    code = 'read -r line; echo "$line" | tee out.txt; echo "$0 $(ls)" >&2; exit 5'
    answer = run_code(code, language="bash", stdin="hi\nthere\n", fetch_files=["out.txt"])
    result = answer["run_result"]
    assert (result["stdout"], result["stderr"], result["return_code"]) == ("hi\n", "main.sh main.sh\nout.txt\n", 5)
    assert answer["files"] == {"out.txt": "aGkK"}


def test_signals_are_not_ignored_by_other_programs(run_code):
    # Python ignores SIGPIPE.
    assert run_code("yes | head -n 1; echo ${PIPESTATUS[0]}", language="bash")["run_result"]["stdout"] == "y\n141\n"


@pytest.mark.parametrize("language", ["bash", "nodejs", "typescript"])
def test_endless_programs_exceed_their_time(run_code, language):
    code = "while true; do :; done" if language == "bash" else "while (true) {}"
    answer = run_code(code, language=language, run_timeout=1)
    assert answer["run_result"]["status"] == "TimeLimitExceeded", answer


@pytest.mark.every_provider
def test_javascript_runs_with_modules_of_node(run_code):
    answer = run_code(f"{READ}\nconsole.log(text.length, typeof module, typeof process.argv)", language="nodejs", stdin="abc")
    assert answer["run_result"]["stdout"] == "3 object object\n", answer
    assert run_code("throw new Error('no')", language="nodejs")["run_result"]["return_code"] == 1
    assert run_code("process.exit(4)", language="nodejs")["run_result"]["return_code"] == 4


@pytest.mark.every_provider
def test_typescript_runs_without_type_checks(run_code):
    code = "import { readFileSync } from 'node:fs';\nconst n: string = 1;\nconsole.log(n, readFileSync(0).length);"
    answer = run_code(code, language="typescript", stdin="abc")
    assert answer["run_result"]["stdout"] == "1 3\n", answer


@pytest.mark.every_provider
def test_pytest_runs_the_tests_of_the_code(run_code):
    code = "import pytest, helper\n@pytest.mark.parametrize('n', [1, 2])\ndef test_n(n): assert helper.double(n) == 2"
    files = {"helper.py": "ZGVmIGRvdWJsZShuKTogcmV0dXJuIDIgKiBu"}
    result = run_code(code, language="pytest", files=files)["run_result"]
    assert result["return_code"] == 1
    assert "1 failed, 1 passed" in result["stdout"]
    assert "assert 4 == 2" in result["stdout"]
    assert run_code("def test(): pass", language="pytest")["status"] == "Success"
    assert run_code("", language="pytest")["run_result"]["return_code"] == 5


def test_memory_limit_holds_for_other_programs(run_code):
    code = "x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo ${#x}"
    answer = run_code(code, language="bash", memory_limit_MB=100, run_timeout=60)
    assert answer["status"] == "Failed"
    assert answer["run_result"]["status"] == "Finished"


@pytest.mark.every_provider
@pytest.mark.parametrize("language", ["nodejs", "typescript"])
def test_memory_limit_does_not_count_what_engines_reserve(run_code, language):
    code = "const a = []; for (let i = 0; i < {}; i++) a.push(new Uint8Array(1 << 20).fill(1)); console.log(a.length)"
    assert run_code(code.format(10), language=language, memory_limit_MB=200)["run_result"]["stdout"] == "10\n"
    assert run_code(code.format(500), language=language, memory_limit_MB=200)["status"] == "Failed"


def _is_known(language):
    try:
        find_language(language)
    except UnknownLanguageError:
        return language in AVAILABLE
    return True


@pytest.mark.parametrize("language", sorted(language for language in LANGUAGES if not _is_known(language)))
def test_other_languages_are_refused_by_name(run_code, language):
    answer = run_code("x", language=language)
    assert answer["status"] == "SandboxError"
    available = "python, pytest, nodejs, c, cpp, cpp11, "
    assert answer["message"].startswith(f"The language {language!r} is not available in this sandbox; available: {available}")
    assert answer["run_result"] is None


@pytest.mark.parametrize("language", sorted(languages()))
def test_languages_that_are_not_there_are_refused(run_code, provider, language):
    if provider != "local" or not (missing := find_language(language).missing()):
        pytest.skip("this machine has it")
    answer = run_code("x", language=language)
    assert answer["status"] == "SandboxError"
    assert answer["message"].startswith(f"The sandbox lacks {', '.join(missing)}, which programs in {language} need")


def test_compiled_program_and_its_compiler_have_results(run_code):
    if find_language("cpp").missing():
        pytest.skip("this machine lacks g++")
    code = '#include <iostream>\n#include "n.h"\nint main() { int a; std::cin >> a; std::cout << a * n; return 4; }'
    answer = run_code(code, language="cpp", stdin="21", files={"n.h": "I2RlZmluZSBuIDIK"}, fetch_files=["n.h"])
    assert (answer["status"], answer["run_result"]["stdout"], answer["run_result"]["return_code"]) == ("Failed", "42", 4)
    assert (answer["compile_result"]["status"], answer["compile_result"]["return_code"]) == ("Finished", 0)
    assert answer["files"] == {"n.h": "I2RlZmluZSBuIDIK"}
    answer = run_code("int main() { return x; }", language="cpp")
    assert (answer["status"], answer["compile_result"]["return_code"], answer["run_result"]) == ("Failed", 1, None)
    assert "was not declared" in answer["compile_result"]["stderr"]
    answer = run_code("#include <iostream>\nint main() { return 0; }", language="cpp", compile_timeout=0.001)
    assert answer["compile_result"]["status"] == "TimeLimitExceeded"
    # Which says nothing about the next request.
    assert run_code("int main() { return 0; }", language="cpp")["status"] == "Success"
