"""Instructions of seccomp filters (see seccomp(2), and ``linux/filter.h`` for the instruction set)."""

from __future__ import annotations

__all__ = [
    "ALLOW",
    "ARCHITECTURE",
    "ARGUMENTS",
    "ERRNO",
    "KILL_PROCESS",
    "NUMBER",
    "USER_NOTIFICATION",
    "Body",
    "Instruction",
    "any_bit",
    "argument",
    "bit_and",
    "equal",
    "if_any",
    "jump_if_at_least",
    "load",
    "refuse",
    "ret",
    "unless_equal",
]

KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
USER_NOTIFICATION = 0x7FC00000
ALLOW = 0x7FFF0000

# Offsets of the members of struct seccomp_data.
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]
Body = list[Instruction]


def argument(index: int) -> int:
    """Return the offset of the lower half of an argument; both architectures are little-endian."""
    return ARGUMENTS + 8 * index


def load(offset: int) -> Instruction:
    """Load a word of ``struct seccomp_data``."""
    return 0x20, 0, 0, offset


def bit_and(mask: int) -> Instruction:
    """Keep the bits of a mask."""
    return 0x54, 0, 0, mask


def ret(action: int) -> Instruction:
    """Return an action."""
    return 0x06, 0, 0, action


def refuse(number: int) -> Instruction:
    """Return an error number to the caller."""
    return ret(ERRNO | number)


def equal(value: int, then: int, otherwise: int) -> Instruction:
    """Skip ``then`` instructions if the word equals a value, ``otherwise`` if not."""
    return 0x15, then, otherwise, value


def jump_if_at_least(value: int, then: int, otherwise: int) -> Instruction:
    """Skip ``then`` instructions if the word is at least a value, ``otherwise`` if not."""
    return 0x35, then, otherwise, value


def any_bit(mask: int, then: int, otherwise: int) -> Instruction:
    """Skip ``then`` instructions if the word has any bit of a mask, ``otherwise`` if not."""
    return 0x45, then, otherwise, mask


def unless_equal(value: int, body: Body) -> Body:
    """Execute instructions unless the word equals a value."""
    return [equal(value, len(body), 0), *body]


def if_any(values: tuple[int, ...], number: int) -> Body:
    """Return an error number if the word equals one of the values."""
    body: Body = []
    for value in values:
        body += [equal(value, 0, 1), refuse(number)]
    return body
