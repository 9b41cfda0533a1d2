"""Ask the resolver whether each extra can be installed together with the libraries that people train with.

``python -m tests.support.resolution`` prints a table of conflicts. Nothing is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

__all__ = ["conflicts"]

ROOT = Path(__file__).parents[2]

TRAINERS = [
    "inspect-ai>=0.3.285",
    "ray[rllib]>=2.54",
    "sglang>=0.5.20",
    "stable-baselines3>=2.9",
    "trl>=1.10",
    "verl>=0.9",
    "vllm>=0.30",
]
"""Libraries, each in a version that is current: an older one, with fewer requirements, would hide a conflict."""

_DEVELOPMENT = {"docs", "lint", "peers", "test", "test-full"}
_PYTHON = "3.11"


def extras() -> dict[str, list[str]]:
    """Return the requirements of the extras for users, by name."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    return {name: requirements for name, requirements in declared.items() if name not in _DEVELOPMENT}


def _conflicts(names: list[str], trainer: str) -> dict[tuple[str, str], str]:
    """Return which extras cannot be installed together with a library, and why.

    Conflicts between what an extra requires and the library, which exist without this package, do not count.
    """
    reason = _resolve("pyproject.toml", *(f"--extra={name}" for name in names), requirements=[trainer])
    if not reason:
        return {}
    if len(names) > 1:
        # Those that do not conflict are found in few questions.
        middle = len(names) // 2
        return {**_conflicts(names[:middle], trainer), **_conflicts(names[middle:], trainer)}
    foreign = [entry for entry in extras()[names[0]] if not entry.startswith("coding-gym")]
    return {} if _resolve(requirements=[*foreign, trainer]) else {(names[0], trainer): reason}


def _resolve(*arguments: str, requirements: list[str]) -> str:
    """Return why requirements contradict each other; empty if they do not."""
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--python-version",
        _PYTHON,
        "--no-header",
        "-",
        *arguments,
    ]
    resolved = subprocess.run(command, input="\n".join(requirements), cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if resolved.returncode == 0 else resolved.stderr.strip()


def conflicts() -> dict[tuple[str, str], str]:
    """Return the pairs of extras and libraries that cannot be installed together, with the reasons."""
    names = list(extras())
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda trainer: _conflicts(names, trainer), TRAINERS)
        return {pair: reason for reasons in found for pair, reason in reasons.items()}


def main() -> int:
    """Print the conflicts, and return 1 if there are any."""
    found = conflicts()
    for (extra, trainer), reason in found.items():
        print(f"{extra} and {trainer}:\n{reason}\n")
    print(f"{len(found)} conflicts of {len(extras())} extras with {len(TRAINERS)} libraries")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
