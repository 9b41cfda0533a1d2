from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from coding_gym import SandboxConfig
from coding_gym.datasets.policies import chat as chat_policy_module
from coding_gym_server.isolation.probe import probe

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example(monkeypatch, capsys):
    """Function that runs an example in this process; returns its exit code or message, and what it printed."""
    monkeypatch.setitem(SandboxConfig.__init__.__kwdefaults__, "preload", ())
    monkeypatch.setattr(chat_policy_module, "_INITIAL_PAUSE", 0.01)
    # As for a script, which can import those beside it.
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(name, *options):
        if missing := probe().missing_filter:
            pytest.skip(f"the local provider lacks {missing}")
        monkeypatch.setattr(sys, "argv", [name, "--provider", "local", *map(str, options)])
        with pytest.raises(SystemExit) as exited:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        captured = capsys.readouterr()
        return exited.value.code, captured.out + captured.err

    return run
