"""Helper that sends a value through the encoding between a submission and its tests."""

from __future__ import annotations

from typing import Any

import msgspec

from coding_gym_server.remote_objects import exact_numbers, tables
from coding_gym_server.remote_objects.decoder import Decoder
from coding_gym_server.remote_objects.values import Encoder


def travel(value: Any, *, to_tests: bool = False) -> Any:
    """Return the value as it arrives in a submission, or in the tests."""
    tree = msgspec.msgpack.decode(msgspec.msgpack.encode(Encoder(_table).encode(value)))

    def table(decoder: Decoder, tree: Any) -> Any:
        return tables.decode(decoder, tree, is_exact=to_tests)

    return Decoder(table, adapt=exact_numbers.exact if to_tests else lambda value: value).decode(tree)


def _table(encoder: Encoder, value: Any) -> Any:
    tree = tables.encode(encoder, value)
    assert tree is not None, type(value)
    return tree
