"""Ask the resolver whether each extra can be installed together with the libraries that people train with.

``python -m tests.support.resolution`` prints a table of conflicts. Nothing is installed.
"""

from __future__ import annotations

import itertools
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


def _groups(names: list[str]) -> list[list[str]]:
    """Return extras in groups that can be installed together: a single one, but for extras that exclude others."""
    if len(names) == 1 or not _resolve(names):
        return [names]
    middle = len(names) // 2
    return [*_groups(names[:middle]), *_groups(names[middle:])]


def _conflicts(names: list[str], trainer: str) -> dict[tuple[str, str], str]:
    """Return which extras cannot be installed together with a library, and why.

    Conflicts between what an extra requires and the library, which exist without this package, do not count.
    """
    if not _resolve(names, trainer):
        return {}
    if len(names) > 1:
        # Those that do not conflict are found in few questions.
        middle = len(names) // 2
        return {**_conflicts(names[:middle], trainer), **_conflicts(names[middle:], trainer)}
    foreign = [entry for entry in extras()[names[0]] if not entry.startswith("coding-gym")]
    if _resolve([], *foreign, trainer):
        return {}
    reason = _resolve(names, trainer, is_current=True)
    return {(names[0], trainer): reason} if reason else {}


def _resolve(names: list[str], *requirements: str, is_current: bool = False) -> str:
    """Return why extras and further requirements contradict each other; empty if they do not.

    Args:
        names: The extras.
        requirements: The further requirements.
        is_current: Whether to ask the index, rather than what it has answered before.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--python-version", _PYTHON, "--no-header", "-"]
    command += ["pyproject.toml", *(f"--extra={name}" for name in names)] if names else []
    # From its cache, the resolver answers in a tenth of the time, unless something is missing there.
    for mode in ([],) if is_current else (["--offline"], []):
        resolved = subprocess.run(
            [*command, *mode], input="\n".join(requirements), cwd=ROOT, capture_output=True, text=True, check=False
        )
        if resolved.returncode == 0:
            return ""
        if "network" not in resolved.stderr:
            break
    return resolved.stderr.strip()


def conflicts() -> dict[tuple[str, str], str]:
    """Return the pairs of extras and libraries that cannot be installed together, with the reasons."""
    names = list(extras())
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        # What these ask the index, the questions that follow find in the cache.
        refreshing = [threads.submit(_resolve, names, is_current=True)]
        refreshing += [threads.submit(_resolve, [], trainer, is_current=True) for trainer in TRAINERS]
        for refreshed in refreshing:
            refreshed.result()
        found = threads.map(lambda pair: _conflicts(*pair), itertools.product(_groups(names), TRAINERS))
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
