from __future__ import annotations

import subprocess
import sys

import pytest

from tests.examples.conftest import EXAMPLES


@pytest.mark.docker
def test_agent_repairs_three_libraries():
    ran = subprocess.run([sys.executable, EXAMPLES / "repair_agent.py"], capture_output=True, text=True, timeout=500)
    assert ran.returncode == 0, ran.stderr
    verdicts = [line for line in ran.stdout.splitlines() if line.startswith(("repairs/", "solved", "not solved"))]
    assert [line.partition(":")[0] for line in verdicts] == [
        *("repairs/humanize", "solved"),
        *("repairs/iniconfig", "solved"),
        *("repairs/tinydb", "solved"),
    ]
