"""Fingerprint a function and the project code that it calls; comments and docstrings do not count.

A stage is stale if its code changed. Its code is everything that it reaches: the names it mentions
are followed through its module's globals to every function, class and constant in the packages that
decide results, and to the methods of the objects that it is given (`methods_fingerprint`).
Annotations are not followed, nor is this package, which only stores what stages make. Objects of
other libraries in a module's globals (a schema, a compiled template) are not inspected.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from importlib.machinery import ModuleSpec
from numbers import Number
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
PACKAGES = ("flows", "tasks", "corpus_prep")


def follow_package(name: str) -> None:
    """Count the code of one more package: that of a method defined outside this project."""
    global PACKAGES
    if name not in PACKAGES:
        PACKAGES = (*PACKAGES, name)


@functools.cache
def fingerprint(function: Callable[..., Any]) -> dict[str, str]:
    """Map qualified names to code hashes, for the function and all project code that it reaches."""
    hashes: dict[str, str] = {}
    _follow(function, hashes)
    return dict(sorted(hashes.items()))


@functools.cache
def module_fingerprint(name: str) -> dict[str, str]:
    """The fingerprint of a module that is too heavy to import here, and of the project's modules
    that it imports."""
    hashes: dict[str, str] = {}
    _follow_imports(ast.parse(f"from {name} import *"), "", hashes)
    return dict(sorted(hashes.items()))


@functools.cache
def methods_fingerprint(kind: type) -> dict[str, str]:
    """The fingerprint of the methods of a class and its bases, as far as they are project code.

    It is for objects whose fields are recorded by value. Class defaults, pydantic validators and
    `recipe_identity` have already had their effect on those values and do not count.
    """
    hashes: dict[str, str] = {}
    for base in kind.__mro__:
        if _is_ours(base):
            for method in _methods(base):
                _follow(method, hashes)
    return dict(sorted(hashes.items()))


def _methods(kind: type) -> Iterator[Callable[..., Any]]:
    """The functions defined in the body of a class, without those that do not count."""
    checks = {"recipe_identity"}
    if issubclass(kind, BaseModel):
        decorators = kind.__pydantic_decorators__
        for decorated in (
            decorators.field_validators,
            decorators.model_validators,
            decorators.field_serializers,
            decorators.model_serializers,
        ):
            checks |= decorated.keys()
    file = inspect.getsourcefile(kind)
    for name, value in vars(kind).items():
        if isinstance(value, property):
            value = value.fget
        elif isinstance(value, functools.cached_property):
            value = value.func
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        method: Any = inspect.unwrap(value) if callable(value) else None
        is_written_here = inspect.isfunction(method) and method.__code__.co_filename == file
        if is_written_here and name not in checks:
            yield method


def _is_ours(kind: Any) -> bool:
    """Whether a function or class is code of the packages that decide results."""
    return kind.__module__.split(".")[0] in PACKAGES


def is_project_object(value: Any) -> bool:
    """Whether a value is an instance of a class of the packages that decide results."""
    return not isinstance(value, (str, Number, bytes, Enum)) and _is_ours(type(value))


def held_by(value: Any) -> dict[str, Any]:
    """The values that a callable or an object of the project holds besides its code, by name.

    For a nested function: the outer variables that it uses, except itself. For a bound method: its
    object. For a partial: its function and arguments. For a dataclass or a pydantic model: its
    fields. For anything else: nothing.
    """
    if inspect.isfunction(value):
        nonlocals = inspect.getclosurevars(value).nonlocals
        return {
            name: held
            for name, held in nonlocals.items()
            if held is not value and name != "__class__"  # which stands for `super()`
        }
    if inspect.ismethod(value):
        return {"function": value.__func__, "self": value.__self__}
    if isinstance(value, functools.partial):
        return {"function": value.func, "args": value.args, "keywords": value.keywords}
    if is_project_object(value) and dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if is_project_object(value) and isinstance(value, BaseModel):
        return dict(value)
    return {}


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
    _follow_imports(tree, namespace.get("__package__") or "", hashes)


def _is_built_in(thing: Any) -> bool:
    """Whether it is built into Python, like `int` and `str.strip`, and so has no source."""
    is_class = inspect.isclass(thing) and thing.__module__ == "builtins"
    return is_class or inspect.isbuiltin(thing) or inspect.ismethoddescriptor(thing)


def _reach(name: str, value: Any, hashes: dict[str, str]) -> None:
    """Add the value of a mentioned name, and everything that it holds.

    Project code is followed; a constant counts by value, item by item.
    """
    value = inspect.unwrap(value)  # functools.cache and the like wrap the function
    if inspect.isfunction(value) or inspect.isclass(value):
        if not _is_ours(value):
            return
        _follow(value, hashes)
    elif is_project_object(value):
        _follow(type(value), hashes)
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
    for part, held in held_by(value).items():
        _reach(f"{name}.{part}", held, hashes)


def _follow_imports(tree: ast.AST, package: str, hashes: dict[str, str]) -> None:
    """Add the modules that are imported inside a function, or in a module that counts as a whole.

    `from tasks.x import y` adds all of tasks.x, and tasks.x.y if that is a module. Relative imports
    are resolved against `package`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            name = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            _follow_module(name, hashes)
            for alias in node.names:
                _follow_module(f"{name}.{alias.name}", hashes)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                _follow_module(alias.name, hashes)


def _follow_module(name: str, hashes: dict[str, str]) -> None:
    """Add a module of the project and the project's modules that it imports; ignore any other."""
    if name.split(".")[0] not in PACKAGES or name in hashes:
        return
    spec = _find(name)
    if spec is None or not spec.has_location or spec.origin is None:
        return
    module = _module(spec.origin, Path(spec.origin).stat().st_mtime_ns)
    hashes[name] = _digest(ast.dump(module))
    _follow_imports(module, spec.parent or "", hashes)


def _find(name: str) -> ModuleSpec | None:
    """Find a module without importing it; None for a name inside a module.

    To find it, Python imports its parent. The parent must be a package, because importing a module
    may take seconds.
    """
    parent = name.rpartition(".")[0]
    if parent:
        package = _find(parent)
        if package is None or package.submodule_search_locations is None:
            return None
    return importlib.util.find_spec(name)


def _mentions(tree: ast.AST, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a syntax tree mentions, also as attributes of project modules."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            named = _global(node, namespace)
            if named is not None:
                yield named


def _global(node: ast.expr, namespace: dict[str, Any]) -> tuple[str, Any] | None:
    """The name and value of `x`, `module.x` or `package.module.x` if it is a global."""
    if isinstance(node, ast.Name) and node.id in namespace:
        return node.id, namespace[node.id]
    if isinstance(node, ast.Attribute):
        owner = _global(node.value, namespace)
        if owner is not None and inspect.ismodule(owner[1]):
            name, module = owner
            if module.__name__.split(".")[0] in PACKAGES:
                return f"{name}.{node.attr}", getattr(module, node.attr, None)
    return None


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
    """A module's syntax tree, parsed once per import.

    Edits during a run do not change the code that runs. `loaded` is the module, or the modification
    time of its file if it is not imported here.
    """
    return _bare(ast.parse(Path(path).read_text(encoding="utf-8")))


def _bare(tree: ast.AST) -> ast.AST:
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


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
