"""Backends whose cells are whole programs, in languages that this machine has, through sessions of a real server."""

from __future__ import annotations

import json

import pytest

from coding_gym_server.languages import find_language, languages
from coding_gym_server.protocol.backends import UnknownBackendError, canonical_backend, check_backend
from coding_gym_server.worker.backends.registry import backend_class, runs_in_worker

HELLO = {
    "c": '#include <stdio.h>\nint main(void) { puts("grüße 🎉"); }',
    "cpp": '#include <iostream>\nint main() { std::cout << "grüße 🎉" << std::endl; }',
    "perl": 'print "grüße 🎉\\n";',
    "ruby": 'puts "grüße 🎉"',
    "rust": 'fn main() { println!("grüße 🎉"); }',
}
LOOP = "int main() { volatile int x = 0; for (;;) x = 1; }"


@pytest.fixture
def open_programs(open_session):
    """Function that opens a session of a language's programs, if this machine has it."""

    def open_one(language: str):
        try:
            return open_session(language)
        except ValueError as error:
            if "is not installed" not in str(error):
                raise
            # Including programs that only this user may execute, such as those of rustup.
            pytest.skip(str(error))

    return open_one


@pytest.fixture
def cpp(open_programs):
    return open_programs("cpp")


@pytest.mark.parametrize("language", sorted(HELLO))
def test_cells_are_programs(open_programs, language):
    session = open_programs(language)
    for _ in range(2):
        step = session.run(HELLO[language])
        assert (step["stdout"], step["stderr"], step["exit_code"], step["outcome"]) == ("grüße 🎉\n", "", 0, "ok")


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "exit_code"),
    [
        ('#include <cstdio>\nint main() { puts("out"); fputs("err\\n", stderr); return 3; }', "out\n", "err\n", 3),
        ("#include <cstdlib>\nint main() { abort(); }", "", "Aborted\n", 134),
        ("int main() { return *(volatile int*) 0; }", "", "Segmentation fault\n", 139),
        ("#include <csignal>\nint main() { raise(SIGKILL); }", "", "Killed\n", 137),
        ("#include <csignal>\nint main() { raise(SIGPIPE); }", "", "", 141),
        ("#include <cstdio>\nint main() { return getchar() == EOF ? 0 : 1; }", "", "", 0),
        ('#include <cstdio>\nint main() { puts("a\\xff"); }', "a\ufffd\n", "", 0),
        ("#include <fcntl.h>\nint main() { for (int n = 3; n < 300; ++n) if (fcntl(n, F_GETFD) != -1) return n; }", "", "", 0),
    ],
)
def test_how_programs_end(cpp, code, stdout, stderr, exit_code):
    step = cpp.run(code)
    assert (step["stdout"], step["stderr"], step["exit_code"], step["state_lost"]) == (stdout, stderr, exit_code, False)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("int main() {\n  return missing;\n}", "main.cpp:2:10: error:"),
        ("", "undefined reference to `main'"),
        ('#include "nope.h"\nint main() {}', "main.cpp:1:10: fatal error: nope.h"),
        ("int main() { return 0; }\0 @", "main.cpp:1:27: error:"),
    ],
)
def test_what_a_compiler_refuses_is_on_stderr(cpp, code, message):
    step = cpp.run(code)
    assert message in step["stderr"]
    assert (step["stdout"], step["exit_code"], step["outcome"], step["state_lost"]) == ("", 1, "error", False)


def test_working_directory_is_the_sessions(cpp):
    assert cpp.run('#include <fstream>\nint main() { std::ofstream("note") << "kept"; }')["exit_code"] == 0
    step = cpp.run(
        "#include <fstream>\n#include <iostream>\n#include <cstdlib>\nint main() {\n"
        '  std::cout << std::ifstream("note").rdbuf() << std::endl;\n  return system("ls -A; ls /tmp | grep program");\n}'
    )
    assert step["stdout"] == "kept\nnote\nprogram\n"
    assert cpp.run('#include <cstdlib>\nint main() { return system("ls -d /tmp/program*"); }')["stdout"] == "/tmp/program\n"


def test_sources_find_files_of_the_session(open_programs):
    cpp = open_programs("cpp")
    cpp.run(
        "#include <filesystem>\n#include <fstream>\nint main() {\n"
        '  std::filesystem::create_directory("lib");\n'
        '  std::ofstream("lib/three.h") << "#include \\"four.h\\"\\nint three = four - 1;";\n'
        '  std::ofstream("lib/four.h") << "int four = 4;";\n  std::ofstream("main.o") << "mine";\n'
        '  std::ofstream(".hidden.h") << "";\n}'
    )
    step = cpp.run('#include <iostream>\n#include "lib/three.h"\nint main() { std::cout << three; }')
    assert (step["stdout"], step["stderr"]) == ("3", "")
    assert "fatal error" in cpp.run('#include ".hidden.h"\nint main() {}')["stderr"]
    # What a compiler writes is not written to them.
    step = cpp.run('#include <fstream>\n#include <iostream>\nint main() { std::cout << std::ifstream("main.o").rdbuf(); }')
    assert step["stdout"] == "mine"


def test_sources_find_modules_of_the_session(open_programs):
    perl = open_programs("perl")
    perl.run('open my $f, ">", "Three.pm"; print $f "package Three; sub value { 3 } 1;";')
    assert perl.run("use FindBin; use lib $FindBin::Bin; use Three; print Three::value();")["stdout"] == "3"


