"""One session on a server, its requests split into asking and waiting, so that many can be under way at once."""

from __future__ import annotations

from coding_gym.client.address import Address
from coding_gym.client.connection import Connection, MessageDecoder
from coding_gym.errors import CapacityError, ProtocolError, TransportError
from coding_gym_server.grading.messages import Graded, Submission
from coding_gym_server.protocol import (
    Error,
    ErrorCode,
    Grade,
    Look,
    LookOptions,
    ObservationData,
    ObservationMessage,
    Reset,
    ResetOptions,
    Response,
    Screen,
    ScreenMessage,
    SessionState,
    State,
    StateMessage,
    Step,
    StepAction,
    VerdictMessage,
)

__all__ = ["Session", "expect_observation", "expect_screen"]

_decoder: MessageDecoder[Response] = MessageDecoder(Response)


class Session:
    """A session. It lives as long as its connection.

    Args:
        address: Where the server is.
        connect_timeout: Seconds that connecting may take.

    Raises:
        TransportError: The server cannot be reached.
        ProtocolError: There is something, but it does not accept the connection.
    """

    def __init__(self, address: Address, *, connect_timeout: float = 10.0) -> None:
        self._connection = Connection(address, timeout=connect_timeout)
        self._answer_due = False

    def ask_reset(self, options: ResetOptions) -> None:
        """Ask for a new episode; ``wait`` for the answer."""
        self._ask(Reset(options))

    def ask_step(self, action: StepAction | str) -> None:
        """Ask for an action, or nothing but code, to be run; ``wait`` for the answer."""
        self._ask(Step(StepAction(code=action) if isinstance(action, str) else action))

    def wait(self, *, timeout: float) -> ObservationData:
        """Wait for the answer to ``ask_reset`` or ``ask_step``.

        Args:
            timeout: Seconds; when they are over, the session is of no use any more.

        Raises:
            TransportError: There was no answer.
            CapacityError: The server has no free session.
            ProtocolError: The answer is an error, or no answer at all.
        """
        return expect_observation(self._receive(timeout))

    def state(self, *, timeout: float = 10.0) -> SessionState:
        """Return the state of the episode.

        Raises:
            TransportError: There was no answer.
            ProtocolError: The answer is an error, or no answer at all.
        """
        self._ask(State())
        response = self._receive(timeout)
        if not isinstance(response, StateMessage):
            raise _refusal(response)
        return response.data

    def look(self, options: LookOptions, *, timeout: float = 10.0) -> Screen:
        """Return what is on the screen.

        Raises:
            TransportError: There was no answer.
            ProtocolError: The server refused, or sent no answer at all.
        """
        self._ask(Look(options))
        return expect_screen(self._receive(timeout))

    def grade(self, submission: Submission, *, timeout: float) -> Graded:
        """Grade a submission; it concerns no episode of the session, and needs none.

        Raises:
            TransportError: There was no answer.
            ProtocolError: The server refused, or sent no answer at all.
        """
        self._ask(Grade(submission))
        response = self._receive(timeout)
        if not isinstance(response, VerdictMessage):
            raise _refusal(response)
        return response.data

    def abort(self) -> None:
        """End the session from another thread: whoever waits for an answer gets a ``TransportError``."""
        self._connection.abort()

    def close(self) -> None:
        """End the session; harmless when ended already."""
        self._connection.close()

    def _ask(self, request: Reset | Step | State | Look | Grade) -> None:
        if self._answer_due:
            # Answers carry no number: the one to the last request would be taken for the one to this.
            self.close()
            message = "The last request was interrupted before its answer came; the session is lost."
            raise TransportError(message)
        # First, for whatever interrupts the sending leaves it open whether there will be an answer.
        self._answer_due = True
        self._connection.send(request)

    def _receive(self, timeout: float) -> Response:
        response = self._connection.receive(_decoder, timeout=timeout)
        self._answer_due = False
        return response


def expect_observation(response: Response) -> ObservationData:
    """Return what the answer to a reset or a step holds.

    Raises:
        CapacityError: The server has no free session.
        ProtocolError: It is another error, or no answer at all.
    """
    if not isinstance(response, ObservationMessage):
        raise _refusal(response)
    return response.data


def expect_screen(response: Response) -> Screen:
    """Return what the answer to a look at the screen holds.

    Raises:
        ProtocolError: It is an error, or no answer at all.
    """
    if not isinstance(response, ScreenMessage):
        raise _refusal(response)
    return response.data


def _refusal(response: Response) -> ProtocolError:
    if not isinstance(response, Error):
        return ProtocolError(f"Expected the answer to the request, got {type(response).__name__}")
    kind = CapacityError if response.data.code is ErrorCode.CAPACITY_REACHED else ProtocolError
    return kind(response.data.message, response.data.code)
