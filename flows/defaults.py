"""Defaults of groups of settings, for a profile or an override that gives only some settings of a group."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def completed(given: Any, default: Any) -> Any:
    """A setting as given; to a group of settings are added those in which its default departs from its class."""
    if not isinstance(given, dict) or not isinstance(default, BaseModel):
        return given
    required = {name: value for name, value in default if type(default).model_fields[name].is_required()}
    plain = type(default)(**required)  # its validators may derive some settings from others
    known = {name: value for name, value in default if name in required or value != getattr(plain, name)}
    return known | {name: completed(value, known.get(name)) for name, value in given.items()}
