"""Change one token of a file in every way that a slip might: comparisons, operators, numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

COMPARE = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
COMPARE |= {ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is}
OPERATE = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
}
OPERATE |= {
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
CALLS = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
}
SQL = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "=": "<>",
    "<>": "=",
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
}
SQL |= {
    "and": "or",
    "or": "and",
    "min": "max",
    "max": "min",
    "is null": "is not null",
    "is not null": "is null",
}
SQL |= {
    "asc": "desc",
    "desc": "asc",
    "true": "false",
    "false": "true",
    "left join": "join",
    "not": "",
}
TOKEN = re.compile(
    r"\b(?:is not null|is null|left join|and|or|not|min|max|asc|desc|true|false)\b"
    r"|<>|[<>]=?|[=+/]|(?<=[\w)] )[-*]|(?<!e-)\b\d+\b"
)
# negating a condition keeps a partition the same
SILENT = re.compile(r"--.*|'[^'\n]*'|partition by[^;]*?(?=order by)")
TESTED = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
Point = tuple[ast.expr | ast.stmt, str, Callable[[], None]]  # node, its text, and the change


@dataclass(frozen=True)
class Mutant:
    """A file's text after one change."""

    line: int
    change: str
    text: str


def mutants(path: Path) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    yield from _of_sql(text) if path.suffix == ".sql" else _of_python(text)


def _of_sql(text: str) -> Iterator[Mutant]:
    code = SILENT.sub(lambda part: " " * len(part[0]), text)
    for token in TOKEN.finditer(code):
        new = str(int(token[0]) + 1) if token[0].isdigit() else SQL[token[0].lower()]
        line = text.count("\n", 0, token.start()) + 1
        yield Mutant(
            line,
            f"{token[0]} -> {new or 'nothing'}",
            text[: token.start()] + new + text[token.end() :],
        )


def _of_python(text: str) -> Iterator[Mutant]:
    for number, _ in enumerate(_points(ast.parse(text))):
        tree = ast.parse(text)
        node, shown, change = next(point for i, point in enumerate(_points(tree)) if i == number)
        before = ast.unparse(node)[:80]
        change()
        yield Mutant(node.lineno, f"{shown} in {before!r}", ast.unparse(tree))


def _points(tree: ast.Module) -> Iterator[Point]:
    for node in _code(tree):
        match node:
            case ast.Compare(ops=[op]) if type(op) in COMPARE:
                yield _swap(
                    node,
                    "ops",
                    [COMPARE[type(op)]()],
                    f"{_name(op)} -> {COMPARE[type(op)].__name__}",
                )
            case ast.BinOp(op=op) | ast.BoolOp(op=op) | ast.AugAssign(op=op) if type(op) in OPERATE:
                yield _swap(
                    node, "op", OPERATE[type(op)](), f"{_name(op)} -> {OPERATE[type(op)].__name__}"
                )
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield _swap(node, "operand", ast.UnaryOp(ast.Not(), operand), "without not")
            case ast.Constant(value=bool() as value):
                yield _swap(node, "value", not value, f"{value} -> {not value}")
            case ast.Constant(value=int() | float() as value):
                yield _swap(node, "value", value + 1, f"{value} -> {value + 1}")
            case ast.Name(id=name) if name in CALLS:
                yield _swap(node, "id", CALLS[name], f"{name} -> {CALLS[name]}")
            case ast.Attribute(attr=name) if name in CALLS:
                yield _swap(node, "attr", CALLS[name], f"{name} -> {CALLS[name]}")
            case ast.If(test=test) | ast.IfExp(test=test) if isinstance(test, TESTED):
                yield _swap(node, "test", ast.UnaryOp(ast.Not(), test), "with not")


def _swap(node: ast.expr | ast.stmt, field: str, new: object, shown: str) -> Point:
    return node, shown, lambda: setattr(node, field, new)


def _name(node: ast.AST) -> str:
    return type(node).__name__


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of code that runs: no annotations, decorators or f-strings.

    Messages, assertions and warnings are left out, too.
    """
    if isinstance(node, (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom)):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: an assertion
        return
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("warning", "info")
    ):
        return
    yield node
    for field, value in ast.iter_fields(node):
        if field not in ("annotation", "returns", "decorator_list", "type_params"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _code(child)
