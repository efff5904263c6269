"""`selfplay new`: copy the worked method as a starting point for your own."""

from __future__ import annotations

import importlib.util
import keyword
import re
import shutil
from pathlib import Path

import click

from flows.runtime.store_root import IN_CHECKOUT, SOURCE

WORKED = "ttrl"
NAME = re.compile(r"[a-z][a-z0-9_]*")
IMPORT = re.compile(r"^from .*?(?:\(\n(?: .*\n)+\)\n|\n)", re.MULTILINE)
IMPORTS = re.compile(f"(?:{IMPORT.pattern})+", re.MULTILINE)


@click.command()
@click.argument("method")
def new(method: str) -> None:
    """Create a small working method to turn into your own.

    It is flows/METHOD in a checkout, and otherwise METHOD in the current folder. It is a copy of
    flows/ttrl: one policy answers questions without labels and learns from agreement with the
    majority.
    """
    if IN_CHECKOUT:
        written = write_method(method, SOURCE)
        flow = f"{method.replace('_', '-')}-iteration"
    else:
        written = write_method_outside(method, Path.cwd())
        flow = f"./{method}"
    for path in written:
        click.echo(path)
    click.echo(f"try it: selfplay run {flow} --set steps=2 --set evaluation.num_tasks=96")


def write_method(method: str, root: Path) -> list[str]:
    """Copy the worked method to `root/flows/METHOD` under its new name; return the files' paths.

    Raises ValueError for a name that is taken or is not a lower-case Python identifier.
    """
    _check_name(method, root / "flows")
    return _copy(method, f"flows.{method}", root / "flows" / method, root)


def write_method_outside(method: str, folder: Path) -> list[str]:
    """Copy the worked method to `folder/METHOD`, a separate package; return the files' paths.

    Raises ValueError for a name that is taken (in the folder, by a method of this project, or by a
    package) or is not a lower-case Python identifier.
    """
    _check_name(method, folder)
    _check_name(method, SOURCE / "flows")
    if importlib.util.find_spec(method) is not None:
        raise ValueError(
            f"{method!r} cannot be a method, since a Python package has the name: give another"
        )
    return _copy(method, method, folder / method, folder)


def _copy(method: str, package: str, folder: Path, root: Path) -> list[str]:
    """Copy the worked method to `folder` as a package; return the files' paths below `root`."""
    source = SOURCE / "flows" / WORKED
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__", "README.md"))
    for path in folder.rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        renamed = text.replace(f"flows.{WORKED}", package).replace(WORKED, method)
        path.write_text(_in_order(renamed), encoding="utf-8")
    return sorted(str(path.relative_to(root)) for path in folder.rglob("*.*"))


def _check_name(method: str, flows: Path) -> None:
    if not NAME.fullmatch(method):
        raise ValueError(
            f"{method!r} cannot be a method: use lower-case letters, digits and _, beginning with a"
            " letter"
        )
    if keyword.iskeyword(method):
        raise ValueError(
            f"{method!r} cannot be a method, since Python reserves the word: give another name"
        )
    folder = flows / method
    for taken in (folder, folder.with_suffix(".py")):  # a folder hides a module of the same name
        if taken.exists():
            raise ValueError(f"{taken} exists: give another name")


def _in_order(text: str) -> str:
    """The text with each block of imports sorted by module, whatever the method's name.

    >>> _in_order("from flows.run import Run\\nfrom flows.mine.config import Config\\n")
    'from flows.mine.config import Config\\nfrom flows.run import Run\\n'
    """

    def ordered(block: re.Match[str]) -> str:
        return "".join(sorted(IMPORT.findall(block[0]), key=str.split))

    return IMPORTS.sub(ordered, text)
