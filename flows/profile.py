"""Profiles: TOML files that hold only departures from a configuration's defaults, and settings given on top; and the
settings that every method has."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

Config = TypeVar("Config", bound=BaseModel)
MAX_BITS = 63  # what Parquet holds; a larger number among its runs' parameters, and Prefect's server lists none of them


class Settings(BaseModel):
    """A part of a configuration: what it does not know is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class MachineSettings(Settings):
    """What a run takes of machines and disks, whatever its method."""

    num_engines: int = Field(default=1, ge=1, description="engines side by side, one process each")
    trainer_processes: int = Field(
        default=1, ge=1, description="processes of an update, started by torchrun when more than one"
    )
    keep_checkpoints: Literal["all", "last"] = Field(
        default="all",
        description='"last": an update frees the optimizer state before it, and weights but the last of an iteration',
    )


def names(folder: Path) -> list[str]:
    """Profiles of a folder; files whose name begins with `_` are there to be extended."""
    return sorted(p.stem for p in folder.glob("*.toml") if not p.stem.startswith("_"))


def load(model: type[Config], folder: Path, name: str, overrides: dict[str, Any] | None = None) -> Config:
    """The configuration of a profile with `a.b=value` overrides.

    A profile may name another it `extends`. Raises ValueError naming the profile or the key that is wrong and what
    is allowed.
    """
    values = _read(folder, name)
    for path, value in (overrides or {}).items():
        if _has_huge_number(value):
            raise ValueError(f"{path}: {value} is too large a number")
        *parents, last = path.split(".")
        target = values
        for parent in parents:
            target = target.setdefault(parent, {})
            if not isinstance(target, dict):
                raise ValueError(f"{path}: {parent} is a single setting, there is nothing inside it")
        target[last] = value
    try:
        return model.model_validate(values)
    except ValidationError as problem:
        raise ValueError(_explain(model, name, problem)) from None


def _read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.toml"
    if not path.exists():
        raise ValueError(f"no profile {name!r}; there are {', '.join(names(folder))}")
    values = tomllib.loads(path.read_text(encoding="utf-8"))
    parent = values.pop("extends", None)
    return _merge(_read(folder, parent), values) if parent else values


def _merge(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _explain(model: type[BaseModel], name: str, problem: ValidationError) -> str:
    lines = [f"profile {name!r} with these settings is not valid:"]
    for error in problem.errors():
        where = ".".join(str(part) for part in error["loc"])
        line = f"  {where or 'config'}: {error['msg'].removeprefix('Value error, ')}{_given(error)}"
        if error["type"] == "extra_forbidden":
            line = f"  {where}: there is no such setting; {_choices(model, error['loc'])}"
        lines.append(line)
    return "\n".join(lines)


def _has_huge_number(value: Any) -> bool:
    if isinstance(value, (list, dict)):
        return any(map(_has_huge_number, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and value.bit_length() > MAX_BITS


def _given(error: ErrorDetails) -> str:
    """What was given, where the message does not say it and it is a single value."""
    given = error["input"]
    told = error["type"] in ("missing", "value_error") or isinstance(given, (dict, BaseModel))
    return "" if told else f", not {given!r}"


def _choices(model: Any, location: tuple[int | str, ...]) -> str:
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        model = next(a for a in (annotation, *get_args(annotation)) if hasattr(a, "model_fields"))  # of `X | None`, X
    return f"settings here are {', '.join(sorted(model.model_fields))}"
