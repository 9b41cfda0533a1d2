"""Endpoint of the remote-object protocol: keeps objects that the peer has proxies for, and creates proxies of the peer's."""

from __future__ import annotations

import io
import types
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from coding_gym_server.remote_objects import tables
from coding_gym_server.remote_objects.decoder import Decoder, replace_contents
from coding_gym_server.remote_objects.exceptions import class_of_name, name_of_class, new_exception, set_state
from coding_gym_server.remote_objects.exchange import (
    Answer,
    Call,
    ClassFacts,
    Facts,
    Failure,
    Get,
    Operate,
    PeerConnection,
    Reply,
    Request,
    Streams,
)
from coding_gym_server.remote_objects.marshalling import (
    decode_arguments,
    encode_arguments,
    is_builtin_type,
    redirected,
    sendable_text,
)
from coding_gym_server.remote_objects.proxies import ProxyType, class_of_handle, make_class, new_handle, number_of
from coding_gym_server.remote_objects.special_methods import IMMUTABLE, builtin_part, special_methods_of
from coding_gym_server.remote_objects.values import TYPES, Encoder, MalformedError, Tag, Tree

if TYPE_CHECKING:
    from coding_gym_server.remote_objects.policy import AccessPolicy

__all__ = ["RemoteObjectEndpoint"]

_MAX_TRACEBACK_CHARS = 4000
_MOST_RECEIVED = 64


