"""`selfplay settings`: what can be set, with its value and its purpose."""

from __future__ import annotations

import json
from typing import Any

import click
from pydantic import BaseModel

from flows.app.command.parameters import find_deployment, find_flow, find_method_config, load_config
from flows.app.command.screen import print_wrapped
from flows.app.command.tables import visible


@click.command()
@click.argument("flow")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--profile", help="Show the values of this profile.  [default: the method's own]")
@click.option("--corpus", metavar="PATH", help="Documents, for a profile that needs them.")
def settings(flow: str, words: tuple[str, ...], profile: str | None, corpus: str | None) -> None:
    """List the settings of FLOW, as `--set` takes them: value, purpose and allowed values.

    With words, lists only settings whose name, purpose or allowed values contain all of them. A
    value `?` has to be supplied.
    """
    from flows.settings.described import settings_of

    flow = find_flow(flow)
    cfg = None
    if profile is not None:
        parameters: dict[str, Any] = {"profile": profile, "overrides": {}, "corpus": corpus}
        cfg = load_config(find_deployment(flow, profile), parameters)
    lines = [
        (
            f"{setting.name} = {_written(setting.value)}",
            setting.description or "",
            f"allowed: {', '.join(map(_written, setting.choices))}" if setting.choices else "",
        )
        for setting in settings_of(find_method_config(flow), cfg)
    ]
    chosen = [
        line for line in lines if all(word.lower() in " ".join(line).lower() for word in words)
    ]
    if not chosen:
        raise ValueError(f"{flow} has no setting about {' '.join(words)}")
    for assignment, *about in chosen:
        click.echo(visible(assignment))
        for text in filter(None, about):
            print_wrapped("    ", visible(text))


def _written(value: Any) -> str:
    """A value as `--set` takes it; `?` if there is none."""
    from flows.settings.described import UNSET

    if value is UNSET:
        return "?"
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """A group of settings, or a collection, in a form that JSON can represent."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return list(value)
