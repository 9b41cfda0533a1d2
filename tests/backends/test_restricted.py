"""The restricted backend in real sessions: programs that run as in plain Python, and programs that are refused."""

from __future__ import annotations

from tests.backends.corpus import ESCAPES, GUARDS, LOOT, PROGRAMS


def test_ordinary_programs_behave_as_in_plain_python(plain, restricted):
    def seen(session, cells):
        session.reset()
        shown = session.run_all(cells)
        return shown.stdout, shown.exit_code, shown.stderr.splitlines()[-1:]

    expected = {name: seen(plain, cells) for name, cells in PROGRAMS.items()}
    assert {name: seen(restricted, cells) for name, cells in PROGRAMS.items()} == expected


def test_escape_attempts_leak_nothing(plain, restricted):
    def is_leak(session, code):
        session.reset()
        shown = session.run(code)
        # Tracebacks on stderr quote the source, which may match.
        return bool(LOOT.search(shown.stdout)) or (session is restricted and "root:x:0" in shown.stderr)

    assert [name for name, code in ESCAPES.items() if not is_leak(plain, code)] == []
    assert [name for name, code in ESCAPES.items() if is_leak(restricted, code)] == []


def test_guards_cannot_be_replaced(restricted):
    def attempt(code):
        restricted.reset()
        shown = restricted.run(code)
        return shown.exit_code, bool(LOOT.search(shown.stdout)), restricted.run("print('x'.upper())").stdout

    assert {name: attempt(code) for name, code in GUARDS.items()} == dict.fromkeys(GUARDS, (1, False, "X\n"))


def test_corpora_have_documented_size():
    assert len(PROGRAMS) >= 45
    assert len(ESCAPES) >= 45
