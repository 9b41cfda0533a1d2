"""Program ``sudo`` of sandboxes whose programs can be root: nothing in a sandbox gains privileges by being executed.

``sudo --serve``, which root starts, executes commands for the users that may be root: E2B's default user and the group
``sudo``. They pass their standard streams and their working directory through a socket. The gateway writes the program into the
sandbox, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import select
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

_SOCKET = "/run/sudo.sock"
_USERS, _GROUP = ("root", "user"), "sudo"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KEPT = ("TERM", "LANG", "COLORTERM", "DISPLAY", "XAUTHORITY")
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_CREDENTIALS = struct.Struct("3i")
_SIZE = struct.Struct("=I")
_RESULT = struct.Struct("=i")
_NOT_FOUND, _CANNOT_EXECUTE = 127, 126
_USAGE = "usage: sudo [-EHin] [-s] [-u user] [VARIABLE=value ...] [command [argument ...]]"


def _parse(arguments: list[str]) -> dict[str, Any]:
    """Return the command, the user, and what is kept of the environment."""
    request: dict[str, Any] = {"user": "root", "login": False, "shell": False, "preserve": False}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "--":
            break
        if option in ("-u", "--user", "-g", "--group", "-p", "--prompt"):
            value = rest.pop(0) if rest else sys.exit(_USAGE)
            request["user"] = value if option in ("-u", "--user") else request["user"]
        elif option.startswith("--user="):
            request["user"] = option.partition("=")[2]
        elif option in ("--login", "--shell"):
            request[option[2:]] = True
        elif option.startswith("--preserve-env"):
            request["preserve"] = True
        elif option in ("--non-interactive", "--set-home", "--stdin"):
            continue
        elif not option.startswith("--") and set(option[1:]) <= set("EHSikns"):
            request["login"] |= "i" in option
            request["shell"] |= "s" in option
            request["preserve"] |= "E" in option
        else:
            sys.exit(_USAGE)
    variables = {}
    while rest and "=" in rest[0] and rest[0].partition("=")[0].isidentifier():
        name, _, variables[name] = rest.pop(0).partition("=")
    if not rest and not (request["login"] or request["shell"]):
        sys.exit(_USAGE)
    kept = os.environ if request["preserve"] else {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**request, "command": rest, "environment": {**kept, "PATH": _PATH, **variables}, "variables": variables}


def _execute(request: dict[str, Any], caller: int) -> NoReturn:
    """Become the user, and execute the command."""
    command, subject = request["command"], request["user"]
    try:
        user = pwd.getpwnam(subject)
        by = pwd.getpwuid(caller)
        own = {"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name, "SHELL": user.pw_shell}
        sudo = {"SUDO_USER": by.pw_name, "SUDO_UID": str(caller), "SUDO_GID": str(by.pw_gid)}
        environment = {**request["environment"], **own, **sudo, **request["variables"]}
        if request["login"] or request["shell"]:
            shell = [user.pw_shell or "/bin/sh", *(["-l"] if request["login"] else [])]
            command = [*shell, *(["-c", " ".join(command)] if command else [])]
        os.initgroups(user.pw_name, user.pw_gid)
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        if request["login"]:
            os.chdir(user.pw_dir)
        # Python handles or ignores them, and the command would ignore the latter, too.
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        subject = command[0]
        os.execvpe(subject, command, environment)
    except KeyError:
        os.write(2, f"sudo: unknown user {subject}\n".encode())
    except FileNotFoundError:
        os.write(2, f"sudo: {subject}: command not found\n".encode(errors="surrogateescape"))
        os._exit(_NOT_FOUND)
    except OSError as error:
        os.write(2, f"sudo: {subject}: {error.strerror}\n".encode(errors="surrogateescape"))
    os._exit(_CANNOT_EXECUTE)


def _ask(request: dict[str, Any]) -> int:
    """Let the server execute the command; return its exit code."""
    body = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(_SOCKET)
        socket.send_fds(connection, [_SIZE.pack(len(body))], [0, 1, 2, os.open(".", os.O_PATH)])
        for number in _FORWARDED:
            signal.signal(number, lambda number, _: connection.send(bytes([number])))
        connection.sendall(body)
        answer = connection.recv(_RESULT.size, socket.MSG_WAITALL)
    except OSError as error:
        sys.exit(f"sudo: {error.strerror}")
    if len(answer) < _RESULT.size:
        sys.exit(f"sudo: {pwd.getpwuid(os.getuid()).pw_name} is not in the sudoers file")
    code = int(_RESULT.unpack(answer)[0])
    return code if code >= 0 else 128 - code


def _serve() -> None:
    """Execute commands of clients, each in its own process."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_SOCKET)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(_SOCKET)
    os.chmod(_SOCKET, 0o666)  # noqa: S103 - the credentials of each client are checked
    listener.listen(128)
    if os.fork():
        return
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            try:
                listener.close()
                _handle(connection)
            finally:
                os._exit(0)
        connection.close()


def _may_be_root(user: int) -> bool:
    name = pwd.getpwuid(user).pw_name
    with contextlib.suppress(KeyError):
        return name in _USERS or name in grp.getgrnam(_GROUP).gr_mem
    return False


def _handle(connection: socket.socket) -> None:
    """Execute the command of a client, pass on its signals, and report its end; end it with the client."""
    head, descriptors, _, _ = socket.recv_fds(connection, _SIZE.size, 4)
    options = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, caller, _ = _CREDENTIALS.unpack(options)
    size = _SIZE.unpack(head)[0]
    body = b""
    while len(body) < size:
        part = connection.recv(size - len(body))
        if not part:
            return
        body += part
    if not _may_be_root(caller):
        return
    ended, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.fchdir(descriptors[3])
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
        _execute(json.loads(body), caller)
    for descriptor in descriptors:
        os.close(descriptor)
    while True:
        if ended in select.select([ended, connection.fileno()], [], [])[0]:
            connection.send(_RESULT.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
            return
        for number in connection.recv(1) or [signal.SIGKILL]:
            os.killpg(pid, number)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        _serve()
    elif os.geteuid() == 0:
        _execute(_parse(sys.argv[1:]), 0)
    else:
        sys.exit(_ask(_parse(sys.argv[1:])))