class RemoteObjectEndpoint:
    """One endpoint of a connection.

    Args:
        rules: Access policy for the peer's use of local objects and for local use of proxies.
        answer: Handler of requests that do not concern objects.
    """

    def __init__(self, rules: AccessPolicy, answer: Callable[[Request], Reply] | None = None) -> None:
        self.rules = rules
        rules.peer = self
        self._fallback = answer
        self._connection: PeerConnection
        self._retained: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._handles: dict[int, Any] = {}
        self._received: deque[BaseException] = deque(maxlen=_MOST_RECEIVED)
        self._described: list[BaseException] = []
        self._classes: dict[int, ProxyType] = {}

    def attach(self, connection: PeerConnection) -> None:
        """Attach the connection, which must pass the peer's requests to ``answer``."""
        self._connection = connection

    # Outgoing requests.

    def ask(self, request: Request) -> Any:
        """Send a request and return the resulting value.

        Raises:
            PeerGoneError: If the peer is gone.
            BaseException: The exception that the peer raised.
        """
        return self._request(request, Encoder(self.export))

    def result(self, reply: Reply) -> Any:
        """Return the value of a reply; raises the exception that the peer raised."""
        return self._result(reply, self._decoder())

    def call(self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a remote object."""
        encoder = Encoder(self.export)
        raw = encode_arguments(encoder, arguments, keywords)
        streams = self.rules.streams(encoder)
        return self._request(Call(self.encode(target), raw, streams), encoder)

    def operate(self, name: str, target: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a special method of a remote object."""
        encoder = Encoder(self.export)
        raw = encode_arguments(encoder, arguments, {})
        return self._request(Operate(name, self.encode(target), raw), encoder)

    def get(self, target: Any, name: str) -> Any:
        """Return an attribute of a remote object."""
        return self.ask(Get(self.encode(target), name))

    def plain(self, target: Any) -> Any:
        """Return the data of a remote exception, or object whose class extends a builtin container."""
        return self.operate("__getstate__", target, ())

    async def wait_for(self, target: Tree) -> Any:
        """Run a remote awaitable to completion. Blocks the local event loop."""
        return self.ask(Operate("__await__", target, encode_arguments(Encoder(self.export), (), {})))

    def is_received(self, error: BaseException) -> bool:
        """Return whether the peer has raised an exception."""
        return class_of_handle(error) is not None or any(error is received for received in self._received)

    def _request(self, request: Request, encoder: Encoder) -> Any:
        """Send a request with encoded arguments, and apply the reply's changes to mutable arguments."""
        reply = self._connection.ask(request)
        return self._result(reply, self._decoder(encoder.mutables), count=len(encoder.mutables))

    def _decoder(self, known: Iterable[Any] = ()) -> Decoder:
        return Decoder(self._import, known, adapt=self.rules.adapt)

    def _result(self, reply: Reply, decoder: Decoder, *, count: int = 0) -> Any:
        if isinstance(reply, ClassFacts):
            return reply
        try:
            for number, contents in reply.changes:
                if not 0 <= number < count:
                    message = f"container {number} of {count}"
                    raise MalformedError(message)
                replace_contents(decoder.mutables[number], decoder.decode(contents))
            self.rules.echo(reply.stdout, reply.stderr)
            if isinstance(reply, Answer):
                return decoder.decode(reply.value)
            error = decoder.decode(reply.exception)
            if not isinstance(error, BaseException):
                message = "a malformed exception"
                raise MalformedError(message)
        except (MalformedError, RecursionError) as malformed:
            message = f"a malformed value: {malformed}"
            raise ValueError(message) from None
        self.rules.note(error, reply)
        raise error

    # Incoming requests.

    def answer(self, request: Any) -> Reply:
        """Handle a request of the peer."""
        decoder = self._decoder()
        printed = io.StringIO(), io.StringIO()
        arguments: tuple[list[Any], dict[str, Any]] = ([], {})
        value = None
        try:
            match request:
                case Call(target, raw, streams):
                    function = self._local_object(target)
                    arguments = decode_arguments(decoder, raw)
                    if streams is not None and not self.rules.is_open:
                        message = "a call that would change builtin functions or streams"
                        raise MalformedError(message)
                    with redirected(streams or Streams(), decoder, *printed):
                        value = self.rules.call(function, *arguments)
                case Operate(name, target, raw):
                    arguments = decode_arguments(decoder, raw)
                    value = self.rules.operate(name, self._local_object(target), arguments[0])
                case Get(target, name):
                    value = self.rules.get(self._local_object(target), name)
                case Facts(target):
                    return self._facts(self._local_object(target))
                case _ if self._fallback is not None:
                    return self._fallback(request)
                case _:
                    message = f"an unsupported request: {type(request).__name__}"
                    raise MalformedError(message)
            encoder, changes = self._changes(decoder, arguments, request)
            return Answer(encoder.encode(value), changes, *(sendable_text(text.getvalue()) for text in printed))
        except BaseException as error:  # noqa: BLE001 - including the submission's own classes
            self.rules.raised(error)
            encoder, changes = self._changes(decoder, arguments, request)
            lines = sendable_text("".join(self.rules.traceback(error))[-_MAX_TRACEBACK_CHARS:])
            tree = self.export(encoder, error)
            return Failure(tree, lines, changes, *(sendable_text(text.getvalue()) for text in printed))

    def _changes(self, decoder: Decoder, arguments: tuple[list[Any], dict[str, Any]], request: Any) -> Any:
        """Return an encoder that knows the containers among the arguments, and their contents if any of them has changed."""
        encoder = Encoder(self.export, known=decoder.mutables)
        if not decoder.mutables or not isinstance(request, Call | Operate):
            return encoder, []
        if bytes(encode_arguments(Encoder(self.export), *arguments)) == bytes(request.arguments):
            return encoder, []
        return encoder, [(number, encoder.encode_contents(container)) for number, container in enumerate(decoder.mutables)]

    def _facts(self, kind: Any) -> ClassFacts:
        if not isinstance(kind, type):
            message = f"{type(kind).__name__} is not a class"
            raise MalformedError(message)
        own = {name for base in kind.__mro__ if not is_builtin_type(base) for name in vars(base)}
        return ClassFacts(
            name=kind.__name__,
            qualname=kind.__qualname__,
            module=str(getattr(kind, "__module__", "")),
            bases=[self._class_tree(base) for base in kind.__bases__ if base is not object],
            specials=special_methods_of(kind),
            own=sorted(name for name in own if not name.startswith("__")) if issubclass(kind, IMMUTABLE) else [],
            is_awaitable=issubclass(kind, Awaitable) and is_builtin_type(kind),
        )

    # Objects and proxies.

    def encode(self, value: Any) -> Tree:
        """Return the tree of a value by itself."""
        return Encoder(self.export).encode(value)

    def export(self, encoder: Encoder, value: Any) -> Tree:
        """Return the tree of a value that ``Encoder`` has no tag for."""
        number = number_of(self, value)
        if number is not None:
            return [Tag.BACK, number]
        if isinstance(value, types.TracebackType):
            # Gives access to the frames of this process.
            return None
        if isinstance(value, BaseException) and (kind := self.rules.exception_class(value)) is not None:
            return self._exception_tree(encoder, kind, value)
        if named := self.rules.name_of(value):
            return [Tag.NAMED, *named]
        if (tree := tables.encode(encoder, value)) is not None:
            return tree
        if isinstance(value, type):
            return self._class_tree(value, by_name=not issubclass(AssertionError, value))
        self.rules.admit(value)
        tree = [Tag.OBJECT, self._retain(value), self._class_tree(type(value))]
        base = next((base for base in IMMUTABLE if isinstance(value, base)), None)
        if base is not None:
            tree.append(self.encode(builtin_part(value)))
        return tree

    def _class_tree(self, kind: type, *, by_name: bool = True) -> Tree:
        """Return the tree of a class."""
        name = name_of_class(kind) if by_name else None
        if name is not None:
            return [Tag.EXCEPTION_CLASS, name]
        if type(kind) is type and kind in TYPES:
            return [Tag.TYPE, TYPES[kind]]
        number = number_of(self, kind)
        if number is not None:
            return [Tag.BACK, number]
        return [Tag.CLASS, self._retain(kind)]

    def _exception_tree(self, encoder: Encoder, kind: type[BaseException], error: BaseException) -> Tree:
        # What does not cross, among it the exception itself, must not hide it.
        is_described = any(error is described for described in self._described)
        arguments, attributes = ((), {}) if is_described else self.rules.exception_state(error)
        self._described.append(error)
        try:
            state = encoder.attempt(arguments, ()), encoder.attempt(attributes, {})
            return [Tag.EXCEPTION, name_of_class(kind), *state]
        finally:
            self._described.pop()

    def _retain(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._retained))
        if number == len(self._retained):
            self._retained.append(value)
        return number

    def _local_object(self, tree: Tree) -> Any:
        if type(tree) is list and len(tree) == 2 and tree[0] == Tag.BACK and tree[1] in range(len(self._retained)):
            return self._retained[tree[1]]
        if not self.rules.is_open:
            message = "an object that is not known to the other side"
            raise MalformedError(message)
        # Data on the peer's side, such as a builtin type, is data here too.
        return self._decoder().decode(tree)

    def _import(self, decoder: Decoder, tree: Tree) -> Any:
        match tree:
            case [Tag.BACK, int(number)]:
                return self._retained[number] if number >= 0 else self._retained[len(self._retained)]
            case [Tag.CLASS, int(number)]:
                return self._class(number)
            case [Tag.OBJECT, int(number), kind, *data]:
                return self._handle(decoder, number, kind, data)
            case [Tag.NAMED, str(module), str(name)]:
                return self.rules.find(module, name)
            case [Tag.TABLE, _]:
                return tables.decode(decoder, tree, is_exact=not self.rules.is_open)
            case [Tag.EXCEPTION_CLASS, str(name)]:
                if not issubclass(AssertionError, kind := class_of_name(name)):
                    return kind
                # With it, a submission would choose which failures of tests their handlers accept.
                message = f"{name} as a value"
                raise MalformedError(message)
            case [Tag.EXCEPTION, str(name), arguments, attributes]:
                error = new_exception(class_of_name(name), decoder.decode(arguments), decoder.decode(attributes))
                self._received.append(error)
                return error
        message = f"an unknown tag: {tree[:1]}"
        raise MalformedError(message)

    def _handle(self, decoder: Decoder, number: int, kind_tree: Tree, data: list[Tree]) -> Any:
        if number in self._handles:
            return self._handles[number]
        kind = self._kind(kind_tree)
        if not isinstance(kind, ProxyType):
            message = "an object with a malformed class"
            raise MalformedError(message)
        if kind._handle_is_awaitable:
            return self.wait_for([Tag.BACK, number])
        handle = self._handles[number] = new_handle(kind, number, *map(decoder.decode, data))
        if isinstance(handle, BaseException):
            match self.plain(handle):
                case [arguments, attributes]:
                    set_state(handle, arguments, attributes)
        return handle

    def _kind(self, tree: Tree) -> Any:
        """Return the class of an object, or a base of a class."""
        match tree:
            case [Tag.EXCEPTION_CLASS, str(name)]:
                return class_of_name(name)
        return self._decoder().decode(tree)

    def _class(self, number: int) -> ProxyType:
        known = self._classes.get(number)
        if known is None:
            facts = self._connection.ask(Facts([Tag.BACK, number]))
            if not isinstance(facts, ClassFacts):
                message = "a malformed class"
                raise MalformedError(message)
            bases = [self._kind(base) for base in facts.bases]
            known = self._classes[number] = make_class(self, number, facts, bases)
        return known
