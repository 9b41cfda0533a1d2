"""Accessibility of a page, as axe-core judges it."""

from __future__ import annotations

from typing import Any

from tests.support.requirements import import_extra

__all__ = ["serious_violations"]

_SERIOUS = ("serious", "critical")
_END_OF_TRANSITIONS = """async () => {
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
    const transitions = document.getAnimations().filter((animation) => animation instanceof CSSTransition);
    await Promise.allSettled(transitions.map((transition) => transition.finished));
}"""


def serious_violations(page: Any) -> list[str]:
    """Return the serious and critical findings of axe-core in either color scheme, each with the first element it is about."""
    axe = import_extra("axe_playwright_python.sync_playwright").Axe()
    serious = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(_END_OF_TRANSITIONS)
        found = axe.run(page).response["violations"]
        serious += [f"{scheme}: {rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in found if rule["impact"] in _SERIOUS]
    return serious
