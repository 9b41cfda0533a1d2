"""Connection to a real X server that is stopped, exits, or forwards messages of hostile clients."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from xcffib.xproto import CW, EventMask, MotionNotifyEvent, WindowError

from coding_gym_server.display.connection import DisplayLostError, DisplayTimeoutError, X11Connection
from coding_gym_server.workspace.xauthority import write_authority
from tests.display.display_programs import Program, XServer
from tests.support.timing import eventually

PATIENCE = 0.1

# Sends one event of every kind to the root window, and then a message.
EVENTS = """
import struct
from Xlib import display
d = display.Display()
root, mask = d.screen().root.id, 1 << 19 | 1 << 17
for code in [*range(256), 33]:
    event = struct.pack("=BBHLLL16s", code, 32, 0xFFFF, 0xFFFFFFFF, root, 1, b"all sent" * 2)
    d.display.socket.sendall(struct.pack("=BBHLL", 25, 0, 11, root, mask) + event)
input()
"""


@pytest.fixture
def connection(x_server: XServer) -> Iterator[X11Connection]:
    connection = X11Connection(x_server.name, x_server.authority, timeout=PATIENCE)
    yield connection
    connection.disconnect()


def stop(server: XServer) -> None:
    server.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.process.pid, os.WSTOPPED | os.WNOWAIT)


def test_reply_of_stopped_server_times_out(connection, x_server):
    stop(x_server)
    with pytest.raises(DisplayTimeoutError, match=r"0\.1 s"):
        connection.sync()
    x_server.process.send_signal(signal.SIGCONT)
    connection.sync()
    assert connection.find_extension("XTEST")
    assert connection.find_extension("no such extension") == 0


def test_sending_to_stopped_server_times_out(connection, x_server):
    def send() -> None:
        for _ in range(100_000):
            connection.xtest.FakeInput(MotionNotifyEvent.event_number, 0, 0, 0, 1, 1, 0)
            connection.flush()

    stop(x_server)
    with pytest.raises(DisplayTimeoutError, match=r"0\.1 s"):
        send()
    x_server.process.send_signal(signal.SIGCONT)
    assert eventually(lambda: connection.core.QueryPointer(connection.root).reply().root_x == 1)


def test_ended_server_is_lost(connection, x_server):
    x_server.process.kill()
    x_server.process.wait()
    for use in (connection.sync, connection.process_events, connection.flush, connection.get_file_descriptor):
        with pytest.raises(DisplayLostError, match=x_server.name):
            use()
    connection.disconnect()
    with pytest.raises(DisplayLostError):
        connection.sync()


def test_missing_display_is_lost(tmp_path):
    with pytest.raises(DisplayLostError, match=":65000"):
        X11Connection(":65000", tmp_path / "authority")


def test_missing_display_is_not_sought_over_tcp(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        with pytest.raises(DisplayLostError):
            X11Connection(f":{listener.getsockname()[1] - 6000}", tmp_path / "authority")
        with pytest.raises(TimeoutError):
            listener.accept()


def test_failed_request_raises_and_leaves_connection_usable(connection):
    with pytest.raises(WindowError):
        connection.core.QueryTree(1 << 28).reply()
    attributes = [connection.core.GetWindowAttributes(window) for window in (connection.root, 1 << 28, connection.root)]
    first, second, third = connection.replies(attributes)
    assert second is None
    assert first.map_state == third.map_state
    # The error of a request without a reply arrives as an event.
    connection.core.MapWindow(1 << 28)
    connection.sync()
    assert not connection.messages


@pytest.mark.parametrize("cookie", [b":" * 16, b"\0:\n\xff" * 4], ids=["colons", "others"])
def test_cookie_holds_any_bytes(xvfb, tmp_path, cookie):
    authority: Path = tmp_path / "authority"
    write_authority(authority, cookie)
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-auth", str(authority), "-nolisten", "tcp", "-nolisten", "unix"]
    process = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with open(read) as number:
            connection = X11Connection(f":{number.readline().strip()}", authority)
        connection.sync()
        connection.disconnect()
    finally:
        process.kill()
        process.wait()


def test_event_of_any_kind_is_accepted(connection, start: Callable[[str], Program]):
    mask = EventMask.SubstructureRedirect | EventMask.StructureNotify | EventMask.SubstructureNotify
    connection.core.ChangeWindowAttributes(connection.root, CW.EventMask, [mask])
    connection.sync()
    start(EVENTS)

    def has_come() -> bool:
        connection.process_events()
        return any(b"all sent" in message for message in list(connection.messages)[-1:] if message[0] == 0x80 | 33)

    assert eventually(has_come)
    connection.sync()
    assert {message[0] & 0x7F for message in connection.messages} == {31, 33}
