"""Chromium that hears nothing of network interfaces, which would make it give up its connections.

The interfaces of containers come and go while tests run. Without netlink sockets, which a seccomp filter refuses it, Chromium
assumes a network that never changes.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER, _FIRST_ARGUMENT = 0, 16
_ALLOW, _EAFNOSUPPORT = 0x7FFF0000, 0x00050000 | 97
_SOCKET = {"x86_64": 41, "aarch64": 198}
_AF_NETLINK = 16

_PROGRAM = [
    (_LOAD, 0, 0, _NUMBER),
    (_JUMP_IF_EQUAL, 0, 3, _SOCKET[platform.machine()]),
    (_LOAD, 0, 0, _FIRST_ARGUMENT),
    (_JUMP_IF_EQUAL, 0, 1, _AF_NETLINK),
    (_RETURN, 0, 0, _EAFNOSUPPORT),
    (_RETURN, 0, 0, _ALLOW),
]


def main() -> None:
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in _PROGRAM)
    program = ctypes.create_string_buffer(code)
    header = struct.pack("HxxxxxxP", len(_PROGRAM), ctypes.addressof(program))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0)):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "cannot filter system calls")
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
