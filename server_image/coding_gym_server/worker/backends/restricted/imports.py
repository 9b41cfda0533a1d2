"""Import policy of the cells: the modules that they may import, and the public attributes of each.

A module of the standard library exposes only its documented names, and nothing that it imports itself.
"""

from __future__ import annotations

import decimal
import functools
import importlib
import sys
import types
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from coding_gym_server.worker.backends.restricted import names

__all__ = ["Imports"]

# Modules of which all public names are available.
_ALL_PUBLIC = """
abc array base64 binascii bisect calendar cmath collections collections.abc colorsys contextlib copy csv dataclasses
datetime decimal difflib enum fractions functools graphlib hashlib heapq hmac html itertools json keyword math numbers
operator pprint queue random re reprlib secrets statistics string struct textwrap time typing unicodedata urllib.parse zlib
"""
_ALL_PUBLIC_NAMES = frozenset(_ALL_PUBLIC.split())

# Modules of which only the listed names are available.
_PARTIAL = {
    "__future__": "annotations",
    "ast": "literal_eval",
    "asyncio": "ALL_COMPLETED CancelledError Condition Event FIRST_COMPLETED FIRST_EXCEPTION LifoQueue Lock PriorityQueue "
    "Queue QueueEmpty QueueFull Semaphore TimeoutError as_completed create_task gather iscoroutine iscoroutinefunction run "
    "shield sleep timeout wait wait_for",
    "io": "BytesIO SEEK_CUR SEEK_END SEEK_SET StringIO",
    "traceback": "format_exc print_exc",
    "types": "BuiltinFunctionType FunctionType GeneratorType LambdaType MappingProxyType MethodType ModuleType NoneType "
    "SimpleNamespace UnionType",
    "urllib": "parse",
    "uuid": "NAMESPACE_DNS NAMESPACE_OID NAMESPACE_URL NAMESPACE_X500 UUID uuid3 uuid4 uuid5",
    "warnings": "filterwarnings simplefilter warn",
    "weakref": "WeakKeyDictionary WeakSet WeakValueDictionary ref",
}

# Names that read attributes by name, execute or load code, or write to objects that do not belong to the cell.
_HIDDEN_NAMES = {
    "abc": "get_cache_token update_abstractmethods",
    "collections": "UserString",
    "contextlib": "chdir",
    "copy": "replace",
    "dataclasses": "Field make_dataclass",
    "enum": "EnumType global_enum global_enum_repr global_flag_repr global_str",
    "numpy": "ctypeslib distutils f2py fromfile load memmap testing",
    "numpy.lib": "format npyio",
    "reprlib": "aRepr",
    "typing": "ForwardRef evaluate_forward_ref get_type_hints no_type_check no_type_check_decorator",
}

_HIDDEN = {f"{module}.{name}" for module, listed in _HIDDEN_NAMES.items() for name in listed.split()}
_DESCRIPTIVE = {"__name__", "__doc__", "__version__"}
_WRITABLE = (decimal.Context, types.SimpleNamespace)
_MISSING = object()


