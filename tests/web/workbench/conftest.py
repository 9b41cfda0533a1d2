"""The workbench of a real server in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.running_server import RunningServer

TOKEN = "a token/+~"


class Workbench:
    """The page of a server.

    Args:
        page: The tab, which shows the page.

    Attributes:
        page: The tab.
    """

    def __init__(self, page: Any) -> None:
        self.page = page

    @property
    def newest(self) -> Any:
        """The newest run."""
        return self.page.locator(".cell").first

    def wait_until_connected(self) -> None:
        self.page.get_by_text("connected", exact=True).wait_for()

    def run(self, code: str, outcome: str | re.Pattern[str] = "ok") -> Any:
        """Run code, wait until it ends with an outcome, and return the newest run."""
        self.start(code)
        self.newest.locator(".badge", has_text=outcome).wait_for()
        return self.newest

    def start(self, code: str) -> None:
        count = self.page.locator(".cell").count()
        self.page.locator("#code").fill(code)
        self.page.locator("#code").press("Control+Enter")
        self.page.wait_for_function("count => document.querySelectorAll('.cell').length > count", arg=count)

    def reset(self, **fields: str) -> None:
        """Reset the session with values of the dialog's fields."""
        self.page.get_by_role("button", name="Reset …").click()
        for name, value in fields.items():
            target = self.page.locator(f"#reset-dialog [name={name}]")
            if target.evaluate("element => element.tagName") == "SELECT":
                target.select_option(value)
            else:
                target.fill(value)
        self.page.get_by_role("button", name="Reset", exact=True).click()

    def select(self, tab: str) -> None:
        self.page.get_by_role("tab", name=tab).click()

    def is_wider_than_its_window(self) -> bool:
        return self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("workbench"), "--max-sessions", "12") as server:
        yield server


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with RunningServer(tmp_path_factory.mktemp("guarded"), "--max-sessions", "1", token=TOKEN) as server:
        yield server


@pytest.fixture
def open_workbench(server: RunningServer, open_tab: Callable[..., Any]) -> Callable[..., Workbench]:
    """Function that opens the page of ``server`` in a tab with the given options."""

    def open_one(**options: Any) -> Workbench:
        page = open_tab(**options)
        page.goto(f"{server.url}/web")
        workbench = Workbench(page)
        workbench.wait_until_connected()
        return workbench

    return open_one


@pytest.fixture
def workbench(open_workbench: Callable[..., Workbench]) -> Workbench:
    return open_workbench()
