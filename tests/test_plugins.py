"""The extensions that CONTRIBUTING.md shows, as an installed package: each is found by its entry point, and works."""

from __future__ import annotations

import ast
import os
import re
import site
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from coding_gym import plugins
from coding_gym.errors import ConfigurationError

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(python|toml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Function that runs Python where the package is installed, and returns what it prints."""
    directory = tmp_path_factory.mktemp("plugin")
    # Users of sessions read it.
    directory.chmod(0o755)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    packages = next(directory.glob("lib/python*/site-packages"))
    (packages / "all_others.pth").write_text(
        "".join(f"import site; site.addsitedir({path!r})\n" for path in site.getsitepackages())
    )
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Extensions\n")[2].partition("\n## ")[0]
    blocks = BLOCK.findall(page)
    (packages / "my_plugin.py").write_text(
        "\n".join(
            ast.unparse(node) for kind, text in blocks if kind == "python" for node in ast.parse(text).body if is_part(node)
        )
    )
    information = packages / "my_plugin-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1\n")
    groups = [tomllib.loads(text)["project"]["entry-points"] for kind, text in blocks if kind == "toml"]
    (information / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group in {name for found in groups for name in found}
            for entries in [{name: value for found in groups for name, value in found.get(group, {}).items()}]
        )
    )

    def run_python(*arguments: str, **variables: str) -> str:
        python = str(directory / "bin" / "python")
        ended = subprocess.run(
            [python, *arguments], cwd=directory, env={**os.environ, **variables}, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run_python


def is_part(node: ast.stmt) -> bool:
    """Return whether a statement of an example is a part of its module, instead of a use of it."""
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]).startswith("_")
    return isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef)


def test_commands_are_added(run):
    assert run("-m", "coding_gym", "greet", "Ada") == "Hello, Ada.\n"
    assert "greet" in run("-m", "coding_gym", "--help")


def test_backends_execute_cells(run):
    code = """
import gymnasium, coding_gym
env = gymnasium.make("CodingEnv-v0", provider="local", backend="arithmetic", screen=None, preload=())
env.reset(seed=1)
print(env.step("6 * (3 + 4)")[0]["stdout"], int(env.step("open('x')")[0]["exit_code"]))
with env.unwrapped.clone_state() as snapshot:
    env.unwrapped.restore_state(snapshot)
    print(snapshot.is_record, env.step("2 + 3")[0]["stdout"])
env.close()
"""
    assert run("-c", code) == "42\n 1\nFalse 5\n\n"


def test_suites_are_loaded(run):
    code = "from coding_gym.tasks import load_suite; print(len(load_suite('times-tables')), len(load_suite('times-tables:9')))"
    assert run("-c", code) == "3 9\n"


def test_reward_terms_have_names(run):
    code = """
from coding_gym.wrappers.terms import Step, as_term
term = as_term("streak")
print([term(Step(action="1", observation={"exit_code": code}, info={})) for code in (0, 0, 1)])
"""
    assert run("-c", code) == "[1.0, 2.0, 0.0]\n"


def test_providers_start_sandboxes(run):
    code = """
import coding_gym
from coding_gym.sandbox import start_sandbox
sandbox = start_sandbox(coding_gym.SandboxConfig(provider="small", preload=()))
print(sandbox.is_healthy())
sandbox.close()
"""
    assert run("-c", code) == "True\n"


def test_pools_have_names(run, tmp_path):
    samples = tmp_path / "samples.jsonl"
    samples.write_text('{"task_id": "times-tables/2", "completion": "def times(n):\\n    return 2 * n"}\n')
    options = ["--suite", "times-tables", "--pool", "two-small", "--k", "1", "-q"]
    assert "1.0000" in run("-m", "coding_gym", "grade", str(samples), *options)


def test_observers_begin_when_asked(run):
    code = "import coding_gym; env = coding_gym.CodingEnv(); env.reporter.resetting(); env.close()"
    assert run("-c", code, CODING_GYM_WATCH="1") == "CodingEnv-v0 exists\n"
    assert run("-c", code, CODING_GYM_WATCH="") == ""


def test_unknown_name_is_an_error_with_the_known_ones():
    with pytest.raises(ConfigurationError, match=r"There is no 'rey' among the pools \(did you mean 'ray'\?\)"):
        plugins.load("pools", "rey")


def test_what_cannot_be_imported_is_left_out(monkeypatch, caplog):
    broken = plugins.EntryPoint("broken", "no_such_module:command", "coding_gym.commands")
    monkeypatch.setattr(plugins, "_entry_points", lambda kind: {"broken": broken})
    assert plugins.load_all("commands") == {}
    assert "'broken' of the commands is no_such_module:command, which cannot be imported" in caplog.text
