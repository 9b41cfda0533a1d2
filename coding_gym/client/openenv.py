"""One session on any server that speaks OpenEnv's protocol: JSON, with OpenEnv's fields and nothing else.

Our own sessions (``coding_gym.client.session``) speak msgpack and know what our server says beyond that.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from coding_gym.client.address import Address
from coding_gym.client.coding_messages import CodeAction, CodeState, CodeStepResult
from coding_gym.client.connection import Connection, MessageDecoder
from coding_gym.errors import CapacityError, InvalidActionError, ProtocolError, TransportError
from coding_gym_server.protocol import Error, ErrorCode, State

__all__ = ["OpenEnvSession"]


class _Reset(msgspec.Struct, tag="reset"):
    data: dict[str, Any]


class _Step(msgspec.Struct, tag="step"):
    data: CodeAction


class _Observed(msgspec.Struct, tag="observation"):
    data: CodeStepResult


class _StateTold(msgspec.Struct, tag="state"):
    data: CodeState


_Expected = TypeVar("_Expected", _Observed, _StateTold)
_Answer = _Observed | _StateTold | Error

_FINAL_CODES = (ErrorCode.CAPACITY_REACHED, ErrorCode.FACTORY_ERROR, ErrorCode.SESSION_ERROR)
"""The errors after which the server closes the connection."""

_decoder: MessageDecoder[_Answer] = MessageDecoder(_Answer)


class OpenEnvSession:
    """A session. It lives as long as its connection.

    Args:
        address: Where the server is.
        connect_timeout: Seconds that connecting may take.
        message_timeout: Seconds that an answer may take; when they are over, the session is lost.

    Raises:
        TransportError: The server cannot be reached.
        ProtocolError: There is something, but it does not accept the connection.
    """

    def __init__(self, address: Address, *, connect_timeout: float, message_timeout: float) -> None:
        self._connection = Connection(address, timeout=connect_timeout)
        self._message_timeout = message_timeout
        self.is_lost = False

    def reset(self, options: dict[str, Any]) -> CodeStepResult:
        """Begin an episode.

        Args:
            options: What to ask for, such as ``seed`` and ``episode_id``.

        Raises:
            TransportError: There was no answer.
            CapacityError: The server has no free session.
            ProtocolError: The answer is another error, or no answer at all.
        """
        return _expect(_Observed, self._request(_Reset(options))).data

    def step(self, action: CodeAction) -> CodeStepResult:
        """Run code; raises what ``reset`` does.

        Raises:
            InvalidActionError: The code is no text that can be sent.
        """
        try:
            action.code.encode()
        except (UnicodeEncodeError, AttributeError) as error:
            message = f"Expected CodeAction(code=...) with text that UTF-8 can encode: {error}"
            raise InvalidActionError(message) from error
        return _expect(_Observed, self._request(_Step(action))).data

    def state(self) -> CodeState:
        """Return the state of the episode; raises what ``reset`` does."""
        return _expect(_StateTold, self._request(State())).data

    def close(self) -> None:
        """End the session; harmless when ended already."""
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
            # Answers carry no number: a late one would be taken for that to the next request.
            self.close()
            raise
        if isinstance(answer, Error) and answer.data.code in _FINAL_CODES:
            self.close()
        return answer


def _expect(kind: type[_Expected], answer: _Answer) -> _Expected:
    if isinstance(answer, kind):
        return answer
    if not isinstance(answer, Error):
        message = f"Expected the answer to the request, got {type(answer).__name__}"
        raise ProtocolError(message)
    refusal = CapacityError if answer.data.code is ErrorCode.CAPACITY_REACHED else ProtocolError
    raise refusal(answer.data.message, answer.data.code)
