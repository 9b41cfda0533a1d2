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


@pytest.mark.parametrize(
    "imports",
    [
        "import coding_gym, gymnasium",
        "import gymnasium, coding_gym",
        "import coding_gym, gymnasium.spaces",
        "import importlib.util, coding_gym; importlib.util.find_spec('gymnasium'); import gymnasium",
        "import coding_gym; from coding_gym import CodingEnv; import gymnasium",
        "import importlib, coding_gym, gymnasium; importlib.reload(gymnasium)",
    ],
)
def test_environments_are_registered_in_any_order_of_imports(imports):
    code = (
        f"{imports}; import gymnasium; print(sorted(name for name in gymnasium.registry if name.startswith('Coding')));"
        "print(gymnasium.__spec__.loader.__class__.__name__, vars(gymnasium.__spec__.loader).keys())"
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    names, loader = found.stdout.splitlines()
    assert names == "['CodingEnv-v0', 'CodingEnvGUI-v0', 'CodingShellEnv-v0', 'CodingTask-v0']"
    assert loader == "SourceFileLoader dict_keys(['name', 'path'])"


@pytest.mark.parametrize(
    "before",
    [
        # The second import succeeds.
        "sys.modules['gymnasium.core'] = None\ntry: import gymnasium\nexcept ImportError: del sys.modules['gymnasium.core']",
        # A finder of the old protocol.
        "sys.meta_path.insert(0, type('Old', (), {'find_module': lambda self, name, path=None: None})())",
    ],
    ids=["failed import", "old finder"],
)
def test_environments_are_registered_by_an_unusual_import(before):
    code = (
        f"import sys, coding_gym\n{before}\nimport gymnasium\nprint('CodingEnv-v0' in gymnasium.registry,"
        "[type(finder).__name__ for finder in sys.meta_path if 'Gymnasium' in type(finder).__name__])"
    )
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True []\n"


def test_package_alone_does_not_import_gymnasium():
    code = "import sys, coding_gym, coding_gym.datasets; print('gymnasium' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False False\n"