class Imports:
    """Imports modules and returns their public attributes.

    Args:
        authorized: Additional modules that a cell may import, with their submodules and all their public names.
    """

    def __init__(self, authorized: tuple[str, ...]) -> None:
        self._authorized = authorized

    def load(self, name: str) -> ModuleType:
        """Import a module.

        Raises:
            ImportError: If the module is not authorized or does not exist.
        """
        if not self._may_load(name):
            message = (
                f"import of {name!r} is not authorized in the restricted backend. Authorized: {', '.join(self._listing())}"
            )
            raise ImportError(message, name=name)
        module = importlib.import_module(name)
        if name in self._authorized and module.__name__ != name:
            # An alias, such as os.path for posixpath.
            self._authorized = (*self._authorized, module.__name__)
        return module

    def load_top(self, name: str, is_named: bool) -> ModuleType:
        """Implement ``import a.b`` or, if ``is_named``, ``import a.b as name``."""
        module = self.load(name)
        return module if is_named else sys.modules[name.partition(".")[0]]

    def load_from(self, name: str, attribute: str) -> Any:
        """Implement ``from name import attribute``.

        Raises:
            ImportError: If the module or the attribute is not authorized or does not exist.
        """
        module = self.load(name)
        value = self._optional(module, attribute)
        if value is not _MISSING:
            return value
        if self._may_load(f"{name}.{attribute}"):
            return self.load(f"{name}.{attribute}")
        message = f"cannot import name {attribute!r} from {name!r} in the restricted backend"
        raise ImportError(message, name=name)

    def load_all(self, name: str) -> Iterator[tuple[str, Any]]:
        """Yield the names and values that ``from name import *`` imports."""
        module = self.load(name)
        for public in getattr(module, "__all__", None) or dir(module):
            if not public.startswith("_") and (value := self._optional(module, public)) is not _MISSING:
                yield public, value

    def attribute(self, module: ModuleType, name: str, *default: Any) -> Any:
        """Read an attribute of a module.

        Raises:
            AttributeError: If the attribute is not public or does not exist.
        """
        owner = module.__name__
        if default and not hasattr(module, name):
            return default[0]
        if name in _DESCRIPTIVE:
            return getattr(module, name)
        public = self._public(owner)
        if name.startswith("_") or (public is not None and name not in public) or f"{owner}.{name}" in _HIDDEN:
            raise _not_public(owner, name)
        value = getattr(module, name)
        if _is_module(value):
            self.check_module(value)
        elif public is None and self._is_foreign(value):
            raise _not_public(owner, name)
        return value

    def check_module(self, module: ModuleType) -> None:
        """Check that a cell may access a module.

        Raises:
            AttributeError: If the module is not authorized.
        """
        if not self._may_load(module.__name__):
            message = f"the module {module.__name__!r} is not authorized in the restricted backend"
            raise AttributeError(message)

    def is_instance_of_authorized(self, target: Any) -> bool:
        """Return whether an object is an instance of a class of an authorized package, or of a class with public setters."""
        kind = type(target)
        if issubclass(kind, type | ModuleType | FunctionType):
            return False
        return issubclass(kind, _WRITABLE) or self._covers(str(kind.__module__))

    def _covers(self, name: str) -> bool:
        """Return whether a module was authorized by the caller."""
        return any(name == each or name.startswith(f"{each}.") for each in self._authorized)

    def _may_load(self, name: str) -> bool:
        if name in _ALL_PUBLIC_NAMES or name in _PARTIAL or any(each.startswith(f"{name}.") for each in self._authorized):
            return True
        parts = name.split(".")
        prefixes = {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        return prefixes.isdisjoint(_HIDDEN) and any(
            name == each or (name.startswith(f"{each}.") and "._" not in name.removeprefix(each)) for each in self._authorized
        )

    def _public(self, name: str) -> frozenset[str] | None:
        """Return the public names of a module, or None if all names without a leading underscore are public."""
        if self._covers(name):
            return None
        if name in _ALL_PUBLIC_NAMES:
            return _documented(name)
        return frozenset(_PARTIAL.get(name, "").split()) or self._submodules(name)

    def _submodules(self, name: str) -> frozenset[str]:
        """Return the names that lead to authorized submodules of a package that is not authorized itself."""
        prefixes = (each.removeprefix(f"{name}.") for each in self._authorized if each.startswith(f"{name}."))
        return frozenset(path.partition(".")[0] for path in prefixes)

    def _is_foreign(self, value: Any) -> bool:
        """Return whether a function or class in a package belongs to a standard library module that may not be imported."""
        if not isinstance(value, type | FunctionType | BuiltinFunctionType):
            return False
        origin = str(value.__module__)
        is_standard = origin.partition(".")[0] in sys.stdlib_module_names and not origin.startswith("_")
        return is_standard and origin != "builtins" and not self._may_load(origin)

    def _optional(self, module: ModuleType, name: str) -> Any:
        try:
            return self.attribute(module, name)
        except AttributeError:
            return _MISSING

    def _listing(self) -> list[str]:
        return sorted({*_ALL_PUBLIC_NAMES, *_PARTIAL, *self._authorized} - {"__future__"})


@functools.cache
def _documented(name: str) -> frozenset[str]:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None)
    if public is None:
        public = [each for each in dir(module) if not _is_module(getattr(module, each))]
    extra = ["abc"] if name == "collections" else []
    return frozenset(each for each in (*public, *extra) if not names.is_private(each) and not names.is_dunder(each))


def _not_public(module: str, name: str) -> AttributeError:
    return AttributeError(f"module {module!r} has no attribute {name!r} in the restricted backend", name=name)


def _is_module(value: object) -> bool:
    return issubclass(type(value), ModuleType)
