"""The package's names, which are imported when they are used, and the environments, which are registered with Gymnasium."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import coding_gym
import coding_gym.datasets

PACKAGES = [coding_gym, coding_gym.datasets]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_lazy_names_are_those_of_the_type_checker(package):
    tree = ast.parse(Path(package.__file__).read_text())
    checked = next(node for node in tree.body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    imported = {
        alias.name: statement.module
        for statement in checked.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    lazy = ast.literal_eval(next(node for node in ast.walk(tree) if isinstance(node, ast.Dict)))
    assert lazy == imported
    assert set(imported) <= set(package.__all__)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_exists(package):
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert set(package.__all__) <= set(dir(package))


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'coding_gym' has no attribute 'CodingEnw'"):
        coding_gym.CodingEnw  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'CodingEnw'"):
        from coding_gym import CodingEnw  # noqa: F401


@pytest.mark.parametrize("imports", ["import coding_gym, gymnasium", "import gymnasium, coding_gym"])
def test_environments_are_registered(imports):
    code = f"{imports}; print(sorted(name for name in gymnasium.registry if name.startswith('Coding')))"
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "['CodingEnv-v0', 'CodingEnvGUI-v0', 'CodingShellEnv-v0', 'CodingTask-v0']\n"
