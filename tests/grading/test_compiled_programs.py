from __future__ import annotations

from coding_gym_server.server.grading.compiled_programs import CompiledPrograms


def test_least_recently_used_programs_are_dropped():
    programs = CompiledPrograms(max_bytes=100)
    for name in "abc":
        programs.put(name, "main.py", name.encode() * 40)
    assert [programs.get(name, "main.py") for name in "abc"] == [None, b"b" * 40, b"c" * 40]
    programs.get("b", "main.py")
    programs.put("d", "main.py", b"d" * 40)
    assert [programs.get(name, "main.py") for name in "bcd"] == [b"b" * 40, None, b"d" * 40]


def test_program_that_was_kept_is_not_replaced():
    programs = CompiledPrograms(max_bytes=100)
    programs.put("a", "main.py", b"first")
    programs.put("a", "main.py", b"second")
    assert programs.get("a", "main.py") == b"first"
    assert programs.get("a", "other.py") is None
    assert programs.get("a\ud800", "main.py") is None


def test_program_that_is_too_large_is_not_kept():
    programs = CompiledPrograms(max_bytes=10)
    programs.put("a", "main.py", b"small")
    programs.put("b", "main.py", b"x" * 11)
    assert programs.get("a", "main.py") == b"small"
    assert programs.get("b", "main.py") is None
