"""A method's defaults for a group of settings, when a profile or an override sets only some of them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def completed(given: Any, default: Any) -> Any:
    """The given value. A group is completed with the values of `default` that differ from its class's own defaults."""
    if not isinstance(given, dict) or not isinstance(default, BaseModel):
        return given
    required = {name: value for name, value in default if type(default).model_fields[name].is_required()}
    plain = type(default)(**required)  # its validators may derive some settings from others
    known = {name: value for name, value in default if name in required or value != getattr(plain, name)}
    return known | {name: completed(value, known.get(name)) for name, value in given.items()}
