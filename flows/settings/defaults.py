"""A method's defaults for a group of settings that a profile sets only in part."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def completed(value: Any, default: Any) -> Any:
    """The value of a setting whose default is `default`.

    A group is completed with those values of `default` that differ from its class's defaults.
    """
    if not isinstance(value, dict) or not isinstance(default, BaseModel):
        return value
    group = type(default)
    required = {name: part for name, part in default if group.model_fields[name].is_required()}
    # an instance, because validators may derive some settings from others
    plain = group.model_validate(required)
    departures = {
        name: part for name, part in default if name in required or part != getattr(plain, name)
    }
    return departures | {
        name: completed(part, departures.get(name)) for name, part in value.items()
    }
