"""A real browser for the tests of pages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.browser import deaf_chromium
from tests.support.requirements import import_extra, require_browser

TIMEOUT_MILLISECONDS = 15_000


@dataclass
class Traffic:
    """What a page has requested and reported.

    Attributes:
        hosts: Hosts and ports of its requests.
        problems: Errors in its console, and uncaught exceptions.
        transferred: Bytes of the responses, with their headers.
    """

    hosts: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    transferred: int = 0


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, without a window, and deaf to changes of the network.

    Playwright keeps an event loop running in this thread, so tests of other modules, which may run their own, need its end.
    """
    path = tmp_path_factory.mktemp("browser") / "chromium"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {deaf_chromium.__file__} {require_browser()} "$@"\n')
    path.chmod(0o755)
    playwright = import_extra("playwright.sync_api")
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """Function that opens a page in its own context; its attribute ``traffic`` is a ``Traffic``.

    At the end of the test, no page may have reported errors that the test has not taken from ``traffic.problems``, or have
    requested anything from another host than the first.
    """
    with contextlib.ExitStack() as stack:
        opened = []

        def open_page(*, width: int = 1280, height: int = 800, **options: Any) -> Any:
            context = browser.new_context(viewport={"width": width, "height": height}, **options)
            stack.callback(context.close)
            context.set_default_timeout(TIMEOUT_MILLISECONDS)
            page = context.new_page()
            page.traffic = traffic = Traffic()
            page.on("console", lambda message: message.type == "error" and traffic.problems.append(message.text))
            page.on("pageerror", lambda error: traffic.problems.append(str(error)))
            page.on("request", lambda request: _note(traffic, request.url))
            page.on("requestfinished", lambda request: _count(traffic, request))
            opened.append(page)
            return page

        yield open_page
        for page in opened:
            assert page.traffic.problems == []
            assert len(page.traffic.hosts) <= 1


def _note(traffic: Traffic, url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme in ("http", "https", "ws", "wss"):
        traffic.hosts.add(parts.netloc)


def _count(traffic: Traffic, request: Any) -> None:
    with contextlib.suppress(Exception):
        sizes = request.sizes()
        traffic.transferred += sizes["responseBodySize"] + sizes["responseHeadersSize"]
