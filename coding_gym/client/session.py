"""A session on a server; sending and receiving are separate, so that requests of many sessions can be in flight."""

from __future__ import annotations

import contextlib

from coding_gym.client.address import Address
from coding_gym.client.connection import Connection, MessageDecoder
from coding_gym.client.shared_connection import Channel
from coding_gym.errors import CapacityError, CodingGymError, ConfigurationError, ProtocolError, SnapshotError, TransportError
from coding_gym_server.protocol import (
    CheckMessage,
    CheckRequest,
    CloneRequest,
    ErrorCode,
    ErrorMessage,
    ForkOptions,
    ForkRequest,
    ForksMessage,
    GradeRequest,
    InterruptRequest,
    ObservationData,
    ObservationMessage,
    ReleaseOptions,
    ReleaseRequest,
    Request,
    ResetOptions,
    ResetRequest,
    Response,
    RestoreOptions,
    RestoreRequest,
    Screen,
    ScreenMessage,
    ScreenRequest,
    ScreenRequestOptions,
    SessionState,
    SnapshotData,
    SnapshotMessage,
    StateMessage,
    StateRequest,
    StepAction,
    StepRequest,
    VerdictMessage,
)
from coding_gym_server.protocol.grading import Graded, Submission, TaskCheck

__all__ = [
    "SNAPSHOT_TIMEOUT",
    "Session",
    "SessionHttp",
    "expect_forks",
    "expect_observation",
    "expect_reset",
    "expect_screen",
    "expect_snapshot",
    "fork_query",
    "no_access",
    "refusal",
    "take_releases",
]


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
        # Most sessions need none of it.
        from coding_gym.client.files import Files
        from coding_gym.client.http import HttpClient
        from coding_gym.client.processes import Processes

        self._http = HttpClient(address)
        base = f"/sessions/{session_id}"
        self.processes = Processes(self._http, base)
        self.files = Files(self._http, f"{base}/files")
        self._doors = f"{base}/doors"

    def open_door(self, port: int) -> None:
        """Open a door of the present episode.

        Raises:
            ConfigurationError: If the session cannot have it.
            TransportError: If the server does not respond.
            ProtocolError: If it refuses for another reason.
        """
        with self._http.request("POST", f"{self._doors}/{port}"):
            pass

    def close(self) -> None:
        """Close the idle connections."""
        self._http.close()


def no_access(address: Address) -> str:
    """Return the message about a server that sent no id of the session."""
    return f"{address} offers no access to processes and files: it is not a coding_gym server of this version"


SNAPSHOT_TIMEOUT = 30.0
"""Timeout of taking or restoring a snapshot in seconds; the files are copied meanwhile."""

_decoder: MessageDecoder[Response] = MessageDecoder(Response)


