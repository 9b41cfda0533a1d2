"""Programs that the restricted backend runs or refuses, read from text files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["ESCAPES", "GUARDS", "LOOT", "PROGRAMS"]


def _runs_here(title: str) -> bool:
    """Return whether a program applies to this version of Python: its title may end in "(before 3.14)" or "(since 3.14)"."""
    match = re.search(r" \((before|since) 3\.(\d+)\)$", title)
    return match is None or (sys.version_info >= (3, int(match[2]))) == (match[1] == "since")


def _read(name: str) -> dict[str, list[str]]:
    """Return the cells of each program in a file that applies to this version of Python."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    found = {}
    for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if _runs_here(title):
            found[title] = body.rstrip("\n").split("\n---\n")
    return found


PROGRAMS = _read("programs.txt")
ESCAPES = {name: cell for name, (cell,) in _read("escapes.txt").items()}
GUARDS = {name: cell for name, (cell,) in _read("guards.txt").items()}

LOOT = re.compile(
    r"root:x:0"  # the content of /etc/passwd
    r"|<module '(os|sys|posix|builtins|subprocess|codecs|inspect)'"
    r"|<frame at|<code object|<built-in function (eval|exec|open|__import__|compile|system|getattr)>"
    r"|<slot wrapper '__getattribute__'|<attribute '__globals__'|<member '__globals__'"
    r"|'__builtins__':|<class 'os\._wrap_close'>|<class 'warnings\.catch_warnings'>|<class 'type'>, <class|PWNED"
)
"""Pattern of the output of an escape that has succeeded."""
