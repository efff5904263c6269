"""`selfplay new`: write the README's worked method as a start for your own."""

from __future__ import annotations

import re
from pathlib import Path

import click

from flows.service.site import SOURCE

WORKED = "ttrl"
BLOCK = re.compile(rf"^`(flows/{WORKED}/[^`]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"[a-z][a-z0-9_]*")


@click.command()
@click.argument("method")
def new(method: str) -> None:
    """Create flows/METHOD, a small working method to turn into your own.

    It is the README's worked method under another name: one policy answers questions without labels and learns from
    agreement with the majority.
    """
    for path in write_method(method, SOURCE):
        click.echo(path)
    click.echo(f"try it: selfplay run {method.replace('_', '-')}-iteration --set steps=2 --set evaluation.num_tasks=96")


def write_method(method: str, root: Path) -> list[str]:
    """Write the method's files below `root`; returns their paths. Raises ValueError for a name that is taken or is not
    a lower-case Python identifier."""
    if not NAME.fullmatch(method):
        raise ValueError(f"{method!r} cannot be a method: give lower-case letters, digits and underscores")
    folder = root / "flows" / method
    if folder.exists():
        raise ValueError(f"{folder} exists: give another name")
    blocks = BLOCK.findall((SOURCE / "README.md").read_text(encoding="utf-8"))
    files = {name.replace(WORKED, method): text.replace(WORKED, method) for name, text in blocks}
    files[f"flows/{method}/__init__.py"] = ""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.removesuffix("\n") if path.suffix == ".jinja" else text, encoding="utf-8")
    return sorted(files)
