"""The equation of a reward, filled in with the numbers of one rollout.

A method declares its equations in `equations.toml` next to its rewards, under the name of the
function that makes the rows:

    [solver_rewards]
    source = "eq. 6"
    where = { g = "the rubric score" }

    [[solver_rewards.cases]]
    reward = "settings.rubric_weight * length_factor * g + settings.format_weight * format"

Names are components of the reward; a name with a dot is a setting of the reward's stage. The case
that applies is the first one whose value equals the stored reward and whose `if` condition, if any,
is true. `because` explains in words what the numbers do not show.
"""

from __future__ import annotations

import ast
import math
import operator
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.runtime.store_root import SOURCE

FILE = "equations.toml"
ROUNDING = 1e-6  # tolerance between a stored reward and the value of its equation
FUNCTIONS = {"min": min, "max": max, "exp": math.exp, "abs": abs}
# for each operation: the function that computes it, its symbol, and its precedence
BINARY: dict[type[ast.operator], tuple[Any, str, int]] = {
    ast.Add: (operator.add, " + ", 1),
    ast.Sub: (operator.sub, " − ", 1),
    ast.Mult: (operator.mul, " · ", 2),
    ast.Div: (operator.truediv, " / ", 2),
    ast.Pow: (operator.pow, "^", 4),
}
COMPARED: dict[type[ast.cmpop], Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
TIGHTEST = 5


class UnknownName(ValueError):
    """An equation has a name that the reward lacks, or is not a valid equation."""


@dataclass(frozen=True)
class FilledEquation:
    """An equation in its general form and with one rollout's numbers; its value is the stored
    reward."""

    source: str
    general: str
    numbers: str
    value: float
    because: str
    where: dict[str, str]


def show(
    params: Mapping[str, Any], components: Mapping[str, float], reward: float, folders: list[Path]
) -> FilledEquation | None:
    """The equation of a reward; None if none is declared, or if none gives the stored reward.

    `params` are the parameters of the stage that stored the reward; `folders` are the folders of
    methods outside this project.
    """
    declared = declaration(params, folders)
    if declared is None:
        return None
    values = {**_settings(params.get("arguments") or {}), **components}
    for case in declared.get("cases", []):
        try:
            if "if" in case and not compute(case["if"], values):
                continue
            value = compute(case["reward"], values)
        except (UnknownName, ArithmeticError):
            continue
        if math.isclose(value, reward, abs_tol=ROUNDING):
            text = case["reward"]
            return FilledEquation(
                source=declared.get("source", ""),
                general=write(text),
                numbers=write(text, values),
                value=reward,
                because=case.get("because", ""),
                where={
                    name: says
                    for name, says in declared.get("where", {}).items()
                    if name in names_in(text)
                },
            )
    return None


def declaration(params: Mapping[str, Any], folders: list[Path]) -> dict[str, Any] | None:
    """The entry in `equations.toml` for the reward function in a stage's parameters; None if there
    is none.

    The file is in the folder of the function's method. `folders` are the folders of methods outside
    this project.
    """
    for qualified in _functions(params.get("reward")):
        module, _, name = qualified.rpartition(".")
        folder = _folder(module, folders)
        if folder is not None and (folder / FILE).is_file():
            declared = tomllib.loads((folder / FILE).read_text(encoding="utf-8"))
            if name in declared:
                return declared[name]
    return None


def _folder(module: str, folders: list[Path]) -> Path | None:
    """The folder of a module, in this project or outside it; None if unknown."""
    package = module.split(".")[:-1]
    if package[:1] == ["flows"]:
        return SOURCE.joinpath(*package)
    return next((folder for folder in folders if [folder.name] == package), None)


def _functions(value: Any) -> Iterator[str]:
    """The names of all functions whose code is in a part of a recipe."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key == "code" and isinstance(part, Mapping):
                yield from part
            else:
                yield from _functions(part)


def _settings(value: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """
    >>> _settings({"weights": {"format": 0.1}, "tasks": {"address": "a"}, "weight": 1.0})
    {'weights.format': 0.1, 'tasks.address': 'a', 'settings.weight': 1.0}
    """
    numbers: dict[str, Any] = {}
    for name, part in value.items():
        if isinstance(part, Mapping):
            numbers |= {f"{name}.{key}": item for key, item in part.items()}
        elif not isinstance(part, list):
            numbers[f"settings.{name}"] = part
    return numbers


# ---- expressions: numbers, names, + - * / **, comparisons, and four functions ----


def compute(text: str, values: Mapping[str, Any]) -> Any:
    """The value of an expression whose names, including dotted ones, take their values from
    `values`.

    Raises UnknownName for a name without a value, and for syntax that equations do not allow.

    >>> compute("max(0, share - 2 * alike)", {"share": 0.5, "alike": 1.0})
    0
    """
    return _value(ast.parse(text, mode="eval").body, values)


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            if values.get(name) is None:
                raise UnknownName(name)
            return values[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            return BINARY[type(op)][0](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, values)
        case ast.Call(func=ast.Name(id=name), args=args) if name in FUNCTIONS:
            return FUNCTIONS[name](*[_value(arg, values) for arg in args])
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
            return COMPARED[type(op)](_value(left, values), _value(right, values))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, values) for part in parts)
        case ast.BoolOp(op=ast.Or(), values=parts):
            return any(_value(part, values) for part in parts)
    raise UnknownName(ast.unparse(node))


def names_in(text: str) -> set[str]:
    """The names in an expression, including functions; only the first part of a dotted name.

    Raises SyntaxError if the text is not an expression.
    """
    return {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}


def write(text: str, values: Mapping[str, Any] | None = None) -> str:
    """An expression in readable form, with numbers in place of names if `values` are given.

    >>> write("weights.evidence * (1 - mark) ** 2")
    'evidence weight · (1 − mark)^2'
    >>> write("settings.rubric_weight * g", {"settings.rubric_weight": 1.0, "g": 0.75})
    '1 · 0.75'
    """
    return _written(ast.parse(text, mode="eval").body, values, 0)


def _written(node: ast.expr, values: Mapping[str, Any] | None, outer: int) -> str:
    match node:
        case ast.Constant(value=value):
            return f"{value:.4g}"
        case ast.Name() | ast.Attribute():
            name = ast.unparse(node)
            return _name(name) if values is None else f"{values[name]:.4g}"
        case ast.BinOp(left=left, op=op, right=right):
            _, sign, tight = BINARY[type(op)]
            written = f"{_written(left, values, tight)}{sign}{_written(right, values, tight + 1)}"
            return f"({written})" if tight < outer else written
        case ast.UnaryOp(operand=operand):
            return f"−{_written(operand, values, TIGHTEST)}"
        case ast.Call(func=ast.Name(id=name), args=args):
            return f"{name}({', '.join(_written(arg, values, 0) for arg in args)})"
    raise UnknownName(ast.unparse(node))


def _name(name: str) -> str:
    """
    >>> _name("settings.rubric_weight"), _name("weights.evidence"), _name("length_factor")
    ('rubric weight', 'evidence weight', 'length factor')
    """
    group, _, last = name.rpartition(".")
    suffix = " weight" if group == "weights" else ""
    return f"{last.replace('_', ' ')}{suffix}"
