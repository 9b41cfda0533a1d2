"""Entry point of the zygote: reserves heap memory before importing other modules."""

from __future__ import annotations

import gc
import sys

from coding_gym_server.zygote import heap


def start() -> None:
    """Run the zygote. Command line: the bytes to reserve for small objects, then the arguments of ``zygote.main``."""
    heap.reserve(int(sys.argv[1]))
    # Imports leave hardly any garbage, and collections take a tenth of their time; ``main`` enables them again.
    gc.disable()
    from coding_gym_server.zygote.main import main

    main(*sys.argv[2:])


if __name__ == "__main__":
    start()
