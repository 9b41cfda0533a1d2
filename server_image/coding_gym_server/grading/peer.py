"""A side of the exchange: keeps the objects that the other side holds handles of, and has handles of the other side's."""

from __future__ import annotations

import builtins
import contextlib
import io
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from coding_gym_server.grading.exchange import (
    Answer,
    Await,
    Call,
    ClassFacts,
    Connection,
    Delete,
    Facts,
    Failure,
    Get,
    Operate,
    Plain,
    Reply,
    Request,
    Set,
    Streams,
)
from coding_gym_server.grading.handles import HandleType, make_class, new_handle, number_of
from coding_gym_server.grading.special_methods import IMMUTABLE, builtin_part, special_methods_of
from coding_gym_server.grading.values import Decoder, Encoder, MalformedError, Tag, Tree, replace_contents

if TYPE_CHECKING:
    from coding_gym_server.grading.rules import OpenRules

__all__ = ["Peer"]

_MUTABLE = (list, set, bytearray)
_MAX_TRACEBACK_CHARS = 4000

_raw_encoder = msgspec.msgpack.Encoder()
_raw_decoder = msgspec.msgpack.Decoder()


class Peer:
    """One side.

    Args:
        rules: What the other side may do with this side's objects, and what this side's code may do with handles.
        answer: Answers the requests that are not about objects.
    """

    def __init__(self, rules: OpenRules, answer: Callable[[Request], Reply] | None = None) -> None:
        self.rules = rules
        rules.peer = self
        self._answer_otherwise = answer
        self._connection: Connection
        self._kept: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._handles: dict[int, Any] = {}
        self._classes: dict[int, HandleType] = {}

    def attach(self, connection: Connection) -> None:
        """Speak over a connection, which answers its requests by ``answer``."""
        self._connection = connection

    # What this side asks.

    def ask(self, request: Request) -> Any:
        """Send a request, and return the value that is the answer.

        Raises:
            PeerGoneError: The other side is gone.
            BaseException: What the other side has raised.
        """
        return self.result(self._connection.ask(request))

    def result(self, reply: Reply) -> Any:
        """Return the value that is an answer; raises what the other side has raised."""
        return self._result(reply, Decoder(self._import))

    def call(self, target: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call an object of the other side."""
        encoder = Encoder(self.export)
        raw = _encode_arguments(encoder, arguments, keywords)
        streams = self.rules.streams(encoder)
        return self._ask_with(encoder, Call(self.export(target), raw, streams))

    def operate(self, name: str, target: Any, arguments: tuple[Any, ...]) -> Any:
        """Call a special method of an object of the other side."""
        encoder = Encoder(self.export)
        raw = _encode_arguments(encoder, arguments, {})
        return self._ask_with(encoder, Operate(name, self.export(target), raw))

    def get(self, target: Any, name: str) -> Any:
        """Return an attribute of an object of the other side."""
        return self.ask(Get(self.export(target), name))

    def set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute of an object of the other side."""
        self.ask(Set(self.export(target), name, Encoder(self.export).encode(value)))

    def delete(self, target: Any, name: str) -> None:
        """Delete an attribute of an object of the other side."""
        self.ask(Delete(self.export(target), name))

    def plain(self, target: Any) -> Any:
        """Return the data of an object of the other side whose class extends a builtin container."""
        return self.ask(Plain(self.export(target)))

    async def wait_for(self, target: Tree) -> Any:
        """Run an awaitable of the other side to its end. It does not yield to this side's event loop."""
        return self.ask(Await(target))

    def _ask_with(self, encoder: Encoder, request: Call | Operate) -> Any:
        """Send a request whose arguments an encoder has encoded, and make the changes to them that the answer tells of."""
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
            message = f"a value came that is none: {malformed}"
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
            except Exception:  # noqa: BLE001 - a class that wants other arguments
                error = kind.__new__(kind)
                error.args = tuple(arguments)
        else:
            error = None
        if not isinstance(error, BaseException):
            message = "an exception that is none"
            raise MalformedError(message)
        self.rules.note(error, failure)
        return error

    # What the other side asks.

    def answer(self, request: Any) -> Reply:
        """Answer a request of the other side."""
        decoder = Decoder(self._import)
        printed = _Printed()
        arguments: tuple[list[Any], dict[str, Any]] = ([], {})
        value = None
        try:
            match request:
                case Call(target, raw, wanted):
                    function = self._own(target)
                    arguments = _decode_arguments(decoder, raw)
                    if wanted is not None and not self.rules.is_open:
                        message = "a call that would change builtin functions or streams"
                        raise MalformedError(message)
                    if wanted is None:
                        value = self.rules.call(function, *arguments)
                    else:
                        with self._redirected(wanted, decoder, printed):
                            value = self.rules.call(function, *arguments)
                case Operate(name, target, raw):
                    arguments = _decode_arguments(decoder, raw)
                    value = self.rules.operate(name, self._own(target), arguments[0])
                case Get(target, name):
                    value = self.rules.get(self._own(target), name)
                case Set(target, name, tree):
                    self.rules.set(self._own(target), name, decoder.decode(tree))
                case Delete(target, name):
                    self.rules.delete(self._own(target), name)
                case Facts(target):
                    return self._facts(self._own(target))
                case Plain(target):
                    value = _plain(self._own(target))
                case Await(target):
                    value = self.rules.run(self._own(target))
                case _ if self._answer_otherwise is not None:
                    return self._answer_otherwise(request)
                case _:
                    message = f"a request that is not for this side: {type(request).__name__}"
                    raise MalformedError(message)
            encoder, changes = self._changes(decoder, arguments, request)
            return Answer(encoder.encode(value), changes, *printed.texts())
        except BaseException as error:  # noqa: BLE001 - of a submission's own classes, too
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
        """Return the message that an exception becomes."""
        encoder = encoder or Encoder(self.export)
        kind = encoder.encode(type(error))
        builtin = type(kind) is list and kind[0] == Tag.TYPE
        try:
            text = str(error)
        except BaseException:  # noqa: BLE001 - of a submission's own classes, too
            text = ""
        try:
            arguments = encoder.encode(_arguments(error)) if builtin else []
        except BaseException:  # noqa: BLE001 - of a submission's own classes, too
            arguments = [Tag.LIST, []]
        text = _sendable(text)
        lines = _sendable("".join(self.rules.traceback(error))[-_MAX_TRACEBACK_CHARS:])
        exception = None if builtin else self.export(error)
        return Failure(kind, arguments, text, exception, lines, changes or [], stdout, stderr)

    def _changes(self, decoder: Decoder, arguments: tuple[list[Any], dict[str, Any]], request: Any) -> Any:
        """Return the containers among the arguments that have changed, and an encoder that knows all of them."""
        encoder = Encoder(self.export, known=decoder.mutables)
        if not decoder.mutables or not isinstance(request, Call | Operate):
            return encoder, []
        if bytes(_encode_arguments(Encoder(self.export), *arguments)) == bytes(request.arguments):
            return encoder, []
        return encoder, [(number, encoder.encode_contents(container)) for number, container in enumerate(decoder.mutables)]

    @contextlib.contextmanager
    def _redirected(self, wanted: Streams, decoder: Decoder, printed: _Printed) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if wanted.captured:
                printed.stdout, printed.stderr = io.StringIO(), io.StringIO()
                stack.enter_context(contextlib.redirect_stdout(printed.stdout))
                stack.enter_context(contextlib.redirect_stderr(printed.stderr))
            if wanted.stdin is not None:
                stack.callback(setattr, sys, "stdin", sys.stdin)
                sys.stdin = io.StringIO(wanted.stdin)
            for name, tree in wanted.builtins.items():
                stack.callback(setattr, builtins, name, getattr(builtins, name))
                setattr(builtins, name, decoder.decode(tree))
            yield

    def _facts(self, kind: Any) -> ClassFacts:
        if not isinstance(kind, type):
            message = f"{type(kind).__name__} is no class"
            raise MalformedError(message)
        encode = Encoder(self.export).encode
        own = {name for base in kind.__mro__ if not _is_builtin(base) for name in vars(base)}
        return ClassFacts(
            name=kind.__name__,
            qualname=kind.__qualname__,
            module=str(getattr(kind, "__module__", "")),
            bases=[encode(base) for base in kind.__bases__ if base is not object],
            specials=special_methods_of(kind),
            own=sorted(name for name in own if not name.startswith("__")) if issubclass(kind, IMMUTABLE) else [],
            is_awaitable=issubclass(kind, Awaitable) and _is_builtin(kind),
        )

    # Objects and handles.

    def export(self, value: Any) -> Tree:
        """Return the tree of an object that does not cross by value."""
        number = number_of(self, value)
        if number is not None:
            return [Tag.BACK, number]
        if named := self.rules.name_of(value):
            return [Tag.NAMED, *named]
        if isinstance(value, type):
            count = len(self._kept)
            number = self._keep(value)
            # The first time with all that the other side would ask for next.
            return [Tag.CLASS, number, self._facts(value)] if number == count else [Tag.CLASS, number]
        tree = [Tag.OBJECT, self._keep(value), Encoder(self.export).encode(type(value))]
        base = next((base for base in IMMUTABLE if isinstance(value, base)), None)
        if base is not None:
            tree.append(Encoder(self.export).encode(builtin_part(value)))
        return tree

    def _keep(self, value: Any) -> int:
        number = self._numbers.setdefault(id(value), len(self._kept))
        if number == len(self._kept):
            self._kept.append(value)
        return number

    def _own(self, tree: Tree) -> Any:
        if type(tree) is list and len(tree) == 2 and tree[0] == Tag.BACK and tree[1] in range(len(self._kept)):
            return self._kept[tree[1]]
        if not self.rules.is_open:
            message = "an object that is not known to the other side"
            raise MalformedError(message)
        # What is data on the other side, such as a builtin type, is data here.
        return Decoder(self._import).decode(tree)

    def _import(self, decoder: Decoder, tree: Tree) -> Any:
        match tree:
            case [Tag.BACK, int(number)]:
                return self._kept[number] if number >= 0 else self._kept[len(self._kept)]
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
        if not isinstance(kind, HandleType):
            # A builtin class whose instances are no data all the same, such as an exception.
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

    def _class(self, number: int, told: Tree = None) -> HandleType:
        known = self._classes.get(number)
        if known is None:
            facts = self._connection.ask(Facts([Tag.BACK, number])) if told is None else _facts_of(told)
            if not isinstance(facts, ClassFacts):
                message = "a class that is none"
                raise MalformedError(message)
            bases = [Decoder(self._import).decode(base) for base in facts.bases]
            known = self._classes[number] = make_class(self, number, facts, bases)
        return known

    def _stand_in(self, number: int, kind: Any) -> HandleType:
        """Return a class for an object of a builtin type that does not cross by value."""
        if not isinstance(kind, type):
            message = "an object whose class is none"
            raise MalformedError(message)
        facts = ClassFacts(kind.__name__, kind.__qualname__, kind.__module__, [], special_methods_of(kind), [], False)
        return make_class(self, -1 - number, facts, [kind])


class _Printed:
    """What a call has printed, if it is to be known."""

    stdout: io.StringIO | None = None
    stderr: io.StringIO | None = None

    def texts(self) -> tuple[str, str]:
        if self.stdout is None or self.stderr is None:
            return "", ""
        return _sendable(self.stdout.getvalue()), _sendable(self.stderr.getvalue())


def _facts_of(tree: Tree) -> ClassFacts:
    try:
        return msgspec.convert(tree, ClassFacts)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from None


def _encode_arguments(encoder: Encoder, arguments: Any, keywords: dict[str, Any]) -> msgspec.Raw:
    items = encoder.items(arguments)
    names = {name: encoder.encode(value) for name, value in keywords.items()}
    return msgspec.Raw(_raw_encoder.encode([items, names]))


def _decode_arguments(decoder: Decoder, raw: msgspec.Raw) -> tuple[list[Any], dict[str, Any]]:
    match _raw_decoder.decode(raw):
        case [list() as items, dict() as names]:
            return list(decoder.items(items)), {str(name): decoder.decode(value) for name, value in names.items()}
    message = "arguments that are none"
    raise MalformedError(message)


def _sendable(text: str) -> str:
    """Return a text without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _arguments(error: BaseException) -> list[Any]:
    """Return what an exception of a builtin class is made of."""
    if isinstance(error, OSError) and error.filename is not None and len(error.args) == 2:
        return [*error.args, error.filename]
    return list(error.args)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(dict.items(value))
    base: Any = next((base for base in _MUTABLE if isinstance(value, base)), None)
    return None if base is None else base(base.__iter__(value))


def _is_builtin(kind: type) -> bool:
    return not kind.__flags__ & 1 << 9
