"""A folder for an export, written whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PARTIAL = ".partial"


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder to write to; its contents are moved into `folder` when the block ends.

    After an error or Ctrl-C, `folder` is as it was before. The next export to the same folder
    removes what a killed process left there.

    Raises ValueError if `folder` is not empty.
    """
    folder = folder.resolve()  # a link to a folder that does not exist yet is followed
    existed = folder.exists()
    if existed and any(entry.name != PARTIAL for entry in folder.iterdir()):
        raise ValueError(f"{folder} is not empty: name another folder with -o")
    partial = folder / PARTIAL
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        for entry in list(partial.iterdir()):
            entry.rename(folder / entry.name)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not existed and not any(folder.iterdir()):
            folder.rmdir()
