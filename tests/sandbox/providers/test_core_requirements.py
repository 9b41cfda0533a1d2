"""The local provider without the packages of the extras."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys

PROGRAM = """
import gymnasium as gym

import coding_gym

with gym.make("CodingEnv-v0", provider="local") as env:
    observation, _ = env.reset(seed=1)
    assert not observation["screenshot"].any()
    observation, *_ = env.step("print(6 * 7)")
    print(observation["stdout"], observation["stderr"])
"""


def modules_of_extras():
    """Return the modules of the packages that only extras require."""
    core, extra = set(), set()
    for requirement in importlib.metadata.requires("coding_gym"):
        name = re.match(r"[\w.-]+", requirement).group().lower().replace("_", "-")
        (extra if "extra ==" in requirement else core).add(name)
    modules = importlib.metadata.packages_distributions()
    return {
        module
        for module, packages in modules.items()
        if any(package.lower().replace("_", "-") in extra - core for package in packages)
    }


def test_core_requirements_suffice(open_directory):
    missing = sorted(modules_of_extras())
    assert {"xcffib", "pytest"} <= set(missing)
    (open_directory / "sitecustomize.py").write_text(f"import sys\nsys.modules.update(dict.fromkeys({missing}))\n")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(open_directory)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout.strip(), ran.stderr) == ("42", "")
