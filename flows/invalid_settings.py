"""Error messages for invalid settings, in terms of what the user typed."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file. Raises ValueError with the file and line of a syntax error."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{path} is not valid TOML: {problem}") from None


def explain(model: type[BaseModel], name: str, problem: ValidationError) -> str:
    """A line for every setting of profile `name` that is wrong: what was given, and what is allowed."""
    lines = []
    for error in problem.errors():
        where = ".".join(str(part) for part in error["loc"])
        line = f"{where or 'config'}: {error['msg'].removeprefix('Value error, ')}{_given(error)}"
        if error["type"] == "extra_forbidden":
            line = f"{where}: there is no such setting; {_choices(model, error['loc'])}"
        lines.append(line)
    return error_text(name, lines)


def error_text(name: str, lines: list[str]) -> str:
    return "\n  ".join([f"profile {name!r} with these settings is not valid:", *lines])


def misread(given: Any, read: Any, where: str = "") -> Iterator[str]:
    """Yield values that pydantic accepts as numbers but nobody means: true for 1, text, and NaN or infinity, which pass
    every comparison or none.

    >>> list(misread({"steps": True, "shares": {"1": float("inf")}}, {"steps": 1, "shares": {1: float("inf")}}))
    ['steps: must be a number, not true', 'shares.1: must be a finite number, not inf']
    """
    if isinstance(read, dict):
        named = {str(key): value for key, value in given.items()} if isinstance(given, dict) else {}
        for key, value in read.items():
            yield from misread(named.get(str(key)), value, f"{where}.{key}".lstrip("."))
    elif isinstance(read, (list, tuple)):
        known = given if isinstance(given, (list, tuple)) else ()
        for i, value in enumerate(read):
            yield from misread(known[i] if i < len(known) else None, value, f"{where}.{i}")
    elif isinstance(given, (bool, str)) and isinstance(read, (int, float)) and not isinstance(read, bool):
        yield f"{where}: must be a number, not {json.dumps(given)}"
    elif isinstance(read, float) and not math.isfinite(read):
        yield f"{where}: must be a finite number, not {read}"


def _given(error: ErrorDetails) -> str:
    """The value given, if the message does not contain it and it is a single value."""
    given = error["input"]
    told = error["type"] in ("missing", "value_error") or isinstance(given, (dict, BaseModel))
    return "" if told else f", not {given!r}"


def _choices(model: Any, location: tuple[int | str, ...]) -> str:
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        model = next(a for a in (annotation, *get_args(annotation)) if hasattr(a, "model_fields"))  # X in `X | None`
    return f"settings here are {', '.join(sorted(model.model_fields))}"
