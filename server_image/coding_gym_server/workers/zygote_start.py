"""Where the zygote's process begins: its memory is laid out before anything else takes some."""

from __future__ import annotations

import sys

from coding_gym_server.workers import heap


def start() -> None:
    """Become the zygote. Arguments: how many bytes its small objects will take, and those of ``zygote.main``."""
    heap.reserve(int(sys.argv[1]))
    from coding_gym_server.workers.zygote import main

    main(*sys.argv[2:])


if __name__ == "__main__":
    start()
