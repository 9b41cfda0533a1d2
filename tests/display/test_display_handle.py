"""Restarts of lost displays; what programs see of them is tested with sessions."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from typing import Any

from coding_gym_server.display.messages import DisplayConfig
from coding_gym_server.ipc.zygote_messages import ForkDisplay
from coding_gym_server.server.supervisor.display_handle import DisplayHandle
from coding_gym_server.workspace.session_directory import SubmissionDirectory


class Zygote:
    """Keeps the channels of the displays that it is asked for, which never answer."""

    def __init__(self) -> None:
        self.channels: list[socket.socket] = []

    async def fork_display(self, _request: ForkDisplay, channel: socket.socket, _listener: socket.socket) -> int:
        self.channels.append(channel.dup())
        return os.getpid()


async def started_displays(tmp_path) -> int:
    """Lose a display while a request waits for its answer; return how many are started for one program."""
    loop: Any = asyncio.get_running_loop()
    call_later, order = loop.call_later, itertools.count()
    # Timers that are set one after the other may expire in different iterations of the event loop.
    loop.call_later = lambda delay, *call: call_later(delay + next(order) * 0.05, *call)
    zygote: Any = Zygote()
    config = DisplayConfig(directory=str(tmp_path), width=9, height=9, cookie=b"", window_manager=False, opengl=False)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as program:
        listener.bind(str(tmp_path / "X1"))
        listener.listen()
        listener.setblocking(False)
        handle = DisplayHandle(zygote, config, listener, 1, SubmissionDirectory(tmp_path / "files"))
        program.connect(str(tmp_path / "X1"))
        while not zygote.channels:
            await asyncio.sleep(0.01)
        request = asyncio.create_task(handle.capture_now(None))
        await asyncio.sleep(0.1)
        zygote.channels.pop().close()
        assert await request is None
        await asyncio.sleep(1.0)
        handle.close()
    for channel in zygote.channels:
        channel.close()
    return len(zygote.channels)


def test_display_lost_during_a_request_is_replaced_by_one(tmp_path):
    assert asyncio.run(started_displays(tmp_path)) == 1
