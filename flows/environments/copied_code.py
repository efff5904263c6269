"""Copy the code that functions need, so it runs where this project is not installed.

Only definitions that are reached are copied, each module into one file; imports of other packages
stay imports. Except for imports within the project, copies are verbatim, so a copied rule cannot
differ from the original.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warehouse.code import PACKAGES

ROWS = "warehouse"  # its names occur only in annotations; in a copy, a row is a plain dict
HEADER = '"""Copied from {module} of selfplay-flows; Apache-2.0."""\n\n'


@dataclass
class CopiedCode:
    """The definitions to copy, by module."""

    names_of: dict[str, set[str]] = field(default_factory=dict)
    # the functions that expressions name, with their modules
    named: dict[str, str] = field(default_factory=dict)

    def expression(self, value: Any) -> str:
        """Python source for `value`: a function, a partial of one, a container of these, or a
        constant.

        Its functions are copied too. Raises ValueError for anything else.

        >>> from functools import partial
        >>> from tasks.readers.tags import last_element
        >>> CopiedCode().expression(partial(last_element, name="answer"))
        "partial(last_element, name='answer')"
        """
        if isinstance(value, functools.partial):
            parts = [self.expression(value.func)]
            parts += [self.expression(part) for part in value.args]
            parts += [f"{name}={self.expression(part)}" for name, part in value.keywords.items()]
            return f"partial({', '.join(parts)})"
        if inspect.isfunction(value):
            self.reach(value.__module__, value.__qualname__)
            if self.named.setdefault(value.__qualname__, value.__module__) != value.__module__:
                raise ValueError(f"two functions of a scorer are named {value.__qualname__}")
            return value.__qualname__
        if isinstance(value, Mapping):
            items = (f"{name!r}: {self.expression(part)}" for name, part in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, list | tuple):
            items = [self.expression(part) for part in value]
            if isinstance(value, list):
                return f"[{', '.join(items)}]"
            return f"({''.join(item + ', ' for item in items)})"
        if value is None or isinstance(value, str | int | float | bool):
            return repr(value)
        raise ValueError(
            f"{value!r} cannot be written into a scorer: read and compare with functions, and"
            " partials of functions, whose arguments are constants"
        )

    def files(self) -> dict[str, str]:
        """The text of each file of copied code, by file name."""
        return {
            f"{file_of(module)}.py": _module(module).text(names)
            for module, names in sorted(self.names_of.items())
        }

    @property
    def needs(self) -> set[str]:
        """The third-party packages that the copies import."""
        return {
            package
            for module, names in self.names_of.items()
            for package in _module(module).outside(names)
            if package not in sys.stdlib_module_names
        }

    def imports(self) -> list[str]:
        """Lines that import the functions named by expressions."""
        return [
            f"from .copied.{file_of(module)} import {name}"
            for name, module in sorted(self.named.items())
        ]

    def reach(self, module: str, name: str) -> None:
        """Copy a definition from a module, and everything in the project that it needs.

        Raises ValueError for a nested function or a lambda, for a name that the module does not
        define, and for a function that imports the project when it is called.
        """
        if "<locals>" in name or "<lambda>" in name:
            raise ValueError(f"{module}.{name}: only functions of a module can be copied")
        names = self.names_of.setdefault(module, set())
        if name in names:
            return
        if name not in _module(module).definitions:
            raise ValueError(f"{module} has no definition of {name}")
        ours = _module(module).definitions[name].imports_within & {*PACKAGES, ROWS}
        if ours:
            raise ValueError(
                f"{module}.{name} imports {', '.join(sorted(ours))} when it is called: imports of"
                " the project stand at the top of a module"
            )
        names.add(name)
        for other_module, other_name in _module(module).reaches(name):
            self.reach(other_module, other_name)


def file_of(module: str) -> str:
    """The name, without `.py`, of the file with a module's copy.

    >>> file_of("tasks.readers.boxed")
    'tasks_readers_boxed'
    """
    return module.replace(".", "_")


@dataclass(frozen=True)
class _Import:
    """Where an imported name comes from.

    `name` is its name in that module; None if the module itself is imported.
    """

    module: str
    name: str | None
    alias: str

    @property
    def is_ours(self) -> bool:
        return self.module.split(".")[0] in PACKAGES

    @property
    def line(self) -> str:
        """The import statement in a copy."""
        renamed = "" if self.alias == self.name else f" as {self.alias}"
        if self.name is None and self.is_ours:
            return f"from . import {file_of(self.module)} as {self.alias}"
        if self.name is None:
            return f"import {self.module}" + ("" if self.alias == self.module else renamed)
        source = f".{file_of(self.module)}" if self.is_ours else self.module
        return f"from {source} import {self.name}{renamed}"


@dataclass(frozen=True)
class _Definition:
    """A top-level statement of a module with the comments above it, and what it mentions."""

    text: str
    mentions: frozenset[str]
    # attributes of names: ("numbers", "same_number") for `numbers.same_number`
    attributes: frozenset[tuple[str, str]]
    # packages that are imported only when the definition is used
    imports_within: frozenset[str]


@dataclass(frozen=True)
class _Module:
    """A module's definitions and imports, by name."""

    name: str
    definitions: Mapping[str, _Definition]
    imports: Mapping[str, _Import]

    def reaches(self, name: str) -> Iterator[tuple[str, str]]:
        """What a definition uses from this project, as (module, name)."""
        definition = self.definitions[name]
        for mention in definition.mentions - {name}:
            if mention in self.definitions:
                yield self.name, mention
        for imported in self._imported(definition):
            if imported.is_ours and imported.name is not None:
                yield imported.module, imported.name
            elif imported.is_ours:
                for module, attribute in definition.attributes:
                    if module == imported.alias:
                        yield imported.module, attribute

    def outside(self, names: set[str]) -> Iterator[str]:
        """The packages outside this project that the definitions of `names` import."""
        for name in names:
            definition = self.definitions[name]
            yield from definition.imports_within
            for imported in self._imported(definition):
                if not imported.is_ours:
                    yield imported.module.split(".")[0]

    def text(self, names: set[str]) -> str:
        """The definitions of `names`, in the module's order, with their imports."""
        wanted = [self.definitions[name] for name in self.definitions if name in names]
        imported = {each.line for definition in wanted for each in self._imported(definition)}
        texts = dict.fromkeys(definition.text for definition in wanted)
        parts = ["from __future__ import annotations"]
        if imported:
            parts.append("\n".join(sorted(imported)))
        return HEADER.format(module=self.name) + "\n\n".join([*parts, *texts]) + "\n"

    def _imported(self, definition: _Definition) -> list[_Import]:
        return [self.imports[name] for name in definition.mentions if name in self.imports]


