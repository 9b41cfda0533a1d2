"""Sessions that send the server more than it can use, or read nothing of what it sends: its memory stays as it is."""

from __future__ import annotations

import pytest

from tests.support.sandbox_processes import server_of

FORGE = """
import gc, select, socket, struct
import msgspec
from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.messages import CellResult, Finished

channels = [o for o in gc.get_objects() if type(o) is Channel]
connection = socket.socket(fileno=os.dup(next(channel.fileno() for channel in channels if channel.fileno() >= 0)))

def framed(body):
    return struct.pack("<I", len(body)) + body

def flood(message, size):
    data = memoryview(message * max(1, 65536 // len(message)))
    rest, sent = data, 0
    while sent < size:
        # Once nothing can be sent for seconds, the server has stopped reading.
        if not select.select([], [connection], [], 3)[1]:
            break
        try:
            count = connection.send(rest, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        except OSError:
            break
        sent += count
        rest = rest[count:] or data
"""
RESULT = "framed(msgspec.msgpack.encode(CellResult({}, {}, False)))"
FLOODS = {
    "results whose acknowledgements are not read": RESULT,
    "results with invalid text": f"{RESULT.replace('({}', '({chr(0): chr(1)}')}.replace(bytes([1]), bytes([255]))",
    "keys that no dictionary has": "framed(msgspec.msgpack.encode(['CellResult', {(): 1}]))",
    "nothing but nesting": "framed(bytes([0x91]) * 100_000)",
    "results that have ended": "framed(msgspec.msgpack.encode(Finished(0)))",
    "the begin of a message that never ends": "struct.pack('<I', 2**24) + bytes(1000)",
}
FLOOD_BYTES = 48 << 20
MAX_GROWTH = 64 << 20


@pytest.mark.parametrize("name", FLOODS)
@pytest.mark.parametrize("rich", [False, True])
def test_floods_do_not_fill_the_server(box, attacker, victim, name, rich):
    server = server_of(box)
    before = server.memory_info().rss
    attacker.reset(results=rich)
    attacker.do(FORGE)
    attacker.run(f"flood({FLOODS[name]}, {FLOOD_BYTES})", 40)
    assert server.memory_info().rss < before + MAX_GROWTH
    attacker.reset()
    assert attacker.see("1") == 1
