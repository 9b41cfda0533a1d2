"""Seccomp filter for system calls that sandboxed code does not need, or that Landlock does not restrict.

Docker's default filter already rejects many of them. This one also applies outside a container, and adds system calls that
affect other processes of the same user (limits, priorities, shared memory and queues without a name in the file system),
kernel interfaces with a history of vulnerabilities, and all socket families except the allowed ones (see seccomp(2), and
``linux/filter.h`` for the instruction set). The kernel caches a bitmap of system calls that a filter always allows, so those
incur no overhead.

The page cache of the image's files is memory that outlives every process and is common to all. Sessions get no call that drops
pages from it at will, leaves them out of it, or tells which ones it has without a measurement of time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Collection
from typing import NamedTuple

from coding_gym_server.isolation import bpf

__all__ = ["install", "install_signal_filter", "install_with_gate", "is_available", "joins_namespace", "signal_call"]

_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE_RECV = 1, 8, 32


_X32_BIT = 0x40000000
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


class _Call(NamedTuple):
    """Numbers of a system call, -1 if it does not exist on the architecture."""

    x86_64: int
    aarch64: int


_FORBIDDEN = {
    # Memory and descriptors of other processes.
    "ptrace": _Call(101, 117),
    "process_vm_readv": _Call(310, 270),
    "process_vm_writev": _Call(311, 271),
    "process_madvise": _Call(440, 440),
    "process_mrelease": _Call(448, 448),
    "kcmp": _Call(312, 272),
    "pidfd_getfd": _Call(438, 438),
    "migrate_pages": _Call(256, 238),
    "move_pages": _Call(279, 239),
    # Pages of files that are in memory.
    "mincore": _Call(27, 232),
    "cachestat": _Call(451, 451),
    # Shared memory, semaphores and queues without a name in the file system.
    "shmget": _Call(29, 194),
    "shmat": _Call(30, 196),
    "shmctl": _Call(31, 195),
    "shmdt": _Call(67, 197),
    "semget": _Call(64, 190),
    "semop": _Call(65, 193),
    "semtimedop": _Call(220, 192),
    "semctl": _Call(66, 191),
    "msgget": _Call(68, 186),
    "msgsnd": _Call(69, 189),
    "msgrcv": _Call(70, 188),
    "msgctl": _Call(71, 187),
    "mq_open": _Call(240, 180),
    "mq_unlink": _Call(241, 181),
    # Kernel keys, BPF, page faults and performance counters.
    "add_key": _Call(248, 217),
    "request_key": _Call(249, 218),
    "keyctl": _Call(250, 219),
    "bpf": _Call(321, 280),
    "userfaultfd": _Call(323, 282),
    "perf_event_open": _Call(298, 241),
    "fanotify_init": _Call(300, 262),
    "lookup_dcookie": _Call(212, 18),
    # A filter does not see the operations of a ring.
    "io_uring_setup": _Call(425, 425),
    "io_uring_enter": _Call(426, 426),
    "io_uring_register": _Call(427, 427),
    # Namespaces and mounts.
    "unshare": _Call(272, 97),
    "setns": _Call(308, 268),
    "mount": _Call(165, 40),
    "umount2": _Call(166, 39),
    "pivot_root": _Call(155, 41),
    "chroot": _Call(161, 51),
    "open_tree": _Call(428, 428),
    "move_mount": _Call(429, 429),
    "open_tree_attr": _Call(467, 467),
    "fsopen": _Call(430, 430),
    "fsconfig": _Call(431, 431),
    "fsmount": _Call(432, 432),
    "fspick": _Call(433, 433),
    "mount_setattr": _Call(442, 442),
    "name_to_handle_at": _Call(303, 264),
    "open_by_handle_at": _Call(304, 265),
    "quotactl": _Call(179, 60),
    "quotactl_fd": _Call(443, 443),
    # The machine itself.
    "acct": _Call(163, 89),
    "swapon": _Call(167, 224),
    "swapoff": _Call(168, 225),
    "reboot": _Call(169, 142),
    "kexec_load": _Call(246, 104),
    "kexec_file_load": _Call(320, 294),
    "init_module": _Call(175, 105),
    "finit_module": _Call(313, 273),
    "delete_module": _Call(176, 106),
    "syslog": _Call(103, 116),
    "iopl": _Call(172, -1),
    "ioperm": _Call(173, -1),
    "modify_ldt": _Call(154, -1),
    "uselib": _Call(134, -1),
    "settimeofday": _Call(164, 170),
    "clock_settime": _Call(227, 112),
    "vhangup": _Call(153, 58),
    # Consumes a machine-wide quota (fs.aio-max-nr).
    "io_setup": _Call(206, 0),
}

_OF_ROOT = frozenset(
    (
        *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp"),
        *("shmget", "shmat", "shmctl", "shmdt", "semget", "semop", "semtimedop", "semctl"),
        *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
    )
)
"""System calls of debuggers and databases, which programs of root may make: they see the processes of their session only, and
its IPC objects, and cannot trace those that are not dumpable."""

_JOIN_NAMESPACE = "setns"
_SECCOMP = _Call(317, 277)

_SIGNALS = {
    "kill": _Call(62, 129),
    "tkill": _Call(200, 130),
    "tgkill": _Call(234, 131),
    "rt_sigqueueinfo": _Call(129, 138),
    "rt_tgsigqueueinfo": _Call(297, 240),
    "pidfd_send_signal": _Call(424, 424),
}
_F_SETOWN, _F_SETOWN_EX = 8, 15
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902

_SCHED_SETSCHEDULER = _Call(144, 119)
_SCHED_OTHER, _SCHED_BATCH = 0, 3
_OWN_PID_ONLY = {
    "sched_setaffinity": _Call(203, 122),
    "sched_setparam": _Call(142, 118),
    "sched_setattr": _Call(314, 274),
}
"""System calls whose first argument is a process, 0 for the caller."""

_PRLIMIT = _Call(302, 261)
_SETPRIORITY = _Call(141, 140)
_IOPRIO_SET = _Call(251, 30)
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3
_CLONE, _CLONE3 = _Call(56, 220), _Call(435, 435)
_NEW_NAMESPACES = 0x7E020000
_IOCTL = _Call(16, 29)
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_FCNTL = _Call(72, 25)
_F_SETLEASE, _F_NOTIFY = 1024, 1026
_F_OFD_SETLK, _F_OFD_SETLKW = 37, 38
_SOCKET, _SOCKETPAIR = _Call(41, 198), _Call(53, 199)
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_SOCKET_TYPE, _SOCK_STREAM = 0xF, 1
_SOCK_DGRAM = 2
_PROTOCOLS = (0, 1, 6, 17, 58)
"""Any, ICMP, TCP, UDP, ICMPv6; the kernel has modules for others."""

_OPEN_FLAGS = {_Call(2, -1): 1, _Call(257, 56): 2}
"""The calls open and openat, with the index of the argument that has their flags."""

_OPENAT2 = _Call(437, 437)
_O_DIRECT = _Call(0x4000, 0x10000)
_F_SETFL = 4
_ADVICE = (_Call(221, 223), _Call(187, 213))
"""The calls fadvise64 and readahead."""

_MADVISE = _Call(28, 233)
_MADV_WILLNEED, _MADV_COLD, _MADV_PAGEOUT = 3, 20, 21
_PREADV2 = _Call(327, 286)
_SUCCESS = 0
_RWF_NOWAIT, _RWF_DONTCACHE = 0x8, 0x80

_libc = ctypes.CDLL(None, use_errno=True)


def is_available() -> bool:
    """Return whether the kernel supports filters and this module supports the processor architecture."""
    if platform.machine() not in _ARCHITECTURES:
        return False
    # For a null program the kernel returns EFAULT if it supports filters, otherwise EINVAL.
    result = _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0)
    return bool(result != 0 and ctypes.get_errno() == errno.EFAULT)


def install(*, internet: bool = True, page_cache: bool = False) -> None:
    """Install the filter permanently in the calling, single-threaded process and its future children.

    Args:
        internet: Whether streams and datagrams of the Internet are permitted.
        page_cache: Whether they may control the page cache.

    Raises:
        OSError: If the kernel rejects the filter.
    """
    _apply(_program(internet=internet, page_cache=page_cache))


def install_with_gate(*, netlink: bool, is_root: bool = False) -> int | None:
    """Install the filter so that another process decides who may join namespaces and open netlink sockets; see ``Gate``.

    Args:
        netlink: Whether the other process decides on netlink sockets; else they are allowed.
        is_root: Whether programs are root in namespaces of their own. They may then trace each other and use System V and POSIX
            IPC.

    Returns:
        The listener of its notifications; None if there can be none: then the calls are refused.

    Raises:
        OSError: If the kernel rejects the filter.
    """
    permitted = _OF_ROOT if is_root else frozenset[str]()
    listener = _listen(_program(gate=True, counts_netlink=netlink, permitted=permitted))
    if listener is None:
        _apply(_program(permitted=permitted))
    return listener


def install_signal_filter() -> int | None:
    """Add a filter so that another process sends all signals of the calling process and its future children.

    Returns:
        The listener of its notifications; None if there can be none: then signals are not filtered.
    """
    program, rule = _begin()
    for call in _SIGNALS.values():
        rule(call, [bpf.ret(bpf.USER_NOTIFICATION)])
    # The kernel signals the owner of a descriptor.
    rule(_FCNTL, [bpf.load(bpf.argument(1)), *bpf.if_any((_F_SETOWN, _F_SETOWN_EX), errno.EPERM), bpf.ret(bpf.ALLOW)])
    rule(_IOCTL, [bpf.load(bpf.argument(1)), *bpf.if_any((_FIOSETOWN, _SIOCSPGRP), errno.EPERM), bpf.ret(bpf.ALLOW)])
    program.append(bpf.ret(bpf.ALLOW))
    # A signal that the root has begun to send must not interrupt the wait for its answer; before Linux 5.19, it does.
    listener = _listen(program, flags=_WAIT_KILLABLE_RECV)
    return _listen(program) if listener is None else listener


def _listen(program: bpf.Body, *, flags: int = 0) -> int | None:
    """Install a filter with a listener; return that, or None on an older kernel, or if the container has one already."""
    _memory, header = _encode(program)
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1, 0)
    number = _SECCOMP[_ARCHITECTURES[platform.machine()][0]]
    listener: int = _libc.syscall(number, _SET_MODE_FILTER, _NEW_LISTENER | flags, header)
    return None if listener < 0 else listener


def joins_namespace(number: int) -> bool:
    """Return whether the number of a system call is that of setns(2)."""
    return _FORBIDDEN[_JOIN_NAMESPACE][_ARCHITECTURES[platform.machine()][0]] == number


def signal_call(number: int) -> str:
    """Return the name of a system call that sends signals."""
    column, _ = _ARCHITECTURES[platform.machine()]
    return next(name for name, call in _SIGNALS.items() if call[column] == number)


def _apply(program: bpf.Body) -> None:
    _memory, header = _encode(program)
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1, 0)
    _call_prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)


def _encode(program: bpf.Body) -> tuple[object, bytes]:
    """Return the owner of a program's memory, and the ``struct sock_fprog`` that refers to it."""
    encoded = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    code = ctypes.create_string_buffer(encoded, len(encoded))
    return code, struct.pack("@HP", len(program), ctypes.addressof(code))


