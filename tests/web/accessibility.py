"""Accessibility of a page, as axe-core judges it."""

from __future__ import annotations

from typing import Any

from tests.support.requirements import import_extra

__all__ = ["serious_violations"]

_SERIOUS = ("serious", "critical")


def serious_violations(page: Any) -> list[str]:
    """Return the serious and critical findings of axe-core, each with the first element that it is about."""
    axe = import_extra("axe_playwright_python.sync_playwright").Axe()
    found = axe.run(page).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in found if rule["impact"] in _SERIOUS]
