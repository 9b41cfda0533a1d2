"""Endpoint of the remote-object protocol: keeps objects that the peer has proxies for, and creates proxies of the peer's."""

from __future__ import annotations

import builtins
import contextlib
import io
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from coding_gym_server.remote_objects.decoder import Decoder, replace_contents
from coding_gym_server.remote_objects.exchange import (
    Answer,
    Await,
    Call,
    ClassFacts,
    Delete,
    Facts,
    Failure,
    Get,
    Operate,
    PeerConnection,
    Plain,
    Reply,
    Request,
    Set,
    Streams,
)
from coding_gym_server.remote_objects.marshalling import (
    CapturedOutput,
    class_facts,
    decode_arguments,
    encode_arguments,
    exception_arguments,
    is_builtin_type,
    primitive_copy,
    sendable_text,
)
from coding_gym_server.remote_objects.proxies import ProxyType, make_class, new_handle, number_of
from coding_gym_server.remote_objects.special_methods import IMMUTABLE, builtin_part, special_methods_of
from coding_gym_server.remote_objects.values import Encoder, MalformedError, Tag, Tree

if TYPE_CHECKING:
    from coding_gym_server.remote_objects.policy import AccessPolicy

__all__ = ["RemoteObjectEndpoint"]

_MUTABLE = (list, set, bytearray)
_MAX_TRACEBACK_CHARS = 4000


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
        return self.result(self._connection.ask(request))

    def result(self, reply: Reply) -> Any:
        """Return the value of a reply; raises the exception that the peer raised."""
        return self._result(reply, Decoder(self._import))

    def call(self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call a remote object."""
        encoder = Encoder(self.export)
        raw = encode_arguments(encoder, arguments, keywords)
        streams = self.rules.streams(encoder)
        return self._ask_with(encoder, Call(self.export(target), raw, streams))

    def operate(self, name: str, target: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a special method of a remote object."""
        encoder = Encoder(self.export)
        raw = encode_arguments(encoder, arguments, {})
        return self._ask_with(encoder, Operate(name, self.export(target), raw))

    def get(self, target: Any, name: str) -> Any:
        """Return an attribute of a remote object."""
        return self.ask(Get(self.export(target), name))

    def set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute of a remote object."""
        self.ask(Set(self.export(target), name, Encoder(self.export).encode(value)))

    def delete(self, target: Any, name: str) -> None:
        """Delete an attribute of a remote object."""
        self.ask(Delete(self.export(target), name))

    def plain(self, target: Any) -> Any:
        """Return the data of a remote object whose class extends a builtin container."""
        return self.ask(Plain(self.export(target)))

    async def wait_for(self, target: Tree) -> Any:
        """Run a remote awaitable to completion. Blocks the local event loop."""
        return self.ask(Await(target))

    def _ask_with(self, encoder: Encoder, request: Call | Operate) -> Any:
        """Send a request with encoded arguments, and apply the reply's changes to mutable arguments."""
        reply = self._connection.ask(request)
        return self._result(reply, Decoder(self._import, known=encoder.mutables), count=len(encoder.mutables))

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
            error = self._exception(reply, decoder)
        except (MalformedError, RecursionError) as malformed:
            message = f"a malformed value: {malformed}"
            raise ValueError(message) from None
        raise error

    def _exception(self, failure: Failure, decoder: Decoder) -> BaseException:
        kind = decoder.decode(failure.kind)
        if failure.exception is not None:
            error = decoder.decode(failure.exception)
        elif isinstance(kind, type) and issubclass(kind, BaseException):
            arguments = decoder.decode(failure.arguments)
            try:
                error = kind(*arguments)
            except Exception:  # noqa: BLE001 - a class that requires other arguments
                error = kind.__new__(kind)
                error.args = tuple(arguments)
        else:
            error = None
        if not isinstance(error, BaseException):
            message = "a malformed exception"
            raise MalformedError(message)
        self.rules.note(error, failure)
        return error

    # Incoming requests.

    def answer(self, request: Any) -> Reply:
        """Handle a request of the peer."""
        decoder = Decoder(self._import)
        printed = CapturedOutput()
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
                    if streams is None:
                        value = self.rules.call(function, *arguments)
                    else:
                        with self._redirected(streams, decoder, printed):
                            value = self.rules.call(function, *arguments)
                case Operate(name, target, raw):
                    arguments = decode_arguments(decoder, raw)
                    value = self.rules.operate(name, self._local_object(target), arguments[0])
                case Get(target, name):
                    value = self.rules.get(self._local_object(target), name)
                case Set(target, name, tree):
                    self.rules.set(self._local_object(target), name, decoder.decode(tree))
                case Delete(target, name):
                    self.rules.delete(self._local_object(target), name)
                case Facts(target):
                    return self._facts(self._local_object(target))
                case Plain(target):
                    value = primitive_copy(self._local_object(target))
                case Await(target):
                    value = self.rules.run(self._local_object(target))
                case _ if self._fallback is not None:
                    return self._fallback(request)
                case _:
                    message = f"an unsupported request: {type(request).__name__}"
                    raise MalformedError(message)
            encoder, changes = self._changes(decoder, arguments, request)
            return Answer(encoder.encode(value), changes, *printed.texts())
        except BaseException as error:  # noqa: BLE001 - including the submission's own classes
            encoder, changes = self._changes(decoder, arguments, request)
            return self.failure(error, encoder, changes, *printed.texts())

    def failure(
        self,
        error: BaseException,
        encoder: Encoder | None = None,
        changes: list[tuple[int, Tree]] | None = None,
        stdout: str = "",
        stderr: str = "",
    ) -> Failure:
        """Return the message for an exception."""
        encoder = encoder or Encoder(self.export)
        kind = encoder.encode(type(error))
        builtin = type(kind) is list and kind[0] == Tag.TYPE
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - including the submission's own classes
            text = ""
        try:
            arguments = encoder.encode(exception_arguments(error)) if builtin else []
        except BaseException:  # noqa: BLE001 - including the submission's own classes
            arguments = [Tag.LIST, []]
        text = sendable_text(text)
        lines = sendable_text("".join(self.rules.traceback(error))[-_MAX_TRACEBACK_CHARS:])
        exception = None if builtin else self.export(error)
        return Failure(kind, arguments, text, exception, lines, changes or [], stdout, stderr)

    def _changes(self, decoder: Decoder, arguments: tuple[list[Any], dict[str, Any]], request: Any) -> Any:
        """Return an encoder that knows the containers among the arguments, and their contents if any of them has changed."""
        encoder = Encoder(self.export, known=decoder.mutables)
        if not decoder.mutables or not isinstance(request, Call | Operate):
            return encoder, []
        if bytes(encode_arguments(Encoder(self.export), *arguments)) == bytes(request.arguments):
            return encoder, []
        return encoder, [(number, encoder.encode_contents(container)) for number, container in enumerate(decoder.mutables)]

    @contextlib.contextmanager
    def _redirected(self, streams: Streams, decoder: Decoder, printed: CapturedOutput) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if streams.captured:
                printed.stdout, printed.stderr = io.StringIO(), io.StringIO()
                stack.enter_context(contextlib.redirect_stdout(printed.stdout))
                stack.enter_context(contextlib.redirect_stderr(printed.stderr))
            if streams.stdin is not None:
                stack.callback(setattr, sys, "stdin", sys.stdin)
                sys.stdin = io.StringIO(streams.stdin)
            for name, tree in streams.builtins.items():
                stack.callback(setattr, builtins, name, getattr(builtins, name))
                setattr(builtins, name, decoder.decode(tree))
            yield

    def _facts(self, kind: Any) -> ClassFacts:
        if not isinstance(kind, type):
            message = f"{type(kind).__name__} is not a class"
            raise MalformedError(message)
        encode = Encoder(self.export).encode
        own = {name for base in kind.__mro__ if not is_builtin_type(base) for name in vars(base)}
        return ClassFacts(
            name=kind.__name__,
            qualname=kind.__qualname__,
            module=str(getattr(kind, "__module__", "")),
            bases=[encode(base) for base in kind.__bases__ if base is not object],
            specials=special_methods_of(kind),
            own=sorted(name for name in own if not name.startswith("__")) if issubclass(kind, IMMUTABLE) else [],
            is_awaitable=issubclass(kind, Awaitable) and is_builtin_type(kind),
        )

    # Objects and proxies.

    def export(self, value: Any) -> Tree:
        """Return the tree of an object that is passed by reference."""
        number = number_of(self, value)
        if number is not None:
            return [Tag.BACK, number]
        if named := self.rules.name_of(value):
            return [Tag.NAMED, *named]
        if isinstance(value, type):
            count = len(self._retained)
            number = self._retain(value)
            # Includes the class description the first time, which saves the peer a request.
            return [Tag.CLASS, number, self._facts(value)] if number == count else [Tag.CLASS, number]
        tree = [Tag.OBJECT, self._retain(value), Encoder(self.export).encode(type(value))]
        base = next((base for base in IMMUTABLE if isinstance(value, base)), None)
        if base is not None:
            tree.append(Encoder(self.export).encode(builtin_part(value)))
        return tree

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
        return Decoder(self._import).decode(tree)

    def _import(self, decoder: Decoder, tree: Tree) -> Any:
        match tree:
            case [Tag.BACK, int(number)]:
                return self._retained[number] if number >= 0 else self._retained[len(self._retained)]
            case [Tag.CLASS, int(number)]:
                return self._class(number)
            case [Tag.CLASS, int(number), facts]:
                return self._class(number, facts)
            case [Tag.OBJECT, int(number), kind, *data]:
                return self._handle(decoder, number, kind, data)
            case [Tag.NAMED, str(module), str(name)]:
                return self.rules.find(module, name)
        message = f"an unknown tag: {tree[:1]}"
        raise MalformedError(message)

    def _handle(self, decoder: Decoder, number: int, kind_tree: Tree, data: list[Tree]) -> Any:
        if number in self._handles:
            return self._handles[number]
        kind = decoder.decode(kind_tree)
        if not isinstance(kind, ProxyType):
            # A builtin class whose instances are not passed by value, such as an exception.
            kind = self._stand_in(number, kind)
        if kind._handle_is_awaitable:
            return self.wait_for([Tag.BACK, number])
        handle = self._handles[number] = new_handle(kind, number, *map(decoder.decode, data))
        if isinstance(handle, BaseException):
            arguments = self.get(handle, "args")
            if type(arguments) is not tuple:
                message = "an exception without arguments"
                raise MalformedError(message)
            handle.args = arguments
        return handle

    def _class(self, number: int, facts_tree: Tree = None) -> ProxyType:
        known = self._classes.get(number)
        if known is None:
            facts = self._connection.ask(Facts([Tag.BACK, number])) if facts_tree is None else class_facts(facts_tree)
            if not isinstance(facts, ClassFacts):
                message = "a malformed class"
                raise MalformedError(message)
            bases = [Decoder(self._import).decode(base) for base in facts.bases]
            known = self._classes[number] = make_class(self, number, facts, bases)
        return known

    def _stand_in(self, number: int, kind: Any) -> ProxyType:
        """Return a proxy class for an object of a builtin type that is not passed by value."""
        if not isinstance(kind, type):
            message = "an object with a malformed class"
            raise MalformedError(message)
        facts = ClassFacts(kind.__name__, kind.__qualname__, kind.__module__, [], special_methods_of(kind), [], False)
        return make_class(self, -1 - number, facts, [kind])
