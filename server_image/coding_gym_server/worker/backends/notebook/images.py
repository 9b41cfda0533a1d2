"""Display of images that a cell saves with Pillow, as on e2b's server."""

from __future__ import annotations

import functools
import sys
from typing import Any

from IPython.display import display

from coding_gym_server.worker.backends.output import Output

__all__ = ["show_saved_images"]


def show_saved_images(output: Output) -> None:
    """Patch Pillow, if imported, to display images that a rich cell saves to a path."""
    image = getattr(sys.modules.get("PIL.Image"), "Image", None)
    save = getattr(image, "save", None)
    if image is None or save is None or hasattr(save, "__wrapped__"):
        return

    @functools.wraps(save)
    def save_and_show(self: Any, fp: Any, *arguments: Any, **options: Any) -> None:
        save(self, fp, *arguments, **options)
        if output.rich and isinstance(fp, str):
            display(self)

    image.save = save_and_show
