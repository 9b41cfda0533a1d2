"""HTTP access to the processes and files of a session."""

from __future__ import annotations

from coding_gym.client.address import Address
from coding_gym.client.files import Files
from coding_gym.client.http import HttpClient
from coding_gym.client.processes import Processes
from coding_gym.errors import ProtocolError

__all__ = ["SessionHttp", "no_access"]


class SessionHttp:
    """The processes and files of a session.

    Args:
        address: Address of the server.
        session_id: Id of the session, from the handshake.

    Attributes:
        processes: The processes that run beside the interpreter.
        files: The files of the working directory.

    Raises:
        ProtocolError: If the server sent no id.
    """

    def __init__(self, address: Address, session_id: str | None) -> None:
        if session_id is None:
            raise ProtocolError(no_access(address))
        self._http = HttpClient(address)
        base = f"/sessions/{session_id}"
        self.processes = Processes(self._http, base)
        self.files = Files(self._http, f"{base}/files")

    def close(self) -> None:
        """Close the idle connections."""
        self._http.close()


def no_access(address: Address) -> str:
    """Return the message about a server that sent no id of the session."""
    return f"{address} offers no access to processes and files: it is not a coding_gym server of this version"
