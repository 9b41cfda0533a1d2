from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import coding_gym
from coding_gym.cli.main import app
from tests.cli.conftest import environment

_COMPLETE_IN_BASH = """
eval "$(coding-gym completion bash)"
COMP_WORDS=({words}); COMP_CWORD=$(({count} - 1))
_coding_gym_completion coding-gym
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def in_bash(*words: str) -> list[str]:
    script = _COMPLETE_IN_BASH.format(words=" ".join(f"'{word}'" for word in words), count=len(words))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment())
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("coding-gym", "sh"), ["shell"]),
        (("coding-gym", "run", "--screens"), ["--screenshot"]),
        (("coding-gym", "serve", "--provider", ""), ["auto", "docker", "apptainer", "local"]),
        (("coding-gym", "completion", ""), ["bash", "zsh", "fish"]),
    ],
)
def test_bash_completes_commands_options_and_values(words, expected):
    assert in_bash(*words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_valid_in_its_shell(shell):
    result = CliRunner().invoke(app, ["completion", shell], catch_exceptions=False)
    assert result.exit_code == 0
    assert "_CODING_GYM_COMPLETE" in result.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=result.stdout, text=True, check=True)


def test_unknown_shell_is_refused():
    result = CliRunner().invoke(app, ["completion", "tcsh"])
    assert result.exit_code == 2
    assert "tcsh" in result.stderr


def test_module_is_the_command_line():
    done = subprocess.run([sys.executable, "-m", "coding_gym", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"coding-gym {coding_gym.__version__}\n"
