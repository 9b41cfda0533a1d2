"""Wear that a server reports about itself."""

from __future__ import annotations

import json
import os
import urllib.request

import psutil

from coding_gym_server.server.wear import Wear
from tests.support.running_server import RunningServer


def test_growth_and_open_files_are_wear() -> None:
    assert Wear().reason() == ""
    wear = Wear(max_growth_bytes=8 << 20)
    assert wear.reason() == ""
    held = bytearray(os.urandom(1 << 20) * 32)
    assert wear.reason().startswith("its memory has grown by ")
    del held
    assert wear.reason() == ""
    count = psutil.Process().num_fds()
    assert Wear(max_open_files=count - 1).reason().endswith("open files")


def test_server_reports_it(tmp_path) -> None:
    with RunningServer(tmp_path) as server, urllib.request.urlopen(f"{server.url}/health", timeout=30) as answer:
        assert json.load(answer)["worn"] == ""
