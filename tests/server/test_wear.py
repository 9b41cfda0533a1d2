"""Wear that a server reports about itself."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request

from tests.support.running_server import RunningServer

GROWTH = """
import os
from coding_gym_server.server.wear import Wear

assert Wear().reason() == ""
wear = Wear(max_growth_bytes=8 << 20)
assert wear.reason() == ""
held = bytearray(os.urandom(1 << 20) * 32)
assert wear.reason().startswith("its memory has grown by ")
del held
assert wear.reason() == ""
count = len(os.listdir("/proc/self/fd")) - 1
assert Wear(max_open_files=count - 1).reason().endswith("open files")
"""


def test_growth_and_open_files_are_wear() -> None:
    # In a process of its own: what other tests have left is freed at any time.
    subprocess.run([sys.executable, "-c", GROWTH], check=True)


def test_server_reports_it(tmp_path) -> None:
    with RunningServer(tmp_path) as server, urllib.request.urlopen(f"{server.url}/health", timeout=30) as answer:
        assert json.load(answer)["worn"] == ""