def test_messages_do_not_depend_on_the_session(open_programs):
    messages = {open_programs("perl").run("die 'no'")["stderr"] for _ in range(2)}
    assert messages == {"no at /tmp/program/main.pl line 1.\n"}


def test_directories_that_exist_are_left_alone(open_programs):
    perl = open_programs("perl")
    perl.run('mkdir "/tmp/program"; mkdir "/tmp/program-2"; open my $f, ">", "/tmp/program-2/mine"; print $f "1";')
    assert perl.run('mkdir "/tmp/program-3"; print $0;')["stdout"] == "/tmp/program/main.pl"
    assert perl.run('mkdir "/tmp/program"; print -s "/tmp/program-2/mine";')["stdout"] == "1"


@pytest.mark.parametrize(
    "code",
    [
        LOOP,
        f"#include <csignal>\nint x = signal(SIGINT, SIG_IGN) == SIG_ERR;\n{LOOP}",
        '#include <cstdio>\nint main() { for (;;) puts("0123456789"); }',
        "#include <unistd.h>\nint main() { fork(); fork(); setbuf(stdout, nullptr); for (;;) pause(); }",
        '#include <cstdlib>\nint main() { system("sleep 100"); for (;;); }',
    ],
    ids=["loop", "ignores interrupts", "output", "children", "shell"],
)
def test_limits_stop_programs(cpp, code):
    step = cpp.run(f"#include <cstdio>\n{code}", timeout=3)
    assert (step["exit_code"], step["outcome"], step["state_lost"]) == (124, "timeout", False)
    assert len(step["stdout"]) <= 16_384
    assert cpp.run(HELLO["cpp"])["stdout"] == "grüße 🎉\n"


def test_limits_stop_compilers(cpp):
    step = cpp.run('template<int N> struct A { A<N + 1> a; A<N + 2> b; };\n#include "/dev/zero"\nA<0> a;', timeout=0.3)
    assert (step["stdout"], step["state_lost"]) == ("", False)
    assert step["outcome"] in ("timeout", "error")


@pytest.mark.parametrize(
    ("handler", "stdout", "exit_code"),
    [("SIG_DFL", "", 130), ("SIG_IGN", "", 130), ('[](int) { write(1, "handled", 7); _exit(5); }', "handled", 5)],
)
def test_interrupts_reach_programs(cpp, handler, stdout, exit_code):
    """The program has its worker interrupted, so that it has begun by then."""
    code = f"int main() {{ signal(SIGINT, {handler}); kill(getppid(), SIGINT); for (;;) pause(); }}"
    step = cpp.run(f"#include <csignal>\n#include <unistd.h>\n{code}")
    assert (step["stdout"], step["exit_code"], step["state_lost"]) == (stdout, exit_code, False)


def test_interrupts_of_clients_stop_programs(open_programs):
    perl = open_programs("perl")
    for _ in range(3):
        perl.begin("1 while 1;", timeout=60)
        perl.interrupt()
        step = perl.wait()
        assert (step["exit_code"], step["state_lost"]) == (130, False)


def test_processes_that_a_program_leaves_do_not_block(open_programs):
    perl = open_programs("perl")
    assert perl.run('if (fork()) { print "parent\\n"; exit } sleep 100;')["stdout"] == "parent\n"
    assert perl.run("print `ps -e 2>/dev/null | grep -c perl` + 0;")["exit_code"] == 0


def test_programs_can_be_in_contexts(interpreter):
    if find_language("cpp").missing():
        pytest.skip("this machine lacks a compiler of C++")
    interpreter.use_fresh_context(language="C++")
    code = '#include <cstdlib>\n#include <iostream>\nint main() { std::cout << getenv("A") << std::endl; return 4; }'
    execution = interpreter.execute(code, env_vars={"A": "ü 1"})
    assert execution.stdout == "ü 1\n"
    assert (execution.error["name"], execution.error["value"]) == ("ExitCode", "4")
    assert interpreter.execute(HELLO["cpp"], language="cpp20").stdout == "grüße 🎉\n"
    assert "cpp" in {context["language"] for context in interpreter.http.get("/contexts").json()}


def test_missing_languages_are_refused_with_the_option(open_session, interpreter):
    lacking = next((name for name, language in languages().items() if language.missing()), None)
    if lacking is None:
        pytest.skip("this machine has all languages")
    with pytest.raises(ValueError, match=rf"lacks .*languages=\('{lacking}',\)"):
        open_session(lacking)
    response = interpreter.http.post("/contexts", json={"language": lacking})
    reason = json.loads(response.text.partition(": ")[2])
    assert (response.status_code, reason["short_message"]) == (500, f"{lacking} not found")
    assert f"languages=('{lacking}',)" in reason["message"]


def test_names_of_languages_are_backends():
    assert [canonical_backend(name) for name in ("C++", "golang", "sh", "js", "python", "nope")] == [
        "cpp",
        "go",
        "bash",
        "jupyter:deno",
        "python",
        "nope",
    ]
    for name in ("c++", "rs", "sh", "node"):
        check_backend(name)
        assert not runs_in_worker(name)
    assert backend_class("sh") is backend_class("bash")
    with pytest.raises(UnknownBackendError, match=r"expected one of python, .*, cpp20, .*jupyter:KERNEL"):
        check_backend("klingon")


@pytest.mark.parametrize("language", list(languages()))
def test_commands_run_in_other_directories(language):
    product = find_language(language).product
    assert [part for part in find_language(language).run_in("/d") if part.endswith(product)] in (
        [f"/d/{product}"],
        [f".read /d/{product}"],
        [f"--class-path=/d/{product}", f"--scan-classpath=/d/{product}"],
    )
