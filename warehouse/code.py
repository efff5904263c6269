"""Fingerprint a function and the project code that it calls; comments and docstrings do not count.

A stage is stale if its code changed. Its code is all that it reaches: the names it mentions are
followed through its module's globals to every function, class and constant in the packages that
decide results. Annotations are not followed, nor is this package, which only stores what stages
make. An object that is neither function, class nor constant (a schema, a compiled template) is not
inspected.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from numbers import Number
from pathlib import Path
from types import ModuleType
from typing import Any

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
PACKAGES = ("flows", "tasks", "corpus_prep")


def follow_package(name: str) -> None:
    """Count the code of one more package: that of a method outside this project."""
    global PACKAGES
    if name not in PACKAGES:
        PACKAGES = (*PACKAGES, name)


@functools.cache
def fingerprint(function: Callable[..., Any]) -> dict[str, str]:
    """Qualified name -> hash of the code, for the function and all project code it reaches."""
    hashes: dict[str, str] = {}
    _follow(function, hashes)
    return dict(sorted(hashes.items()))


@functools.cache
def module_fingerprint(name: str) -> dict[str, str]:
    """The fingerprint of a module that is too heavy to import here.

    It includes the project's modules that the module imports.
    """
    hashes: dict[str, str] = {}
    _follow_imports(ast.parse(f"from {name} import *"), hashes)
    return dict(sorted(hashes.items()))


def _follow(thing: Any, hashes: dict[str, str]) -> None:
    thing = inspect.unwrap(thing)
    if not hasattr(thing, "__qualname__"):
        raise ValueError(
            f"{thing!r}: write it as a function, since a stage's code is known by that"
        )
    name = f"{getattr(thing, '__module__', None) or 'builtins'}.{thing.__qualname__}"
    if name in hashes:
        return
    if _is_built_in(thing):
        hashes[name] = _digest(name)
        return
    tree = _parse(thing)
    hashes[name] = _digest(ast.dump(tree))
    namespace: dict[str, Any] = {}
    if thing.__module__ in sys.modules:
        namespace = vars(sys.modules[thing.__module__])
    for mentioned, value in _mentions(tree, namespace):
        if not mentioned.startswith("__"):
            _reach(f"{thing.__module__}.{mentioned}", value, hashes)
    _follow_imports(tree, hashes)


def _is_built_in(thing: Any) -> bool:
    """Whether Python itself has it, as `int` and `str.strip`.

    Then there is no source to read.
    """
    is_class = inspect.isclass(thing) and thing.__module__ == "builtins"
    return is_class or inspect.isbuiltin(thing) or inspect.ismethoddescriptor(thing)


def _reach(name: str, value: Any, hashes: dict[str, str]) -> None:
    """Add what a mentioned name stands for.

    Project code is followed, a constant counts by value, item by item.
    """
    value = inspect.unwrap(value)  # functools.cache and the like wrap the function
    if inspect.isfunction(value) or inspect.isclass(value):
        if value.__module__.split(".")[0] in PACKAGES:
            _follow(value, hashes)
    elif isinstance(value, (str, bytes, Number)):  # numpy's numbers too
        hashes[name] = _digest(repr(value))
    elif isinstance(value, re.Pattern):
        hashes[name] = _digest(repr((value.pattern, value.flags)))
    elif isinstance(value, (set, frozenset)):
        # the order of a set differs between processes
        hashes[name] = _digest(repr(sorted(map(repr, value))))
    elif isinstance(value, Mapping):
        hashes[name] = _digest(repr(list(map(repr, value))))
        for key, item in value.items():
            _reach(f"{name}[{key!r}]", item, hashes)
    elif isinstance(value, (list, tuple)):
        hashes[name] = _digest(str(len(value)))
        for i, item in enumerate(value):
            _reach(f"{name}[{i}]", item, hashes)


def _follow_imports(tree: ast.AST, hashes: dict[str, str]) -> None:
    """Add the modules that are imported inside a function, or in a module that counts whole.

    For `from tasks.x import y` there, all of tasks.x counts.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        name = node.module
        if name and name.split(".")[0] in PACKAGES and name not in hashes:
            origin = getattr(importlib.util.find_spec(name), "origin", None)
            if not origin:
                continue
            module = _module(origin, Path(origin).stat().st_mtime_ns)
            hashes[name] = _digest(ast.dump(module))
            _follow_imports(module, hashes)


def _mentions(tree: ast.AST, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in namespace:
            yield node.id, namespace[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = namespace.get(node.value.id)
            if inspect.ismodule(module) and module.__name__.split(".")[0] in PACKAGES:
                yield f"{node.value.id}.{node.attr}", getattr(module, node.attr, None)


def _parse(thing: Any) -> ast.AST:
    """The syntax tree of a function or class, found by name in its module's source."""
    tree: ast.AST = _module(inspect.getsourcefile(thing) or "", sys.modules[thing.__module__])
    for name in thing.__qualname__.split("."):
        if name == "<lambda>":
            raise ValueError(
                f"{thing.__module__}, {thing.__qualname__}: name it, since a stage's code is known"
                " by it"
            )
        if name != "<locals>":
            tree = next(n for n in ast.walk(tree) if isinstance(n, DEFINITIONS) and n.name == name)
    return tree


@functools.cache
def _module(path: str, loaded: ModuleType | int) -> ast.AST:
    """A module's syntax tree, read once per import.

    Edits during a run do not change the code that runs.

    `loaded` is the module, or the modification time of its file if it is not imported here.
    """
    return _bare(ast.parse(Path(path).read_text(encoding="utf-8")))


def _bare(tree: ast.AST) -> ast.AST:
    """The tree without docstrings, decorators, annotations and signatures by `@overload`.

    None of these changes what a function yields.
    """
    for node in ast.walk(tree):
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
    """Whether this is a signature for type checkers, of a function that is defined below it."""
    if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    for decorator in statement.decorator_list:
        if isinstance(decorator, ast.Name) and decorator.id == "overload":
            return True
        if isinstance(decorator, ast.Attribute) and decorator.attr == "overload":
            return True
    return False


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
