from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from plugins.studio.tests.watching.conftest import runtime_directory  # noqa: F401 - a fixture


@pytest.fixture
def open_page(browser):
    """Open an address in a new browser profile; errors of the page, and requests to other hosts, fail the test."""
    problems: list[str] = []
    contexts = []

    def open_page(address: str, **options):
        context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("console", lambda message: note(message))
        page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: check(request.url))
        page.goto(address)
        return page

    def note(message):
        # A failed request is what tests of ends are about.
        if message.type == "error" and "Failed to load resource" not in message.text:
            problems.append(f"console: {message.text}")

    def check(url: str) -> None:
        if not url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:")):
            problems.append(f"request to {url}")

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@contextlib.contextmanager
def watching(*arguments: str) -> Iterator[str]:
    """Run ``coding-gym watch``; provide the address that it prints."""
    command = subprocess.Popen(
        [sys.executable, "-m", "coding_gym", "watch", *arguments], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert command.stdout is not None
    try:
        printed = ""
        while "Ctrl-C" not in printed:
            line = command.stdout.readline()
            assert line, printed
            printed += line
        yield re.search(r"http\S+", printed)[0]
    finally:
        command.terminate()
        command.communicate(timeout=20)
