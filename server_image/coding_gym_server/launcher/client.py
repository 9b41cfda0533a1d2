"""The server's connection to the launcher."""

from __future__ import annotations

import socket

import msgspec

from coding_gym_server.ipc.channel import Channel
from coding_gym_server.ipc.messages import Failed
from coding_gym_server.launcher.messages import KillZygote, StartZygote, ZygoteStarted

__all__ = ["LaunchedZygote", "LauncherClient"]

_responses = msgspec.msgpack.Decoder(ZygoteStarted | Failed)


class LauncherClient:
    """Blocking client of the launcher, which responds within a millisecond, or a second if there are too many processes.

    Args:
        connection: A connected stream socket. The client takes ownership of it.
        end: Descriptor of a pipe that ends when the launcher ends, or is asked to.
    """

    def __init__(self, connection: socket.socket, end: int) -> None:
        self._channel = Channel(connection, _responses)
        self._end = end

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when the server must end."""
        return self._end

    def start(self, request: StartZygote, channel: int, stderr: int) -> LaunchedZygote:
        """Start a zygote.

        Args:
            request: The zygote.
            channel: Descriptor of its channel.
            stderr: Descriptor of its stderr.

        Raises:
            OSError: If it cannot be started.
            EOFError: If the launcher has exited.
        """
        self._channel.send(request, (channel, stderr))
        response = self._channel.receive()
        if isinstance(response, Failed):
            raise OSError(response.reason)
        return LaunchedZygote(response.pid, self)

    def kill(self, pid: int) -> None:
        """Kill a zygote that this client has started."""
        self._channel.send(KillZygote(pid))


class LaunchedZygote:
    """Zygote that the launcher has started; the counterpart of ``subprocess.Popen``.

    Args:
        pid: Its process id.
        client: The connection to the launcher.
    """

    def __init__(self, pid: int, client: LauncherClient) -> None:
        self.pid = pid
        self._client = client

    def kill(self) -> None:
        """Kill the zygote."""
        try:
            self._client.kill(self.pid)
        except OSError:
            # Without the launcher, the sandbox is about to end.
            return

    def wait(self) -> None:
        """Do nothing: the launcher reaps it."""
