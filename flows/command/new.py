"""`selfplay new`: write the README's worked method as a start for your own."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import click

from flows.service.site import SOURCE

WORKED = "ttrl"
BLOCK = re.compile(rf"^`(flows/{WORKED}/[^`]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"[a-z][a-z0-9_]*")
IMPORTS = re.compile(r"(?:^from .*\n)+", re.MULTILINE)


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
        raise ValueError(f"{method!r} cannot be a method: give a letter, then letters, digits, _; all lower-case")
    if keyword.iskeyword(method):
        raise ValueError(f"{method!r} cannot be a method, since Python reserves the word: give another name")
    folder = root / "flows" / method
    for taken in (folder, folder.with_suffix(".py")):  # a folder would hide a module of its name
        if taken.exists():
            raise ValueError(f"{taken} exists: give another name")
    blocks = BLOCK.findall((SOURCE / "README.md").read_text(encoding="utf-8"))
    files = {name.replace(WORKED, method): _in_order(text.replace(WORKED, method)) for name, text in blocks}
    files[f"flows/{method}/__init__.py"] = ""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.removesuffix("\n") if path.suffix == ".jinja" else text, encoding="utf-8")
    return sorted(files)


def _in_order(text: str) -> str:
    """The text with each block of imports sorted by module, whatever the method's name is.

    >>> _in_order("from flows.run import Run\\nfrom flows.mine.config import Config\\n")
    'from flows.mine.config import Config\\nfrom flows.run import Run\\n'
    """
    return IMPORTS.sub(lambda block: "".join(sorted(block[0].splitlines(keepends=True), key=str.split)), text)