class Session:
    """A session, which ends with its connection.

    Args:
        address: Address of the server.
        connect_timeout: Connection timeout in seconds.
        fork_of: Id of a snapshot to continue from, or of a fork that the session belongs to: it may exceed the session limit of
            the server.
        channel: The channel of a shared connection to use instead of its own connection.

    Raises:
        TransportError: If the server cannot be reached.
        ProtocolVersionError: If the server speaks another version of the wire protocol.
        ProtocolError: If the endpoint does not accept the connection.
    """

    def __init__(
        self, address: Address, *, connect_timeout: float = 10.0, fork_of: str | None = None, channel: Channel | None = None
    ) -> None:
        self._connection = channel or Connection(address, timeout=connect_timeout, query=fork_query(fork_of))
        self._address = address
        self._http: SessionHttp | None = None
        self._response_pending = False
        self._is_resetting = False
        self._releases: list[str] = []

    def ask_reset(self, options: ResetOptions) -> None:
        """Request a new episode; ``wait`` returns the response."""
        self._send_releases()
        self._ask(ResetRequest(options))

    def ask_step(self, action: StepAction | str) -> None:
        """Request the execution of an action, or of code; ``wait`` returns the response."""
        self._ask(StepRequest(StepAction(code=action) if isinstance(action, str) else action))

    def wait(self, *, timeout: float) -> ObservationData:
        """Wait for the response to ``ask_reset`` or ``ask_step``.

        Args:
            timeout: Timeout in seconds, after which the session is unusable.

        Raises:
            TransportError: If the server does not respond.
            ConfigurationError: If the server cannot fulfill an option of the reset.
            CapacityError: If the server has no free session.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        response = self._receive(timeout)
        return expect_reset(response) if self._is_resetting else expect_observation(response)

    def clone(self, *, timeout: float = SNAPSHOT_TIMEOUT) -> SnapshotData:
        """Take a snapshot.

        Raises:
            SnapshotError: If the session cannot be copied.
            TransportError: If the server does not respond.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        self._send_releases()
        self._ask(CloneRequest())
        return expect_snapshot(self._receive(timeout))

    def fork(self, count: int, *, timeout: float = SNAPSHOT_TIMEOUT) -> list[str]:
        """Return ``count`` ids for sessions with ``fork_of``, each of which can be restored once, to the present state.

        Raises:
            SnapshotError: If the session cannot be copied.
            TransportError: If the server does not respond.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        self._send_releases()
        self._ask(ForkRequest(ForkOptions(count)))
        return expect_forks(self._receive(timeout))

    @property
    def id(self) -> str | None:
        """Its id, None if the server has refused it."""
        return self._connection.session_id

    @property
    def address(self) -> Address:
        """Address of its server."""
        return self._address

    def ask_restore(self, snapshot: str, *, seed: int | None = None, release: bool = False) -> None:
        """Request the state of a snapshot, and its end if wanted; ``wait`` returns the response."""
        self._send_releases()
        self._ask(RestoreRequest(RestoreOptions(snapshot=snapshot, seed=seed, release=release)))

    def release(self, snapshot: str) -> None:
        """Release a snapshot, with the next request if a response is pending. Has no effect on a session that is lost."""
        self.release_later(snapshot)
        if not self._response_pending:
            with contextlib.suppress(TransportError):
                self._send_releases()

    def release_later(self, snapshot: str) -> None:
        """Release a snapshot with the next request."""
        self._releases.append(snapshot)

    def _send_releases(self) -> None:
        request = take_releases(self._releases)
        if request is not None:
            self._ask(request)
            self._receive(SNAPSHOT_TIMEOUT)

    def state(self, *, timeout: float = 10.0) -> SessionState:
        """Return the state of the episode.

        Raises:
            TransportError: If the server does not respond.
            ProtocolError: If the response is an error, or an unexpected message.
        """
        self._ask(StateRequest())
        response = self._receive(timeout)
        if not isinstance(response, StateMessage):
            raise refusal(response)
        return response.data

    def request_screen(self, options: ScreenRequestOptions, *, timeout: float = 10.0) -> Screen:
        """Return the current screen.

        Raises:
            TransportError: If the server does not respond.
            ProtocolError: If the server refuses, or sends an unexpected message.
        """
        self._ask(ScreenRequest(options))
        return expect_screen(self._receive(timeout))

    def grade(self, submission: Submission, *, timeout: float) -> Graded:
        """Grade a submission, independently of any episode of the session.

        Raises:
            TransportError: If the server does not respond.
            ConfigurationError: If the submission is invalid, regardless of its code: its files or limits, for example.
            ProtocolError: If the server refuses for another reason, or sends an unexpected message.
        """
        self._ask(GradeRequest(submission))
        response = self._receive(timeout)
        if not isinstance(response, VerdictMessage):
            raise refusal(response, is_configuration=True)
        return response.data

    def check(self, reference: Submission, *, timeout: float) -> TaskCheck:
        """Find out the mode that a task permits, from its reference, independently of any episode of the session.

        Raises:
            TransportError: If the server does not respond.
            ConfigurationError: If the submission is invalid, regardless of its code: its files or limits, for example.
            ProtocolError: If the sandbox failed, or the server refuses, or sends an unexpected message.
        """
        self._ask(CheckRequest(reference))
        response = self._receive(timeout)
        if not isinstance(response, CheckMessage):
            raise refusal(response, is_configuration=True)
        return response.data

    @property
    def http(self) -> SessionHttp:
        """The processes and files of the session.

        Raises:
            ProtocolError: If the server does not offer them.
        """
        if self._http is None:
            self._http = SessionHttp(self._address, self._connection.session_id)
        return self._http

    @property
    def is_lost(self) -> bool:
        """Whether its connection has ended."""
        return self._connection.is_lost

    def interrupt(self) -> None:
        """Interrupt the running step, from any thread; its response comes soon. Has no effect if none is running."""
        self._connection.send(InterruptRequest())

    def abort(self) -> None:
        """End the session from another thread: a caller that waits for a response gets a ``TransportError``."""
        self._connection.abort()

    def close(self) -> None:
        """End the session. Idempotent."""
        self._connection.close()
        if self._http is not None:
            self._http.close()

    def _ask(self, request: Request) -> None:
        if self._response_pending:
            # Responses carry no id: the one to the last request would be mistaken for the one to this.
            self.close()
            message = "The last request was interrupted before its response arrived; the session is lost."
            raise TransportError(message)
        # Set first: if sending is interrupted, it is unknown whether there will be a response.
        self._response_pending = True
        self._is_resetting = isinstance(request, ResetRequest)
        self._connection.send(request)

    def _receive(self, timeout: float) -> Response:
        response = self._connection.receive(_decoder, timeout=timeout)
        self._response_pending = False
        return response


def take_releases(releases: list[str]) -> ReleaseRequest | None:
    """Empty a list of snapshots to release, and return the request for the server, None if there are none."""
    released: list[str] = []
    # Garbage collection appends in any thread.
    while releases:
        released.append(releases.pop())
    return ReleaseRequest(ReleaseOptions(released)) if released else None


def expect_reset(response: Response) -> ObservationData:
    """Return the data of the response to a reset.

    Raises:
        ConfigurationError: If the server cannot fulfill an option.
        CapacityError: If the server has no free session.
        ProtocolError: If it is another error, or an unexpected message.
    """
    if not isinstance(response, ObservationMessage):
        raise refusal(response, is_configuration=True)
    return response.data


def expect_observation(response: Response) -> ObservationData:
    """Return the data of the response to a step.

    Raises:
        CapacityError: If the server has no free session.
        ProtocolError: If it is another error, or an unexpected message.
    """
    if not isinstance(response, ObservationMessage):
        raise refusal(response)
    return response.data


def expect_screen(response: Response) -> Screen:
    """Return the data of the response to a screen request.

    Raises:
        ProtocolError: If it is an error, or an unexpected message.
    """
    if not isinstance(response, ScreenMessage):
        raise refusal(response)
    return response.data


def expect_snapshot(response: Response) -> SnapshotData:
    """Return the data of the response to a request for a snapshot.

    Raises:
        SnapshotError: If the session cannot be copied.
        ProtocolError: If it is another error, or an unexpected message.
    """
    if not isinstance(response, SnapshotMessage):
        raise refusal(response)
    return response.data


def expect_forks(response: Response) -> list[str]:
    """Return the ids in the response to a request for forks.

    Raises:
        SnapshotError: If the session cannot be copied.
        ProtocolError: If it is another error, or an unexpected message.
    """
    if not isinstance(response, ForksMessage):
        raise refusal(response)
    return response.data.snapshots


def fork_query(fork_of: str | None) -> str:
    """Return the query by which a connection gets the session of a fork, empty for any other session."""
    return "" if fork_of is None else f"fork_of={fork_of}"


def refusal(response: object, *, is_configuration: bool = False) -> CodingGymError:
    """Return the error that corresponds to an unexpected response.

    Args:
        response: The response, which is not of the expected type.
        is_configuration: Whether the request consists of options, so that an invalid one is a ``ConfigurationError``.
    """
    if not isinstance(response, ErrorMessage):
        return ProtocolError(f"Expected the answer to the request, got {type(response).__name__}")
    if is_configuration and response.data.code is ErrorCode.VALIDATION_ERROR:
        return ConfigurationError(response.data.message)
    if response.data.code is ErrorCode.SNAPSHOT_REFUSED:
        return SnapshotError([error["msg"] for error in response.data.errors or []] or [response.data.message])
    kind = CapacityError if response.data.code is ErrorCode.CAPACITY_REACHED else ProtocolError
    return kind(response.data.message, response.data.code)
