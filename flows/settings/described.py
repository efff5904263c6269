"""The settings of a flow, and what each is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined


@dataclass(frozen=True)
class Setting:
    """A setting by its dotted name, as `--set` takes it.

    `value` is the profile's value or else the default; `UNSET` if there is neither. `choices` are
    the values that the setting, or each member of a list, may have; () if they are not listed.
    """

    name: str
    value: Any
    description: str | None
    choices: tuple[Any, ...] = ()


UNSET = PydanticUndefined


def settings_of(model: type[BaseModel], given: Any = None, prefix: str = "") -> Iterator[Setting]:
    """Yield every single setting of a configuration class, those of a group after one another.

    `given` is a configuration whose values are shown; None shows the class's defaults. An optional
    group that is left out is first yielded as one setting without a value; so is a list of groups,
    whose members' settings are named `list[].setting`.
    """
    for name, field in model.model_fields.items():
        value = UNSET if field.is_required() else field.default
        if given is not None:
            value = getattr(given, name)
        description = description_of(model, name)
        group = _group(field.annotation)
        member = _member(field.annotation)
        if group is None:
            yield Setting(prefix + name, value, description, _choices(field.annotation))
        if member is not None:
            yield from settings_of(member, None, f"{prefix}{name}[].")
        if group is None:
            continue
        if value is None:
            yield Setting(prefix + name, None, description or _summary(group))
        inside = value if isinstance(value, group) else None
        yield from settings_of(type(inside) if inside else group, inside, f"{prefix}{name}.")


def description_of(model: type[BaseModel], name: str) -> str | None:
    """What a setting is for; inherited by a class that only changes the setting's default."""
    for base in model.__mro__:
        field = getattr(base, "model_fields", {}).get(name)
        if field is not None and field.description:
            return field.description
    return None


def _group(annotation: Any) -> type[BaseModel] | None:
    """The class of a group of settings: G in `G` or `G | None`; None for a single setting."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return next(filter(_is_group, kinds), None)


def _member(annotation: Any) -> type[BaseModel] | None:
    """The class of a list's members: G in `tuple[G, ...]`; None for any other setting."""
    if get_origin(annotation) is not tuple:
        return None
    return next(filter(_is_group, get_args(annotation)), None)


def _choices(annotation: Any) -> tuple[Any, ...]:
    """The values that a setting, or each member of a list, may have; () if they are not listed.

    >>> _choices(Literal["a", "b"] | None), _choices(tuple[Literal["a", "b"], ...])
    (('a', 'b', None), ('a', 'b'))
    >>> _choices(tuple[str, ...] | Literal["all"])
    ()
    """
    if annotation is NoneType:
        return (None,)
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return parts
    if get_origin(annotation) not in (Union, UnionType, tuple):
        return ()
    choices = [_choices(part) for part in parts if part is not Ellipsis]
    return sum(choices, ()) if all(choices) else ()


def _is_group(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _summary(group: type[BaseModel]) -> str | None:
    return (group.__doc__ or "").split("\n\n")[0] or None
