"""Launcher: the first process of a sandbox in which sessions have users.

It starts as root, in a container with the capabilities to set ids only (and to map root, if sessions have one), which it keeps
as a separate user. It forks the
server, which changes to its own user, and waits for requests to start zygotes, each in a user namespace with the ids of the
server and of the sessions. In that namespace the zygote is root; outside of it, it has no capability. The launcher never runs
code of a session.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import NoReturn

import msgspec

from coding_gym_server.ipc.channel import Channel, close_all
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.isolation import capabilities, root_user, session_user
from coding_gym_server.isolation.session_user import SessionUsers
from coding_gym_server.launcher.client import LauncherClient
from coding_gym_server.launcher.messages import KillZygote, StartZygote, ZygoteStarted
from coding_gym_server.linux import mounts, user_namespaces
from coding_gym_server.linux.forking import adopt_orphans, ask_child, fork_when_possible
from coding_gym_server.linux.sigchld import ChildExits

__all__ = ["become_server", "launch"]

_ROOT = 0

_requests = msgspec.msgpack.Decoder(StartZygote | KillZygote)


def launch(users: SessionUsers, *, readable: Sequence[str], reachable: Sequence[str] = ()) -> tuple[LauncherClient | None, str]:
    """Split the calling process, root of a sandbox, into the launcher and the server; return in the server only.

    Args:
        users: Users of the server and the sessions.
        readable: Files and directories that the server and the sessions must be able to read.
        reachable: Directories that the server must be able to reach.

    Returns:
        The server's connection to the launcher. Without an effect: None with the reason why sessions cannot have users.
    """
    if os.geteuid() != _ROOT:
        reason = f"the server runs as user {os.geteuid()}: start it as root"
        return None, f"{reason}; a container requires the capabilities SETUID and SETGID, and no others"
    # The kernel counts what sessions use, such as watches, also for the owner of their user namespaces, on the whole machine.
    owner = users.first + users.count

    def become_owner() -> None:
        capabilities.keep_setting_ids(lambda: user_namespaces.become(owner), maps_root=users.have_root)

    def try_to_enter() -> str:
        become_owner()
        if hidden := [directory for directory in reachable if not os.path.isdir(directory)]:
            return f"the server's user cannot reach {hidden[0]}"
        _become_root(_create_namespace(users))
        return session_user.try_to_enter(users, readable)

    if reason := ask_child(try_to_enter):
        return None, reason
    become_owner()
    ours, theirs = socket.socketpair()
    end, our_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        ours.close()
        os.close(our_end)
        become_server(users)
        return LauncherClient(theirs, end), ""
    theirs.close()
    os.close(end)
    return Launcher(Channel(ours, _requests), our_end, pid, users).run()


def become_server(users: SessionUsers) -> None:
    """Become the server's user, permanently.

    Raises:
        PermissionError: If the calling process may not.
    """
    user_namespaces.become(users.server)
    if users.server != session_user.USER:
        # As in a container, the server sees the id that the list of users contains.
        user_namespaces.enter(session_user.USER, session_user.USER)
    capabilities.drop_all()


class Launcher:
    """Starts zygotes on request until the server exits.

    Args:
        channel: Channel of the server's requests.
        end: Pipe whose end tells the server to end.
        server: Process id of the server.
        users: Users of the server and the sessions.
    """

    def __init__(self, channel: Channel[StartZygote | KillZygote], end: int, server: int, users: SessionUsers) -> None:
        self._channel = channel
        self._end = end
        self._server = server
        self._users = users
        # One for all zygotes, so that the roots of a new one can enter what those of its predecessor have left.
        self._namespace: int | None = None
        self._zygotes: set[int] = set()
        self._is_open = True

    def run(self) -> NoReturn:
        """Serve, then exit with the exit code of the server."""
        # Adopt the session roots of a zygote that dies, so that the server recognizes their processes.
        adopt_orphans()
        exits = ChildExits()
        # The server may have exited before its exit was reported.
        self._reap()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end_server)
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(exits.fileno(), select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if exits.fileno() in ready:
                exits.clear()
                self._reap()
            if self._is_open and self._channel.fileno() in ready:
                try:
                    for message, descriptors in self._channel.requests():
                        self._handle(message, descriptors)
                except (EOFError, ConnectionError):
                    poll.unregister(self._channel.fileno())
                    self._is_open = False

    def _end_server(self, *_: object) -> None:
        # It has no capability to signal the server, which is another user.
        if self._end >= 0:
            os.close(self._end)
            self._end = -1

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (exited := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = exited
                self._zygotes.discard(pid)
                if pid == self._server:
                    code = os.waitstatus_to_exitcode(status)
                    os._exit(code if code >= 0 else 128 - code)

    def _handle(self, message: StartZygote | KillZygote, descriptors: list[int]) -> None:
        match message:
            case StartZygote():
                try:
                    pid = self._start(message, *descriptors)
                    self._zygotes.add(pid)
                    self._channel.send(ZygoteStarted(pid))
                except OSError as error:
                    self._channel.send(Failed(str(error)))
            case KillZygote(pid):
                if pid in self._zygotes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        close_all(descriptors)

    def _start(self, message: StartZygote, channel: int, stderr: int) -> int:
        """Fork a zygote that is root in the user namespace of the zygotes; return its process id.

        Raises:
            OSError: If the process limit is reached, or the kernel, its configuration or a seccomp filter does not permit it.
        """
        if self._namespace is None:
            self._namespace = _create_namespace(self._users)
        pid = fork_when_possible()
        if pid == 0:
            try:
                os.dup2(stderr, 2)
                _become_root(self._namespace)
                os.set_inheritable(channel, True)
                module = "coding_gym_server.zygote.bootstrap"
                arguments = [sys.executable, "-P", "-m", module, str(message.heap_bytes), str(channel), message.configuration]
                os.execve(sys.executable, arguments, message.environment)
            except OSError as error:
                os.write(2, f"cannot start a zygote: {error}\n".encode())
            finally:
                os._exit(1)
        return pid


def _create_namespace(users: SessionUsers) -> int:
    """Return a descriptor of a new user namespace with a root and the ids of the server and the sessions.

    Raises:
        OSError: If the kernel, its configuration or a seccomp filter does not permit it.
    """
    ids = [(_ROOT, users.of_zygotes, 1), (users.server, users.server, 1), (users.first, users.first, users.count)]
    return user_namespaces.create([*ids, *(root_user.users_of_zygotes(users.own) if users.have_root else ())])


def _become_root(namespace: int) -> None:
    """Make the calling process root of a user namespace that its user has created."""
    mounts.join(namespace, mounts.NEW_USERS)
    user_namespaces.become(_ROOT)
