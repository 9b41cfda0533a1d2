"""The restricted backend in real sessions: programs that run as in plain Python, and programs that are refused."""

from __future__ import annotations

import pytest

from tests.backends.corpus import ESCAPES, GUARDS, LOOT, PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
def test_ordinary_program_behaves_as_in_plain_python(plain, restricted, name):
    plain.reset()
    restricted.reset()
    expected = plain.run_all(PROGRAMS[name])
    shown = restricted.run_all(PROGRAMS[name])
    assert shown.stdout == expected.stdout
    assert shown.exit_code == expected.exit_code
    assert shown.stderr.splitlines()[-1:] == expected.stderr.splitlines()[-1:]


@pytest.mark.parametrize("name", ESCAPES)
def test_escape_attempt_leaks_nothing(plain, restricted, name):
    plain.reset()
    assert LOOT.search(plain.run(ESCAPES[name]).stdout)
    restricted.reset()
    shown = restricted.run(ESCAPES[name])
    # Tracebacks on stderr quote the source, which may match.
    assert not LOOT.search(shown.stdout)
    assert "root:x:0" not in shown.stderr


@pytest.mark.parametrize("name", GUARDS)
def test_guards_cannot_be_replaced(restricted, name):
    restricted.reset()
    shown = restricted.run(GUARDS[name])
    assert shown.exit_code == 1
    assert not LOOT.search(shown.stdout)
    assert restricted.run("print('x'.upper())").stdout == "X\n"


def test_corpora_have_documented_size():
    assert len(PROGRAMS) >= 45
    assert len(ESCAPES) >= 45
