"""A session on any server that speaks OpenEnv's protocol: JSON with OpenEnv's fields only.

coding_gym's own sessions (``coding_gym.client.session``) speak msgpack and support the extensions of coding_gym's server. Only
those check the version of the wire protocol.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from coding_gym.client.address import Address
from coding_gym.client.connection import Connection, MessageDecoder
from coding_gym.client.session import refusal
from coding_gym.errors import InvalidActionError, TransportError
from coding_gym.openenv.messages import CodeAction, CodeState, CodeStepResult
from coding_gym_server.protocol import ErrorCode, ErrorMessage, StateRequest

__all__ = ["OpenEnvSession"]


class _Reset(msgspec.Struct, tag="reset"):
    data: dict[str, Any]


class _Step(msgspec.Struct, tag="step"):
    data: CodeAction


class _ObservationResponse(msgspec.Struct, tag="observation"):
    data: CodeStepResult


class _StateResponse(msgspec.Struct, tag="state"):
    data: CodeState


_Expected = TypeVar("_Expected", _ObservationResponse, _StateResponse)
_Answer = _ObservationResponse | _StateResponse | ErrorMessage

_FINAL_CODES = (ErrorCode.CAPACITY_REACHED, ErrorCode.FACTORY_ERROR, ErrorCode.SESSION_ERROR)
"""The errors after which the server closes the connection."""

_decoder: MessageDecoder[_Answer] = MessageDecoder(_Answer)


class OpenEnvSession:
    """A session, which ends with its connection.

    Args:
        address: Address of the server.
        connect_timeout: Connection timeout in seconds.
        message_timeout: Response timeout in seconds, after which the session is lost.

    Raises:
        TransportError: If the server cannot be reached.
        ProtocolError: If the endpoint does not accept the connection.
    """

    def __init__(self, address: Address, *, connect_timeout: float, message_timeout: float) -> None:
        self._connection = Connection(address, timeout=connect_timeout, checks_version=False)
        self._message_timeout = message_timeout
        self.is_lost = False

    def reset(self, options: dict[str, Any]) -> CodeStepResult:
        """Begin an episode.

        Args:
            options: Options of the reset, such as ``seed`` and ``episode_id``.

        Raises:
            TransportError: If the server does not respond.
            ConfigurationError: If the server refuses an option.
            CapacityError: If the server has no free session.
            ProtocolError: If the response is another error, or an unexpected message.
        """
        return _expect(_ObservationResponse, self._request(_Reset(options)), is_configuration=True).data

    def step(self, action: CodeAction) -> CodeStepResult:
        """Run code; raises the same errors as ``reset``.

        Raises:
            InvalidActionError: If the code cannot be encoded.
        """
        try:
            action.code.encode()
        except (UnicodeEncodeError, AttributeError) as error:
            message = f"Expected CodeAction(code=...) with text that UTF-8 can encode: {error}"
            raise InvalidActionError(message) from error
        return _expect(_ObservationResponse, self._request(_Step(action))).data

    def state(self) -> CodeState:
        """Return the state of the episode; raises the same errors as ``reset``."""
        return _expect(_StateResponse, self._request(StateRequest())).data

    def close(self) -> None:
        """End the session. Idempotent."""
        self.is_lost = True
        self._connection.close()

    def _request(self, message: msgspec.Struct) -> _Answer:
        if self.is_lost:
            explanation = "The session is lost, and what its code had defined. Call reset() to begin a new one."
            raise TransportError(explanation)
        try:
            self._connection.send(message, as_text=True)
            answer = self._connection.receive(_decoder, timeout=self._message_timeout)
        except BaseException:
            # Responses carry no id: a late one would be mistaken for that to the next request.
            self.close()
            raise
        if isinstance(answer, ErrorMessage) and answer.data.code in _FINAL_CODES:
            self.close()
        return answer


def _expect(kind: type[_Expected], answer: _Answer, *, is_configuration: bool = False) -> _Expected:
    if isinstance(answer, kind):
        return answer
    raise refusal(answer, is_configuration=is_configuration)
