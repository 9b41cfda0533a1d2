from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from coding_gym.cli.main import app
from plugins.studio.tests.viewer.datasets import varied, write
from tests.cli.conftest import environment
from tests.support.timing import eventually

NOT_IMPORTED = ("docker", "requests", "websockets", "PIL", "coding_gym.sandbox")


class Viewed:
    """Process of ``coding-gym view``.

    Args:
        path: The dataset.
        arguments: Its arguments.
        browser: The program that opens the page, None to open it nowhere.
    """

    def __init__(self, path: Path, *arguments: str, browser: Path | None = None) -> None:
        options = ["--browser" if browser else "--no-browser", *arguments]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coding_gym", "view", str(path), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(PYTHONUNBUFFERED="1", BROWSER=f"{browser} %s"),
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url, _, fragment = self.line.split()[-1].partition("#")
        self.token = fragment.removeprefix("token=")

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers={"Authorization": f"Bearer {self.token}"})

    def stop(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@pytest.fixture
def viewed(tmp_path: Path) -> Iterator[Viewed]:
    found = Viewed(write(tmp_path / "runs", [varied(index) for index in range(3)]))
    with found.process:
        yield found
        found.process.kill()


def view(*arguments: str):
    return CliRunner().invoke(app, ["view", "--no-browser", *arguments], catch_exceptions=False)


def test_browser_gets_an_address_that_leads_to_the_page_once(tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(0o755)
    viewed = Viewed(write(tmp_path / "runs", [varied(0)]), browser=browser)
    with viewed.process:
        assert eventually(opened.exists)
        address = opened.read_text().strip()
        # Other users can read the command line of the browser.
        assert viewed.token not in address
        assert httpx.get(f"{address}x").status_code == 410
        first, second = httpx.get(address), httpx.get(address)
        assert (first.status_code, first.headers["location"]) == (303, f"/#token={viewed.token}")
        assert (second.status_code, viewed.token in second.text) == (410, False)
        viewed.process.kill()


def test_printed_address_opens_the_dataset(viewed):
    assert viewed.url.startswith("http://127.0.0.1:")
    assert len(viewed.token) >= 32
    page = httpx.get(viewed.url)
    assert "<!doctype html>" in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert viewed.get("api/dataset").json()["name"] == "runs"
    assert eventually(lambda: not viewed.get("api/episodes").json()["isReading"])
    rows = viewed.get("api/episodes").json()
    assert rows["columns"]["episode"] == [0, 1, 2]


def test_data_require_the_token(viewed):
    assert httpx.get(f"{viewed.url}api/dataset").status_code == 401
    assert httpx.get(f"{viewed.url}static/view/main.js").status_code == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_quietly(viewed, number):
    viewed.get("api/dataset")
    assert viewed.stop(number) in (0, -number)
    assert "Traceback" not in viewed.process.stdout.read()


def test_path_without_a_dataset_is_an_error(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        result = view(str(path))
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == f"There is no dataset in {path}: expected a directory that collect() has written\n"


def test_path_that_is_no_dataset_is_an_error(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in ("/dev/null", str(pipe)):
        result = view(path)
        assert (result.exit_code, result.stderr.split(":")[0]) == (1, f"There is no dataset in {path}")


def test_path_that_cannot_be_read_is_an_error(tmp_path):
    path = write(tmp_path / "runs", [varied(0)])
    (path / "manifest.json").unlink()
    (path / "manifest.json").mkdir()
    result = view(str(path))
    assert result.exit_code == 1
    assert result.stderr.startswith(f"The manifest {path}/manifest.json cannot be read: Is a directory")
    result = view("a" * 300)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Cannot open {'a' * 300}: File name too long; expected a directory")


def test_corrupt_manifest_is_an_error(tmp_path):
    path = write(tmp_path / "runs", [varied(0)])
    (path / "manifest.json").write_text(json.dumps({"episodes": "many"}))
    result = view(str(path))
    assert result.exit_code == 1
    assert "is not a manifest of a dataset" in result.stderr


def test_port_in_use_is_an_error(viewed, tmp_path):
    path = write(tmp_path / "other", [varied(0)])
    port = viewed.url.rsplit(":", 1)[1].strip("/")
    result = view(str(path), "--port", port)
    assert result.exit_code == 1
    assert f"Port {port} of 127.0.0.1 is in use" in result.stderr


def test_nothing_slow_is_imported(tmp_path):
    path = write(tmp_path / "runs", [varied(index) for index in range(3)])
    code = (
        "import sys; from pathlib import Path; import coding_gym.cli.main, coding_gym_studio.serving;"
        "import coding_gym_studio.viewer.app;"
        "from coding_gym_studio.viewer.index import EpisodeIndex;"
        f"EpisodeIndex(Path({str(path)!r})).read();"
        f"print([name for name in {NOT_IMPORTED} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
