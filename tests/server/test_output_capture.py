"""Captures keep both ends of what a process prints, exactly, in bounded memory."""

from __future__ import annotations

import asyncio
import os
import random
import tracemalloc
from collections.abc import Iterable

import pytest

from coding_gym_server.ipc.text import truncate_middle
from coding_gym_server.server.supervisor.output_capture import OutputCapture

MEBIBYTE = 1 << 20


async def captured(chunks: Iterable[bytes], max_chars: int) -> tuple[str, int]:
    """Return what a capture keeps of chunks, and the bytes that it has allocated before that."""
    read, write = os.pipe()
    capture = OutputCapture(read, max_chars=max_chars)
    tracemalloc.start()
    try:
        for chunk in chunks:
            os.write(write, chunk)
            capture.drain()
        allocated, _ = tracemalloc.get_traced_memory()
        return capture.take(), allocated
    finally:
        tracemalloc.stop()
        os.close(write)
        capture.close()


@pytest.mark.parametrize(
    "unit",
    [b"x", "\N{GRINNING FACE}".encode(), b"\x80", b"\xff", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\0", "grün\n".encode()],
    ids=["ascii", "four bytes", "continuation", "invalid", "incomplete", "surrogate", "nul", "mixed"],
)
def test_endless_output_takes_bounded_memory(unit):
    chunk = (unit * 65_536)[:65_536]
    text, allocated = asyncio.run(captured((chunk for _ in range(24 * 16)), MEBIBYTE))
    assert len(text) == MEBIBYTE
    assert " characters cut] ..." in text
    assert allocated < 5 * MEBIBYTE


@pytest.mark.parametrize("max_chars", [0, 1])
def test_limit_may_be_too_small_for_any_text(max_chars):
    text, allocated = asyncio.run(captured((bytes(65_536) for _ in range(64)), max_chars))
    assert (len(text) < 100, allocated < MEBIBYTE) == (True, True)


@pytest.mark.parametrize("max_chars", [100, 101, 5_000, 20_001])
@pytest.mark.parametrize("seed", range(10))
def test_kept_ends_are_exact(max_chars, seed):
    draw = random.Random(seed)
    alphabets = ["x", "\N{GRINNING FACE}", "aü\N{GRINNING FACE}\n"]
    length = draw.choice([max_chars - 1, max_chars, max_chars + 1, 2 * max_chars, 9 * max_chars, 200_000])
    whole = "".join(draw.choices(draw.choice(alphabets), k=length))
    data = whole.encode()
    sizes = iter(lambda: draw.choice([1, 3, 1000, 65_536]), 0)

    def chunks() -> Iterable[bytes]:
        begin = 0
        while begin < len(data):
            end = begin + next(sizes) if begin < 5_000 else begin + 65_536
            yield data[begin:end]
            begin = end

    text, _ = asyncio.run(captured(chunks(), max_chars))
    assert text == truncate_middle(whole, max_chars)
