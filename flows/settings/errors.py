"""Error messages for invalid settings, in terms of what the user typed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

NO_NUMBER = ("int_type", "float_type")
SAYS_WHAT_WAS_GIVEN = ("missing", "value_error")


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, which may begin with a byte order mark.

    Raises ValueError naming the file, and the line of a syntax error.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as problem:
        raise ValueError(f"{path} is not valid TOML: {problem}") from None
    except UnicodeDecodeError as problem:
        raise ValueError(f"{path} is not UTF-8 text: {problem}") from None


def explain(model: type[BaseModel], name: str, problem: ValidationError) -> str:
    """The message for settings of profile `name` that are invalid for `model`: one line per wrong
    setting."""
    lines = [f"profile {name!r} with these settings is not valid:", *error_lines(model, problem)]
    return "\n  ".join(lines)


def error_lines(model: type[BaseModel], problem: ValidationError) -> list[str]:
    """One line per wrong setting of `model`: its dotted name, what was given, what is allowed."""
    lines = []
    for error in problem.errors():
        setting = ".".join(str(part) for part in error["loc"])
        if error["type"] == "extra_forbidden":
            lines.append(f"{setting}: there is no such setting{_choices(model, error['loc'])}")
        else:
            lines.append(f"{setting or 'config'}: {_message(error)}")
    return lines


def _message(error: ErrorDetails) -> str:
    """Pydantic's message, with the value added if it is a single value that the message lacks."""
    value = error["input"]
    if error["type"] in NO_NUMBER and _looks_like_a_number(value):
        return f"must be a number, not {json.dumps(value)}"
    if error["type"] == "bool_type":
        return f"must be true or false, not {json.dumps(value, default=str)}"
    if error["type"] == "finite_number":
        return f"must be a finite number, not {value}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] in SAYS_WHAT_WAS_GIVEN or isinstance(value, (dict, BaseModel)):
        return message
    return f"{message}, not {value!r}"


def _looks_like_a_number(value: Any) -> bool:
    """Whether a value is `true`, `false`, or a number in quotation marks."""
    if not isinstance(value, str):
        return isinstance(value, bool)
    try:
        float(value)
    except ValueError:
        return False
    return True


def _choices(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """A list of the valid settings at a location in `model`; "" if they are not known."""
    for part in location[:-1]:
        field = model.model_fields.get(str(part))
        if field is None:  # a list index or a key
            continue
        inner = next(_models_in(field.annotation), None)
        if inner is None:
            return ""
        model = inner
    return f"; settings here are {', '.join(sorted(model.model_fields))}"


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that occur in a type: X in `list[X] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