@functools.cache
def _module(name: str) -> _Module:
    """A module of this project, read once."""
    spec = importlib.util.find_spec(name)
    assert spec and spec.origin, f"{name} is a module of the project"
    source = Path(spec.origin).read_text(encoding="utf-8")
    lines = source.splitlines()
    definitions: dict[str, _Definition] = {}
    imports: dict[str, _Import] = {}
    end = 0
    for statement in ast.parse(source).body:
        text = "\n".join(lines[end : statement.end_lineno]).strip("\n")
        end = statement.end_lineno or 0
        for imported in _imports(statement):
            # rows are dicts, and the future import is in every copy
            if imported.module.split(".")[0] not in (ROWS, "__future__"):
                imports[imported.alias] = imported
        for defined in _defined(statement):
            definitions[defined] = _definition(statement, text)
    return _Module(name, definitions, imports)


def _imports(statement: ast.stmt) -> Iterator[_Import]:
    """The imports of a statement; a name that its module only re-exports is traced to its
    origin."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield _Import(alias.name, None, alias.asname or alias.name)
    elif isinstance(statement, ast.ImportFrom):
        module = str(statement.module)
        for alias in statement.names:
            called = alias.asname or alias.name
            as_module = f"{module}.{alias.name}"
            if module.split(".")[0] not in PACKAGES:
                yield _Import(module, alias.name, called)
            elif _is_package(module) and importlib.util.find_spec(as_module):
                yield _Import(as_module, None, called)
            else:
                yield _origin(module, alias.name, called)


def _origin(module: str, name: str, called: str) -> _Import:
    """Where a name that `module` defines or imports is defined."""
    for statement in ast.parse(inspect.getsource(importlib.import_module(module))).body:
        for imported in _imports(statement):
            if imported.alias == name and imported.name is not None:
                return _Import(imported.module, imported.name, called)
    return _Import(module, name, called)


def _definition(statement: ast.stmt, text: str) -> _Definition:
    nodes = list(ast.walk(statement))
    within = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    packages = {_imported_module(node).split(".")[0] for node in within}
    return _Definition(
        text=text,
        mentions=frozenset(node.id for node in nodes if isinstance(node, ast.Name)),
        attributes=frozenset(
            (node.value.id, node.attr)
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        ),
        imports_within=frozenset(packages),
    )


def _defined(statement: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement defines.

    A call such as `logging.getLogger(...).setLevel(...)` defines none and is not copied.
    """
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id


def _imported_module(statement: ast.Import | ast.ImportFrom) -> str:
    if isinstance(statement, ast.ImportFrom):
        return str(statement.module)
    return statement.names[0].name


def _is_package(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    return bool(spec and spec.submodule_search_locations)
