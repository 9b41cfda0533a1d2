"""Takes from tests what tells the answers to their questions: names, documentation, and values that nothing uses any more."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable

from coding_gym_server.server.grading.faithful.statements import FUNCTIONS

__all__ = ["Names", "forget_unused", "strip"]

_OWN_NAME = {"_testMethodName", "_testMethodDoc", "id", "shortDescription", "__name__", "__qualname__", "node"}
_FRAMES = {"_getframe", "currentframe", "stack"}
_MAX_PASSES = 12

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Names:
    """Neutral names of test functions and classes, in the order of the real ones: frameworks sort by name.

    Args:
        modules: The parts of the tests.
    """

    def __init__(self, modules: list[ast.Module]) -> None:
        nodes = [node for module in modules for node in ast.walk(module)]
        texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        imported = {alias.asname or alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        is_read = any(map(_reads_own_name, nodes))
        functions = {node.name for node in nodes if isinstance(node, FUNCTIONS) and node.name.startswith("test")}
        classes = _test_classes([node for node in nodes if isinstance(node, ast.ClassDef)])
        numbered = [(sorted(functions - texts - imported), "test_{:04}"), (sorted(classes - texts - imported), "Test{:04}")]
        self._neutral = {
            name: form.format(number) for names, form in numbered for number, name in enumerate(names) if not is_read
        }
        self._real = {neutral: name for name, neutral in self._neutral.items()}

    def neutralize(self, module: ast.Module) -> None:
        """Replace the names in a part of the tests, wherever they are used."""
        for node in ast.walk(module):
            for field in ("name", "id", "attr"):
                name = getattr(node, field, None)
                if isinstance(name, str) and name in self._neutral:
                    setattr(node, field, self._neutral[name])

    def real(self, name: str) -> str:
        """Return the real name of a test."""
        return ".".join(self._real.get(part, part) for part in name.split("."))


def _test_classes(classes: list[ast.ClassDef]) -> set[str]:
    """Return the names of classes that frameworks find, by their names or their bases: others must not be found."""
    found: set[str] = set()
    for node in classes:
        bases = set(map(ast.unparse, node.bases))
        if any("Test" in name for name in (node.name[:4], *bases)) or not found.isdisjoint(bases):
            found.add(node.name)
    return found


def _reads_own_name(node: ast.AST) -> bool:
    """Return whether an expression is about the test itself: ``self.id()``, ``type(self).__name__``, ``request.node``."""
    if not isinstance(node, ast.Attribute):
        return False
    owners = {item.id for item in ast.walk(node.value) if isinstance(item, ast.Name)}
    return node.attr in _FRAMES or (node.attr in _OWN_NAME and not owners.isdisjoint({"self", "cls", "request"}))


def strip(module: ast.Module) -> None:
    """Remove documentation, and the names of subtests and parameters."""
    for node in ast.walk(module):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if (
                ast.get_docstring(node) is not None
            ):
                node.body = node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Pass()])
            case ast.Call(func=ast.Attribute(attr="subTest")):
                node.args, node.keywords = [], []
            case ast.Call(func=ast.Attribute(attr="parametrize" | "param" | "fixture")):
                node.keywords = [keyword for keyword in node.keywords if keyword.arg not in ("ids", "id")]


def forget_unused(modules: list[ast.Module]) -> None:
    """Replace the values that nothing reads by None: what assertions expected before they became questions.

    They are values of variables and attributes, columns of tables that loops and parameters go through, and arguments.
    """
    for _ in range(_MAX_PASSES):
        if not _Unused(modules).forget():
            break


class _Unused:
    """Values that nothing reads.

    Args:
        modules: The parts of the tests.
    """

    def __init__(self, modules: list[ast.Module]) -> None:
        self._nodes = [node for module in modules for node in ast.walk(module)]
        functions = [list(ast.walk(node)) for node in self._nodes if isinstance(node, FUNCTIONS)]
        self._scopes = [(nodes, _loaded(nodes)) for nodes in (*functions, self._nodes)]
        self._attributes = {
            node.attr for node in self._nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        self._imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in self._nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        self._shared = {name for node in self._nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
        self._has_changed = False

    def forget(self) -> bool:
        """Forget them; return whether there were any."""
        for nodes, loaded in self._scopes:
            for node in nodes:
                match node:
                    case ast.Assign(targets=[target]):
                        node.value = self._assigned(target, node.value, loaded)
                    case ast.AnnAssign(target=target, value=ast.expr() as value):
                        node.value = self._assigned(target, value, loaded)
                    case ast.For(target=ast.Tuple(names), iter=rows):
                        for number, name in enumerate(names):
                            if not self._is_read(name, loaded):
                                self._forget_column(rows, number)
            if isinstance(nodes[0], FUNCTIONS):
                self._forget_parameters(nodes[0], loaded)
        return self._has_changed

    def _is_read(self, target: ast.expr, loaded: set[str]) -> bool:
        match target:
            case ast.Name(name):
                # In a class, it is an attribute.
                return name in loaded or name in self._shared or name in self._attributes
            case ast.Attribute(attr=name):
                return name in self._attributes
        return True

    def _assigned(self, target: ast.expr, value: ast.expr, loaded: set[str]) -> ast.expr:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            value.elts = [self._assigned(*pair, loaded) for pair in zip(target.elts, value.elts, strict=True)]
            return value
        return value if self._is_read(target, loaded) else self._forgotten(value)

    def _forgotten(self, value: ast.expr) -> ast.expr:
        """Return None in place of a value whose computation changes nothing; otherwise the value."""
        if isinstance(value, ast.Constant) and value.value is None:
            return value
        for node in ast.walk(value):
            if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr | ast.Starred):
                return value
            if isinstance(node, ast.Call):
                root = node.func
                while isinstance(root, ast.Attribute | ast.Call):
                    root = root.value if isinstance(root, ast.Attribute) else root.func
                if not isinstance(root, ast.Name) or not (root.id in self._imported or hasattr(builtins, root.id)):
                    return value
        self._has_changed = True
        return ast.Constant(None)

    def _forget_column(self, rows: ast.expr, number: int | None) -> None:
        """Forget a column of a table, all rows if it has no number."""
        match rows:
            case ast.List(items) | ast.Tuple(items) if number is not None:
                for item in items:
                    row = item.args if isinstance(item, ast.Call) else getattr(item, "elts", [])
                    if number < len(row):
                        row[number] = self._forgotten(row[number])
            case ast.List(items) | ast.Tuple(items):
                items[:] = map(self._forgotten, items)
            case ast.Call(func=ast.Name("zip"), args=columns) if number is not None and number < len(columns):
                self._forget_column(columns[number], None)
            case ast.Call(func=ast.Attribute(value=ast.Dict() as table, attr="items")) if number == 1:
                table.values = [self._forgotten(value) for value in table.values]
            case ast.Name(name) if (only := self._only_value(name)) is not None:
                self._forget_column(only, number)

    def _only_value(self, name: str) -> ast.expr | None:
        """Return the value of a variable that is assigned once and read once."""
        uses = [node for node in self._nodes if isinstance(node, ast.Name) and node.id == name]
        found = [
            node.value
            for node in self._nodes
            if isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
        ]
        return found[0] if len(found) == 1 and len(uses) == 2 else None

    def _forget_parameters(self, function: Function, loaded: set[str]) -> None:
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        unread = [name for name in names if name not in loaded and name not in ("self", "cls")]
        if not unread:
            return
        for decorator in function.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(attr="parametrize"), args=[given, table, *_]):
                    self._forget_parametrized(given, table, unread)
        is_method = names[:1] in (["self"], ["cls"])
        for node in self._nodes:
            match node:
                case ast.Call(func=ast.Name(name) | ast.Attribute(ast.Name("self" | "cls"), name)) if name == function.name:
                    if isinstance(node.func, ast.Attribute) is is_method:
                        self._forget_arguments(node, names[is_method:], unread)

    def _forget_arguments(self, call: ast.Call, names: list[str], unread: list[str]) -> None:
        if not any(isinstance(argument, ast.Starred) for argument in call.args):
            for number, name in enumerate(names[: len(call.args)]):
                if name in unread:
                    call.args[number] = self._forgotten(call.args[number])
        for keyword in call.keywords:
            if keyword.arg in unread:
                keyword.value = self._forgotten(keyword.value)

    def _forget_parametrized(self, given: ast.expr, table: ast.expr, unread: list[str]) -> None:
        match given:
            case ast.Constant(str(text)):
                names = [name.strip() for name in text.split(",")]
            case ast.Tuple(items) | ast.List(items):
                names = [str(item.value) for item in items if isinstance(item, ast.Constant)]
            case _:
                return
        for number, name in enumerate(names):
            if name in unread:
                self._forget_column(table, number if len(names) > 1 else None)


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store)}
