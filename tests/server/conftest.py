"""Sessions for checks that run several cases at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from conftest import TestSession
from tests.support.side_by_side import check_side_by_side


@pytest.fixture
def check_on_sessions(open_session: Callable[[], TestSession]) -> Callable[..., None]:
    """Function that calls ``check(session, case)`` for each case, several at once, each with its own session."""

    def check_cases(check: Callable[[TestSession, Any], object], cases: Iterable[Any]) -> None:
        def check_case(case: Any) -> None:
            with contextlib.closing(open_session()) as session:
                check(session, case)

        check_side_by_side(check_case, cases)

    return check_cases
