"""The source of modules, as syntax trees: what a name in a module stands for, found without
importing the module."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
IMPORTS = (ast.Import, ast.ImportFrom)
ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True)
class Source:
    """A module's syntax tree, without the parts that do not change what its functions return.

    `package`: the package that relative imports refer to.
    """

    package: str
    tree: ast.Module

    @functools.cached_property
    def imported(self) -> dict[str, list[tuple[str, str | None]]]:
        """What each name may be that imports bind outside functions and classes.

        Each is a module, and the name in it; or a module and None. There are several if a `try`
        imports one or the other.
        """
        found: dict[str, list[tuple[str, str | None]]] = {}
        for node in outside_definitions(self.tree):
            if isinstance(node, ast.ImportFrom):
                module = origin_of(node, self.package)
                for alias in node.names:
                    found.setdefault(alias.asname or alias.name, []).append((module, alias.name))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    name = alias.asname or alias.name.partition(".")[0]
                    found.setdefault(name, []).append((alias.name, None))
        return found

    @functools.cached_property
    def defined(self) -> dict[str, list[ast.stmt]]:
        """The statements that define, assign or change each name: `TABLE["a"] = 1` changes
        TABLE."""
        found: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in set(_bound(statement)):
                found.setdefault(name, []).append(statement)
        return found

    @functools.cached_property
    def effects(self) -> list[ast.stmt]:
        """The statements that may do something when the module is imported: all but imports,
        definitions and assignments."""
        return [
            statement
            for statement in self.tree.body
            if not isinstance(statement, (*DEFINITIONS, *IMPORTS, *ASSIGNMENTS, ast.Pass))
            and not _only_imports(statement)
        ]


def source_of(name: str) -> Source | None:
    """The source of a module, or None if `name` is no module with a file."""
    spec = find(name)
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    return _source(spec.origin, spec.parent or "", Path(spec.origin).stat().st_mtime_ns)


@functools.cache
def _source(path: str, package: str, mtime_ns: int) -> Source:
    return Source(package, parse(path, mtime_ns))


def find(name: str) -> ModuleSpec | None:
    """Find a module without importing it; None for a name inside a module.

    To find it, Python imports its parent. The parent must be a package, because importing a module
    may take seconds.
    """
    parent = name.rpartition(".")[0]
    if parent:
        package = find(parent)
        if package is None or package.submodule_search_locations is None:
            return None
    return importlib.util.find_spec(name)


def origin_of(node: ast.ImportFrom, package: str) -> str:
    """The module that names are imported from; relative ones are resolved against `package`."""
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def mentioned(tree: ast.AST) -> Iterator[str]:
    """Yield the names in a syntax tree, local ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at a module's top level defines, assigns or changes."""
    if isinstance(statement, DEFINITIONS):
        yield statement.name
    elif isinstance(statement, ASSIGNMENTS):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            yield from mentioned(target)
    else:
        for node in outside_definitions(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, DEFINITIONS):
                yield node.name


def outside_definitions(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes below `tree`, without those inside functions and classes."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if not isinstance(node, DEFINITIONS):
            yield from outside_definitions(node)


def _only_imports(statement: ast.stmt) -> bool:
    """Whether it does nothing but import names, as `if TYPE_CHECKING:` does."""
    return isinstance(statement, ast.If) and all(
        isinstance(inner, (*IMPORTS, ast.Pass)) for inner in (*statement.body, *statement.orelse)
    )


@functools.cache
def parse(path: str, loaded: ModuleType | int) -> ast.Module:
    """A module's syntax tree, parsed once per import.

    Edits during a run do not change the code that runs. `loaded` is the module, or the modification
    time of its file if it is not imported here.
    """
    return _bare(ast.parse(Path(path).read_text(encoding="utf-8")))


def _bare(tree: ast.Module) -> ast.Module:
    """The tree without the parts that do not change what a function returns.

    These are docstrings, descriptions of pydantic's fields, decorators, annotations and signatures
    by `@overload`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Field", "pydantic.Field"):
            node.keywords = [word for word in node.keywords if word.arg != "description"]
        if isinstance(node, (*DEFINITIONS, ast.Module)):
            node.body = [statement for statement in node.body if not _is_overload(statement)]
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.decorator_list = []
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        if isinstance(node, (*DEFINITIONS, ast.Module)):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


def _is_overload(statement: ast.stmt) -> bool:
    """Whether this is an `@overload`: only a type signature of a function defined below it."""
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    for decorator in statement.decorator_list:
        if isinstance(decorator, ast.Name) and decorator.id == "overload":
            return True
        if isinstance(decorator, ast.Attribute) and decorator.attr == "overload":
            return True
    return False
