"""A fingerprint of a function and of the project's code it calls: comments and docstrings do not count.

A stage is stale when its code changed. Its code is what it reaches: the names it mentions are followed through
its module's globals into every function, class and constant of the project's own packages.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

PACKAGES = ("flows", "tasks", "corpus_prep", "warehouse")


@functools.cache
def fingerprint(function: Callable[..., Any]) -> dict[str, str]:
    """Qualified name -> hash of the code, for the function and all project code it reaches."""
    found: dict[str, str] = {}
    _follow(function, found)
    return dict(sorted(found.items()))


def _follow(thing: Any, found: dict[str, str]) -> None:
    thing = inspect.unwrap(thing)
    name = f"{thing.__module__}.{thing.__qualname__}"
    if name in found:
        return
    tree = _parse(thing)
    found[name] = _digest(ast.dump(tree))
    namespace = vars(sys.modules[thing.__module__]) if thing.__module__ in sys.modules else {}
    for mentioned, value in _mentions(tree, namespace):
        if _is_code(value):
            if value.__module__.split(".")[0] in PACKAGES:
                _follow(value, found)
        elif isinstance(value, (str, int, float, bool, tuple, frozenset)) and not mentioned.startswith("__"):
            found[f"{thing.__module__}.{mentioned}"] = _digest(repr(value))


def _mentions(tree: ast.AST, namespace: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in namespace:
            yield node.id, namespace[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = namespace.get(node.value.id)
            if inspect.ismodule(module) and module.__name__.split(".")[0] in PACKAGES:
                yield f"{node.value.id}.{node.attr}", getattr(module, node.attr, None)


def _is_code(value: Any) -> bool:
    return (inspect.isfunction(value) or inspect.isclass(value)) and hasattr(value, "__module__")


@functools.cache
def _parse(thing: Any) -> ast.AST:
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                node.body = node.body[1:] or [ast.Pass()]
    return tree


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
