"""``CodingObservation``: an observation that notebooks show with its output and its screen."""

from __future__ import annotations

from typing import Any

from coding_gym._html import caption, colored, document, folded, picture, png, preformatted

__all__ = ["CodingObservation"]


class CodingObservation(dict[str, Any]):
    """An observation: a dict with a representation for notebooks."""

    def _repr_html_(self) -> str:
        exit_code, screenshot = int(self["exit_code"]), self.get("screenshot")
        return document(
            folded("prompt", preformatted(self.get("prompt", ""))),
            preformatted(self["stdout"]),
            preformatted(self["stderr"], is_error=True),
            picture(png(screenshot), alt="screenshot") if screenshot is not None and screenshot.any() else "",
            caption("exit code ", colored(str(exit_code), is_good=exit_code == 0)),
        )