def _call_prctl(option: int, *arguments: int | bytes) -> None:
    if _libc.prctl(option, *arguments, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


def _begin() -> tuple[bpf.Body, Callable[[_Call, bpf.Body], None]]:
    """Return the start of a filter program, and a function that appends the rule for a system call."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    program: bpf.Body = [
        bpf.load(bpf.ARCHITECTURE),
        *bpf.unless_equal(architecture, [bpf.ret(bpf.KILL_PROCESS)]),
        bpf.load(bpf.NUMBER),
    ]
    if platform.machine() == "x86_64":
        # The x32 ABI has a second set of numbers for the same system calls.
        program += [bpf.jump_if_at_least(_X32_BIT, 0, 1), bpf.refuse(errno.ENOSYS)]

    def rule(call: _Call, body: bpf.Body) -> None:
        if call[column] >= 0:
            program.extend([bpf.equal(call[column], 0, len(body)), *body])

    return program, rule


def _program(
    *,
    internet: bool = True,
    gate: bool = False,
    counts_netlink: bool = False,
    page_cache: bool = False,
    permitted: Collection[str] = (),
) -> bpf.Body:
    program, rule = _begin()
    if not page_cache:
        # First, because programs open files more often than they do anything else that is listed here.
        _keep_page_cache(rule)
    for name, call in _FORBIDDEN.items():
        if name in permitted:
            continue
        is_gated = gate and name == _JOIN_NAMESPACE
        rule(call, [bpf.ret(bpf.USER_NOTIFICATION) if is_gated else bpf.refuse(errno.EPERM)])
    # A filter cannot read the flags, which are in memory; after ENOSYS, C libraries fall back to clone.
    rule(_CLONE3, [bpf.refuse(errno.ENOSYS)])
    rule(_CLONE, [bpf.load(bpf.argument(0)), bpf.any_bit(_NEW_NAMESPACES, 0, 1), bpf.refuse(errno.EPERM), bpf.ret(bpf.ALLOW)])
    rule(_IOCTL, [bpf.load(bpf.argument(1)), *bpf.if_any((_TIOCSTI, _TIOCLINUX, _TIOCSETD), errno.EPERM), bpf.ret(bpf.ALLOW)])
    # Opening a leased file blocks for up to 45 s, and read access as the same user suffices to take a lease.
    # Locks of open file descriptions belong to no process, so their number cannot be limited per session.
    refusals = (*bpf.if_any((_F_SETLEASE, _F_NOTIFY), errno.EPERM), *bpf.if_any((_F_OFD_SETLK, _F_OFD_SETLKW), errno.EINVAL))
    refuse_direct = _refuse_direct(2)
    direct = [] if page_cache else [bpf.equal(_F_SETFL, 0, len(refuse_direct)), *refuse_direct]
    rule(_FCNTL, [bpf.load(bpf.argument(1)), *refusals, *direct, bpf.ret(bpf.ALLOW)])
    for call in _OWN_PID_ONLY.values():
        rule(call, [bpf.load(bpf.argument(0)), *bpf.unless_equal(0, [bpf.refuse(errno.EPERM)]), bpf.ret(bpf.ALLOW)])
    # ZeroMQ aborts unless its threads may set their current policy by thread id: return success without an effect.
    refuse_others = bpf.unless_equal(_SCHED_OTHER, bpf.unless_equal(_SCHED_BATCH, [bpf.refuse(errno.EPERM)]))
    no_op = [bpf.load(bpf.argument(1)), *refuse_others, bpf.ret(bpf.ERRNO)]
    rule(_SCHED_SETSCHEDULER, [bpf.load(bpf.argument(0)), *bpf.unless_equal(0, no_op), bpf.ret(bpf.ALLOW)])
    for call, of_user in ((_SETPRIORITY, _PRIO_USER), (_IOPRIO_SET, _IOPRIO_WHO_USER)):
        check_target = [bpf.load(bpf.argument(0)), *bpf.if_any((of_user,), errno.EPERM)]
        rule(
            call,
            [*check_target, bpf.load(bpf.argument(1)), *bpf.unless_equal(0, [bpf.refuse(errno.EPERM)]), bpf.ret(bpf.ALLOW)],
        )
    rule(_PRLIMIT, _allow_own_limits())
    for call in (_SOCKET, _SOCKETPAIR):
        rule(call, _sockets(internet=internet, netlink=bpf.USER_NOTIFICATION if counts_netlink else bpf.ALLOW))
    program.append(bpf.ret(bpf.ALLOW))
    return program


def _keep_page_cache(rule: Callable[[_Call, bpf.Body], None]) -> None:
    """Append rules by which no page of a file leaves the page cache at will, and none is read past it."""
    for call, flags in _OPEN_FLAGS.items():
        rule(call, [*_refuse_direct(flags), bpf.ret(bpf.ALLOW)])
    # A filter cannot read the flags, which are in memory; after ENOSYS, C libraries fall back to openat.
    rule(_OPENAT2, [bpf.refuse(errno.ENOSYS)])
    # Programs give advice without asking for an effect.
    for call in _ADVICE:
        rule(call, [bpf.ret(bpf.ERRNO)])
    rule(
        _MADVISE,
        [bpf.load(bpf.argument(2)), *bpf.if_any((_MADV_WILLNEED, _MADV_COLD, _MADV_PAGEOUT), _SUCCESS), bpf.ret(bpf.ALLOW)],
    )
    # As of a file system that has neither.
    uncached = bpf.any_bit(_RWF_NOWAIT | _RWF_DONTCACHE, 0, 1)
    rule(_PREADV2, [bpf.load(bpf.argument(5)), uncached, bpf.refuse(errno.EOPNOTSUPP), bpf.ret(bpf.ALLOW)])


def _refuse_direct(index: int) -> bpf.Body:
    """Refuse flags of files, in the argument with an index, by which their content is read past the page cache."""
    column, _ = _ARCHITECTURES[platform.machine()]
    return [bpf.load(bpf.argument(index)), bpf.any_bit(_O_DIRECT[column], 0, 1), bpf.refuse(errno.EINVAL)]


def _allow_own_limits() -> bpf.Body:
    """Reject new limits, a pointer other than null, for a process other than the caller."""
    refuse = [bpf.refuse(errno.EPERM)]
    low, high = bpf.argument(2), bpf.argument(2) + 4
    others = [bpf.load(low), *bpf.unless_equal(0, refuse), bpf.load(high), *bpf.unless_equal(0, refuse)]
    return [bpf.load(bpf.argument(0)), *bpf.unless_equal(0, others), bpf.ret(bpf.ALLOW)]


def _sockets(*, internet: bool, netlink: int) -> bpf.Body:
    """Allow Unix sockets, maybe those of the Internet, and the netlink protocol that lists network interfaces.

    Args:
        internet: Whether Internet sockets are allowed.
        netlink: Action for a netlink socket of that protocol.
    """
    allow = [bpf.ret(bpf.ALLOW)]
    is_known = [bpf.load(bpf.argument(2)), *(step for one in _PROTOCOLS for step in (bpf.equal(one, 0, 1), *allow))]
    unknown = [*is_known, bpf.refuse(errno.EPROTONOSUPPORT)]
    # Raw ones are refused as by the kernel.
    of_internet = [
        *(bpf.load(bpf.argument(1)), bpf.bit_and(_SOCKET_TYPE)),
        *(bpf.equal(_SOCK_STREAM, 2, 0), bpf.equal(_SOCK_DGRAM, 1, 0), bpf.refuse(errno.EPERM)),
        *unknown,
    ]
    # Programs that manage users continue without the audit protocol only if it does not seem to exist.
    route = [
        *(bpf.load(bpf.argument(2)), bpf.equal(_NETLINK_ROUTE, 0, 1)),
        *(bpf.ret(netlink), bpf.refuse(errno.EPROTONOSUPPORT)),
    ]
    return [
        bpf.load(bpf.argument(0)),
        *(bpf.equal(_AF_UNIX, 0, 1), *allow),
        *((bpf.equal(_AF_INET, 1, 0), bpf.equal(_AF_INET6, 0, len(of_internet)), *of_internet) if internet else ()),
        *(bpf.equal(_AF_NETLINK, 0, len(route)), *route),
        bpf.refuse(errno.EACCES),
    ]
