"""Rules by which the output of a program matches the expected one."""

from __future__ import annotations

import pytest

from coding_gym_server.protocol.grading import OutputRule, ProgramCase, Programs, Tolerance
from coding_gym_server.server.grading.output_match import is_same_output

LINES, TOKENS, LIVE_CODE_BENCH, ANY, EXACT, CASE_INSENSITIVE, UNORDERED_LINES = OutputRule


@pytest.mark.parametrize("compare", [LINES, TOKENS])
@pytest.mark.parametrize(
    ("printed", "expected", "is_same"),
    [
        ("123456700000", "123456789012", False),
        ("998244000", "998244353", False),
        ("123456789012", "123456789012", True),
        ("+7 -0 007", "7 0 7", True),
        ("-7", "7", False),
        ("9" * 5000, "9" * 5000, True),
        ("0" + "9" * 5000, "9" * 5000, True),
        ("9" * 4999 + "8", "9" * 5000, False),
        ("1_0", "10", False),
        ("1_0.5", "10.5", False),
        ("\u0661", "1", False),
        ("inf", "infinity", False),
        ("Infinity", "inf", False),
        ("nan", "1.5", False),
        ("1e999", "2.0e999", False),
        ("0.3333333", "0.333333333", True),
        ("0.33", "0.333333333", False),
        ("1.5e-07", "0.00000015", True),
        (".5", "0.5", True),
        ("5e-1", "0.5", True),
        ("3", "3.0", True),
        ("3.0", "3", False),
        ("1.0000001", "1", False),
        ("yes 0.50000001", "yes 0.5", True),
        ("Yes 0.5", "yes 0.5", False),
        ("12e40", "12e4", False),
        ("120000", "12e4", False),
        ("0.0000001", "1e-07", True),
        ("(0.50000001)", "(0.5)", False),
        ("1.2.30", "1.2.3", False),
        ("1  0.5", "1 0.5", True),
        ("1\n", "1\n\n", True),
    ],
)
def test_only_decimal_fractions_have_a_tolerance(printed: str, expected: str, is_same: bool, compare: OutputRule) -> None:
    context = "0.5 x\n"
    assert is_same_output(context + printed, context + expected, compare=compare, tolerance=1e-6) is is_same


def test_lines_without_tolerance_are_text() -> None:
    for printed, is_same in (("1 2 \r\n\n", True), ("1  2", False), (" 1 2", False), ("1\n2", False), ("+1 2", False)):
        assert is_same_output(printed, "1 2\n", compare=LINES, tolerance=None) is is_same


def test_tokens_ignore_all_whitespace() -> None:
    for printed, is_same in (("\n 1\n2\t", True), ("1  2", True), ("12", False), ("1 2 3", False), ("1", False), ("", False)):
        assert is_same_output(printed, "1 2\n", compare=TOKENS, tolerance=None) is is_same


@pytest.mark.parametrize(
    ("printed", "expected", "is_same"),
    [
        (" 5\n", "5", True),
        ("\n 5 \n\n", "5", True),
        ("1  2\n3", "1 2\n3\n", True),
        ("3.0", "3", True),
        ("3", "3.0", True),
        ("0.00000015", "1.5e-07", True),
        ("1.50", "1.5", True),
        ("1.5000001", "1.5", False),
        ("a  b", "a b", False),
        (" a b \n c", "a b\nc", True),
        ("1 2", "1\n2", False),
        ("50000000000000001", "50000000000000000", False),
        ("9" * 5000, "9" * 5000 + ".0", True),
        ("1_0", "10", False),
        ("1e9999999999999999999", "1e9999999999999999998", False),
        ("", "", True),
        ("", "0", False),
    ],
)
def test_live_code_bench_compares_decimal_numbers(printed: str, expected: str, is_same: bool) -> None:
    assert is_same_output(printed, expected, compare=LIVE_CODE_BENCH, tolerance=None) is is_same


@pytest.mark.parametrize(
    ("compare", "printed", "expected", "is_same"),
    [
        (EXACT, "a b\n", "a b\n", True),
        (EXACT, "a b", "a b\n", False),
        (EXACT, "1.0\n", "1.0000000001\n", False),
        (CASE_INSENSITIVE, "YES\n  Strasse 007", "yes strasse\n7", True),
        (CASE_INSENSITIVE, "STRASSE", "straße", True),
        (CASE_INSENSITIVE, "yes no", "yes", False),
        (CASE_INSENSITIVE, "1E-7", "1e-07", True),
        (UNORDERED_LINES, "b 2\n\n a  1\n", "a 1\nb 2", True),
        (UNORDERED_LINES, "1 2\n1 2\n3", "1 2\n3\n3", False),
        (UNORDERED_LINES, "1 2\n1 2", "1 2", False),
        (UNORDERED_LINES, "2 1", "1 2", False),
        (UNORDERED_LINES, "10\n9\n-3\n07", "7\n-3\n9\n10", True),
        (UNORDERED_LINES, "9007199254740993\n9007199254740992", "9007199254740992\n9007199254740993", True),
        (UNORDERED_LINES, "0.30000001\n0.1\nx", "x\n0.1\n0.3", True),
        (UNORDERED_LINES, "0.31\n0.1", "0.1\n0.3", False),
        (UNORDERED_LINES, "", "\n\n", True),
    ],
)
def test_rules_of_case_and_order(compare: OutputRule, printed: str, expected: str, is_same: bool) -> None:
    assert is_same_output(printed, expected, compare=compare, tolerance=1e-6) is is_same


@pytest.mark.parametrize(
    ("tolerance", "printed", "is_same"),
    [
        (Tolerance(absolute=0.5), "1000.5", True),
        (Tolerance(absolute=0.5), "1000.6", False),
        (Tolerance(relative=1e-3), "1001.0", True),
        (Tolerance(relative=1e-3), "1001.1", False),
        (Tolerance(absolute=2.0, relative=1e-3), "1002.0", True),
        (Tolerance(), "1000.00", True),
        (Tolerance(), "1000.01", False),
    ],
)
def test_absolute_and_relative_tolerance(tolerance: Tolerance, printed: str, is_same: bool) -> None:
    assert is_same_output(printed, "1000.0", compare=TOKENS, tolerance=tolerance) is is_same


def test_rules_have_names() -> None:
    case = ProgramCase(stdout="1")
    assert Programs(cases=(case,)).compare == "lines"
    assert is_same_output("1\n2", "1 2", compare="tokens", tolerance=None)
    with pytest.raises(ValueError, match=r"one of lines, tokens, livecodebench, any, .*got 'token'"):
        Programs(cases=(case,), compare="token")


def test_long_outputs_are_compared_in_linear_time() -> None:
    zeros = "0" * 2_000_000
    for rule in {*OutputRule} - {ANY}:
        assert not is_same_output(f"{zeros}x 0.5", f"{zeros}y 0.5", compare=rule, tolerance=1e-6)


def test_any_output_matches() -> None:
    assert is_same_output("ok!", "", compare=ANY, tolerance=None)
