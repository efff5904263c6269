"""Fingerprint a function and the project code that it calls; comments and docstrings do not count.

A stage is stale if its code changed. Its code is everything that it reaches: the names it mentions
are followed through its module's globals to every function, class and constant in the packages that
decide results, and to the methods of the objects that it is given (`methods_fingerprint`).
What is imported inside a function may be too heavy to import here, so its names are followed
through the source (`warehouse.source`). Annotations are not followed, nor is this package, which
only stores what stages make. Objects of other libraries in a module's globals (a schema, a compiled
template) are not inspected.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from numbers import Number
from typing import Any

from pydantic import BaseModel

from warehouse.source import DEFINITIONS, find, mentioned, origin_of, parse, source_of

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
    """The fingerprint of a module that is too heavy to import here, and of what it imports from
    the project."""
    hashes: dict[str, str] = {}
    _follow_module(name, hashes)
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
    for used, value in _mentions(tree, namespace):
        if not used.startswith("__"):
            _reach(f"{thing.__module__}.{used}", value, hashes)
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
    """Add what is imported inside a function, or in a module that counts as a whole.

    Nothing is imported for this: the code is found in the modules' source. `from tasks.x import y`
    adds y alone and what it mentions; `import tasks.x` adds the whole module. Relative imports are
    resolved against `package`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = origin_of(node, package)
            for alias in node.names:
                _follow_name(module, alias.name, hashes)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                _follow_module(alias.name, hashes)


def _follow_name(module: str, name: str, hashes: dict[str, str]) -> None:
    """Add what a name in a module of the project stands for, what the module does when imported,
    and the names that these mention; ignore other modules.

    A submodule, `*`, and a name that no statement of the module defines add the whole module.
    """
    full_name = f"{module}.{name}"
    if module.split(".")[0] not in PACKAGES or {module, full_name} & hashes.keys():
        return
    if find(full_name) is not None:
        _follow_module(full_name, hashes)
        return
    source = source_of(module)
    if source is None:
        return
    if name not in source.imported and name not in source.defined:
        _follow_module(module, hashes)
        return
    for origin in source.imported.get(name, ()):
        _follow_imported(*origin, hashes)
    _follow_statements(full_name, module, source.defined.get(name, ()), hashes)
    _follow_statements(f"{module} on import", module, source.effects, hashes)


def _follow_statements(
    key: str, module: str, statements: Sequence[ast.stmt], hashes: dict[str, str]
) -> None:
    """Add statements of a module under `key`, and what they mention."""
    source = source_of(module)
    if source is None or not statements or key in hashes:
        return
    hashes[key] = _digest("\n".join(map(ast.dump, statements)))
    for statement in statements:
        for name in mentioned(statement):
            if name in source.imported or name in source.defined:
                _follow_name(module, name, hashes)
        _follow_imports(statement, source.package, hashes)


def _follow_imported(module: str, name: str | None, hashes: dict[str, str]) -> None:
    """Add a name that a module imports, or the whole module if that is imported itself."""
    if name is None:
        _follow_module(module, hashes)
    else:
        _follow_name(module, name, hashes)


def _follow_module(name: str, hashes: dict[str, str]) -> None:
    """Add a whole module of the project and what it imports; ignore any other."""
    if name.split(".")[0] not in PACKAGES or name in hashes:
        return
    source = source_of(name)
    if source is not None:
        hashes[name] = _digest(ast.dump(source.tree))
        _follow_imports(source.tree, source.package, hashes)


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
    tree: ast.AST = parse(inspect.getsourcefile(thing) or "", sys.modules[thing.__module__])
    for name in thing.__qualname__.split("."):
        if name == "<lambda>":
            raise ValueError(
                f"{thing.__module__}, {thing.__qualname__}: name it, since a stage's code is known"
                " by it"
            )
        if name != "<locals>":
            tree = next(n for n in ast.walk(tree) if isinstance(n, DEFINITIONS) and n.name == name)
    return tree


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
