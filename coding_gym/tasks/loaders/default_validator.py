"""The default output validator of Kattis, for what rules of comparison do not say: flags of spaces and tolerances."""

__all__ = ["DEFAULT_VALIDATOR"]

DEFAULT_VALIDATOR = r"""
import math
import re
import sys

ACCEPTED, WRONG = 42, 43


def number(token):
    found = re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", token)
    value = float(token) if found else math.nan
    return value if math.isfinite(value) else None


def same(got, wanted):
    target = number(wanted) if tolerances else None
    if target is None:
        return got == wanted if case_sensitive else got.lower() == wanted.lower()
    value = number(got)
    return value is not None and (
        abs(value - target) <= tolerances.get("absolute", -1)
        or abs(value - target) <= tolerances.get("relative", -1) * abs(target)
    )


flags = sys.argv[4:]
case_sensitive, spaces, tolerances = False, False, {}
while flags:
    flag = flags.pop(0)
    if flag == "case_sensitive":
        case_sensitive = True
    elif flag == "space_change_sensitive":
        spaces = True
    elif flag == "float_tolerance":
        tolerances["absolute"] = tolerances["relative"] = float(flags.pop(0))
    elif flag in ("float_absolute_tolerance", "float_relative_tolerance"):
        tolerances[flag.split("_")[1]] = float(flags.pop(0))
    else:
        sys.exit(f"unknown flag {flag}")

with open(sys.argv[2], encoding="utf-8", newline="") as file:
    answer = file.read()
output = sys.stdin.read()
got, wanted = output.split(), answer.split()
is_right = len(got) == len(wanted) and all(map(same, got, wanted))
if spaces:
    is_right = is_right and re.findall(r"\s+", output) == re.findall(r"\s+", answer)
    is_right = is_right and output[:1].isspace() == answer[:1].isspace()
sys.exit(ACCEPTED if is_right else WRONG)
"""
"""Source code in Python, by the convention of Kattis."""
