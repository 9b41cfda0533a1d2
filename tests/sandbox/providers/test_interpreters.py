"""Where a Python finds its packages: a local sandbox finds them there, too, and says what its processes printed otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import gymnasium as gym
import coding_gym
from coding_gym.tasks import Asserts, Grader, Task
with gym.make("CodingEnv-v0", provider="local", screen=None, preload={preload}) as env:
    env.reset()
    program = "[sys.executable, '-c', 'import numpy; print(6 * 7)']"
    observation, *_ = env.step(f"import subprocess, sys, numpy; print(subprocess.run({{program}}, stdout=-1).stdout)")
    print(observation["stdout"], observation["stderr"])
task = Task(id="one", prompt="", tests=Asserts(cases=("import numpy", "assert one() == 1")))
with Grader(provider="local") as grader:
    print(grader.grade(task, "def one(): return 1").outcome)
"""


def _run(python: str, variables: dict[str, str], preload: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV", "VIRTUAL_ENV"))}
    command = [python, "-c", _PROGRAM.format(preload=preload)]
    return subprocess.run(command, env=kept | variables, capture_output=True, text=True, timeout=120, check=False, cwd="/")


@pytest.fixture
def base() -> str:
    """The interpreter of this virtual environment, which has none of its packages."""
    if sys.prefix == sys.base_prefix:
        pytest.skip("not in a virtual environment")
    return str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"))


def test_packages_on_python_path_are_found(base: str) -> None:
    packages = os.pathsep.join(path for path in sys.path if os.path.isdir(path) and not path.startswith(sys.base_prefix))
    found = _run(base, {"PYTHONPATH": packages})
    assert (found.stdout, found.returncode) == ("b'42\\n'\n \npassed\n", 0), found.stderr


def test_packages_of_the_user_are_found(base: str, tmp_path: Path) -> None:
    directory = tmp_path / ".local" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    directory.mkdir(parents=True)
    packages = [path for path in sys.path if os.path.isdir(path) and not path.startswith(sys.base_prefix)]
    (directory / "packages.pth").write_text("\n".join(packages))
    found = _run(base, {"HOME": str(tmp_path)})
    assert (found.stdout, found.returncode) == ("b'42\\n'\n \npassed\n", 0), found.stderr


def test_error_has_what_a_process_printed_that_ended_at_its_start(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "ending.py").write_text("import os\nos.write(2, 'no license: ☃\\n'.encode())\nos._exit(3)\n")
    found = _run(sys.executable, {"PYTHONPATH": str(tmp_path)}, ("ending",))
    assert "no license: ☃" in found.stderr.rpartition("coding_gym.errors.")[2]
    assert found.returncode == 1
