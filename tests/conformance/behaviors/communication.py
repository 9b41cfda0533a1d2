"""Programs that print what they observe of pipes, sockets, terminals, descriptors and refused system calls."""

from __future__ import annotations

from tests.security.system_calls import HERE

__all__ = ["COMMUNICATION"]

_SHARED_OBJECTS = ("shmget", "shmat", "semget", "semop", "msgget", "msgsnd", "mq_open", "mq_unlink")
_REFUSED = (
    *("ptrace", "process_vm_readv", "kcmp", "pidfd_getfd", "keyctl", "add_key", "request_key", "bpf", "userfaultfd"),
    *("perf_event_open", "fanotify_init", "io_uring_setup", "io_setup", "unshare", "setns", "mount", "umount2", "pivot_root"),
    *("chroot", "open_tree", "fsopen", "mount_setattr", "open_by_handle_at", "quotactl", "acct", "swapon", "init_module"),
    *("settimeofday", "clock_settime", "vhangup", "clone3"),
)


def _calls(names: tuple[str, ...]) -> str:
    """Return a program that makes system calls whose arguments are 0."""
    numbers = {name: HERE[name] for name in names}
    return f"""
        for name, number in {numbers!r}.items():
            print(name, attempt(call, "syscall", number, 0, 0, 0, 0, 0, 0))
    """


COMMUNICATION = {
    "pipes": """
        import fcntl
        reader, writer = os.pipe()
        print(fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ), os.fpathconf(writer, "PC_PIPE_BUF"))
        print(os.write(writer, b"text"), os.read(reader, 9))
        os.set_blocking(reader, False)
        print(attempt(os.read, reader, 1))
        os.close(reader)
        print(attempt(os.write, writer, b"text"))
        os.close(writer)
    """,
    "socket pairs": """
        import socket, struct
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            one, two = socket.socketpair(socket.AF_UNIX, kind)
            with one, two:
                one.send(b"first")
                one.send(b"second")
                pid, user, group = struct.unpack("iII", two.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
                print(two.recv(99), pid == os.getpid(), user == os.getuid(), group == os.getgid())
    """,
    "stream sockets": """
        import socket
        with scratch():
            with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
                server.bind("socket")
                print(oct(os.stat("socket").st_mode), attempt(client.connect, "socket"))
                server.listen()
                client.connect("socket")
                connection, address = server.accept()
                with connection:
                    client.sendall(b"text")
                    print(connection.recv(9), repr(address), repr(client.getpeername()))
            with socket.socket(socket.AF_UNIX) as other:
                print(attempt(other.bind, "socket"), attempt(other.connect, "socket"), attempt(other.connect, "missing"))
                print(attempt(other.bind, "missing/socket"))
    """,
    "datagram sockets": """
        import socket
        with scratch(), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as two:
                one.bind("one")
                two.bind("two")
                one.sendto(b"text", "two")
                print(two.recvfrom(99), attempt(one.sendto, b"text", "missing"))
    """,
    "abstract sockets": """
        import socket
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
            server.bind("")
            server.listen()
            name = server.getsockname()
            print(len(name), name[:1], attempt(client.connect, name), in_child(lambda: client.send(b"text")))
            connection, _ = server.accept()
            with connection:
                print(connection.recv(9))
    """,
    "passed descriptors": """
        import socket
        with scratch(), open("file", "w+") as file:
            one, two = socket.socketpair()
            with one, two:
                socket.send_fds(one, [b"x"], [file.fileno()])
                _, (descriptor,), _, _ = socket.recv_fds(two, 1, 1)
            print(os.write(descriptor, b"text"), os.pread(file.fileno(), 9, 0))
            os.close(descriptor)
    """,
    "memory files": """
        import fcntl
        file = os.memfd_create("name", os.MFD_ALLOW_SEALING)
        print(os.write(file, b"text"), os.readlink(f"/proc/self/fd/{file}"), oct(os.fstat(file).st_mode))
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
        print(attempt(os.write, file, b"text"), fcntl.fcntl(file, fcntl.F_GET_SEALS))
        os.close(file)
    """,
    "event descriptors": """
        event = os.eventfd(2, os.EFD_NONBLOCK)
        os.eventfd_write(event, 3)
        print(os.eventfd_read(event), attempt(os.eventfd_read, event))
        os.close(event)
    """,
    "timer descriptors": """
        import struct
        timer = call("timerfd_create", time.CLOCK_MONOTONIC, 0)
        call("timerfd_settime", timer, 0, struct.pack("qqqq", 0, 0, 0, 1_000_000), None)
        print(struct.unpack("Q", os.read(timer, 8)))
        os.close(timer)
    """,
    "signal descriptors": """
        import signal, struct
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        signals = call("signalfd", -1, struct.pack("Q120x", 1 << signal.SIGUSR2 - 1), 0)
        os.kill(os.getpid(), signal.SIGUSR2)
        print(struct.unpack_from("I", os.read(signals, 128))[0] == signal.SIGUSR2)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR2})
        os.close(signals)
    """,
    "polling": """
        import select
        reader, writer = os.pipe()
        with select.epoll() as epoll:
            epoll.register(reader, select.EPOLLIN)
            poll = select.poll()
            poll.register(reader, select.POLLIN)
            print(epoll.poll(0), poll.poll(0), select.select([reader], [], [], 0))
            os.write(writer, b"x")
            print([event for _, event in epoll.poll(1)], [event for _, event in poll.poll(1)])
            print(select.select([reader], [], [], 1)[0] == [reader])
        os.close(reader)
        os.close(writer)
    """,
    "process descriptors": """
        import select, signal, subprocess
        with subprocess.Popen(["sleep", "60"]) as child:
            descriptor = os.pidfd_open(child.pid)
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            print(select.select([descriptor], [], [], 10)[0] == [descriptor])
            print(os.waitid(os.P_PIDFD, descriptor, os.WEXITED).si_status)
            child.returncode = 0
            os.close(descriptor)
    """,
    "standard streams by name": """
        with open("/dev/stdout", "w") as out:
            print("out", file=out)
        with open("/dev/stderr", "w") as err:
            print("err", file=err)
        with open("/dev/stdin") as stdin:
            print(repr(stdin.read()))
    """,
    "terminals": """
        try:
            ours, theirs = os.openpty()
        except OSError as error:
            print(errno.errorcode[error.errno])
        else:
            print(os.isatty(theirs), os.ttyname(theirs).rpartition("/")[0], os.get_terminal_size(theirs))
            os.write(ours, b"text" + os.linesep.encode())
            print(os.read(theirs, 99), os.read(ours, 99))
            os.close(ours)
            os.close(theirs)
    """,
    "network sockets": """
        import socket
        for family, kind, protocol in (
            ("INET", "STREAM", 0), ("INET", "DGRAM", 0), ("INET", "RAW", 1), ("INET6", "STREAM", 0), ("NETLINK", "RAW", 0),
            ("NETLINK", "RAW", 9), ("PACKET", "RAW", 0), ("ALG", "SEQPACKET", 0), ("VSOCK", "STREAM", 0),
        ):
            arguments = getattr(socket, f"AF_{family}"), getattr(socket, f"SOCK_{kind}"), protocol
            print(family, kind, protocol, attempt(lambda: socket.socket(*arguments).close()))
    """,
    "shared objects without files": _calls(_SHARED_OBJECTS),
    "refused system calls": _calls(_REFUSED),
}
