"""What is wrong with settings, in the words of someone who typed them."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails


def explain(model: type[BaseModel], name: str, problem: ValidationError) -> str:
    """A line for every setting of profile `name` that is wrong: what was given, and what is allowed."""
    lines = [f"profile {name!r} with these settings is not valid:"]
    for error in problem.errors():
        where = ".".join(str(part) for part in error["loc"])
        line = f"  {where or 'config'}: {error['msg'].removeprefix('Value error, ')}{_given(error)}"
        if error["type"] == "extra_forbidden":
            line = f"  {where}: there is no such setting; {_choices(model, error['loc'])}"
        lines.append(line)
    return "\n".join(lines)


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
