"""Print the number of complete screenshots of all programs: ``python -m tests.gallery [PROVIDER [REPETITIONS]]``."""

from __future__ import annotations

import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from .gallery import Gallery
from .gui_programs import PROGRAMS, SCENES

_SESSIONS = 4


def main(provider: str = "auto", repetitions: str = "20") -> int:
    """Run all programs; return 1 if any screenshot is incomplete."""
    with Gallery(provider, sessions=_SESSIONS) as gallery, ThreadPoolExecutor(_SESSIONS) as threads:
        missing = {scene.name for scene in SCENES if gallery.missing(scene)}
        programs = [program for program in PROGRAMS if program.scene.name not in missing]
        # Take the reference pictures first and one at a time, because all screenshots are compared with them.
        for program in programs:
            gallery.reference(program.scene)
        pictures = list(threads.map(gallery.run, programs * int(repetitions)))
    faults = Counter(f"{picture.program.name}: {picture.fault}" for picture in pictures if picture.fault)
    complete = len(pictures) - faults.total()
    print(f"complete screenshots: {complete} of {len(pictures)}, {len(programs)} programs x {repetitions}")
    if missing:
        print(f"not in the sandbox: {', '.join(sorted(missing))}")
    for fault, count in faults.most_common():
        print(f"{count} x {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
