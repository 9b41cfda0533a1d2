"""Exceptions that cross by value: those of Python and its libraries, whose classes both sides have."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import sys
import types
from typing import Any

from coding_gym_server.remote_objects.tables import is_data
from coding_gym_server.remote_objects.values import MalformedError

__all__ = ["class_of_name", "exception_state", "name_of_class", "new_exception", "set_state"]

_MODULES = frozenset(
    (
        *(
            "argparse",
            "asyncio.exceptions",
            "asyncio.queues",
            "binascii",
            "calendar",
            "concurrent.futures._base",
            "configparser",
        ),
        *("copy", "csv", "_csv", "dataclasses", "decimal", "email.errors", "getopt", "graphlib", "gzip", "http.client"),
        *("http.cookies", "io", "ipaddress", "json.decoder", "locale", "_lzma", "numpy.exceptions", "numpy.linalg"),
        *("pandas.errors", "pickle", "_pickle", "plistlib", "queue", "_queue", "re", "re._constants", "shutil", "smtplib"),
        *("socket", "sqlite3", "ssl", "statistics", "struct", "subprocess", "tarfile", "threading", "tokenize", "tomllib"),
        *("urllib.error", "wave", "xml.etree.ElementTree", "xml.parsers.expat", "pyexpat", "xml.sax._exceptions", "zipfile"),
        *("zipimport", "zlib", "zoneinfo", "zoneinfo._common"),
    )
)
"""Modules whose exceptions cross by name. None has a class that test frameworks treat specially, as ``unittest`` has."""

_CHAIN = ("__cause__", "__context__", "__suppress_context__", "__notes__")
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)


def name_of_class(kind: Any) -> str | None:
    """Return the name by which an exception class crosses; None if it crosses as an object, or is not an exception class."""
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        return None
    module, name = kind.__module__, kind.__qualname__
    if vars(builtins).get(name) is kind:
        return name
    known = module in _MODULES and issubclass(kind, Exception) and getattr(sys.modules.get(module), name, None) is kind
    return f"{module}:{name}" if known else None


def class_of_name(name: str) -> type[BaseException]:
    """Return the exception class of a name.

    Raises:
        MalformedError: If there is no such class among those that cross by name.
    """
    module, _, own = name.rpartition(":")
    if not module:
        found = vars(builtins).get(own)
    else:
        found = getattr(importlib.import_module(module), own, None) if module in _MODULES else None
    if name_of_class(found) != name:
        message = f"an exception class {name!r}"
        raise MalformedError(message)
    return found  # type: ignore[return-value]


def exception_state(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of an exception, those of its public attributes that are data, and what leads to it."""
    found = dict(error.__dict__) if name_of_class(type(error)) else {}
    for base in type(error).__mro__:
        if name_of_class(base):
            for name, item in vars(base).items():
                if isinstance(item, _DESCRIPTORS) and name != "args":
                    # Those of Unicode errors raise a TypeError unless they are set.
                    with contextlib.suppress(AttributeError, TypeError):
                        found[name] = item.__get__(error)
    is_public = {name for name, value in found.items() if not name.startswith("_") and value is not None and is_data(value)}
    # A cause is the context as well.
    left_out = "__context__" if error.__cause__ else ""
    chain = {name: value for name in _CHAIN if name != left_out and (value := getattr(error, name, None))}
    return error.args, {name: found[name] for name in sorted(is_public)} | chain


def new_exception(kind: type[BaseException], arguments: Any, attributes: Any) -> BaseException:
    """Return a new exception without running its class's initializer.

    Raises:
        MalformedError: If its class does not allow that.
    """
    try:
        error: BaseException = kind.__new__(kind, *arguments)
    except Exception as refused:  # noqa: BLE001 - depends on the class
        message = f"arguments of {kind.__name__}: {refused}"
        raise MalformedError(message) from None
    set_state(error, arguments, attributes)
    return error


def set_state(error: BaseException, arguments: Any, attributes: Any) -> None:
    """Set the arguments of an exception, and those of its attributes that its classes define."""
    if type(arguments) is not tuple or type(attributes) is not dict:
        message = "a malformed exception"
        raise MalformedError(message)
    error.args = arguments
    by_value = name_of_class(type(error)) is not None
    for name, value in attributes.items():
        defined = any(isinstance(vars(base).get(name), _DESCRIPTORS) for base in type(error).__mro__ if name_of_class(base))
        # The arguments determine attributes that are read-only.
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            if name == "args" or not str.isidentifier(name) or (name.startswith("_") and name not in _CHAIN):
                continue
            if defined or name == "__notes__":
                object.__setattr__(error, name, value)
            elif by_value and not hasattr(type(error), name):
                error.__dict__[name] = value
