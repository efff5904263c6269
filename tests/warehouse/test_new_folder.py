"""An export's folder is whole, or as it was before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warehouse.new_folder import PARTIAL, new_folder


def write(folder: Path) -> None:
    with new_folder(folder) as partial:
        (partial / "inside").mkdir()
        (partial / "inside" / "rows").write_text("1")
        assert not (folder / "inside").exists()


def fail(folder: Path) -> None:
    with new_folder(folder) as partial:
        (partial / "rows").write_text("1")
        raise KeyboardInterrupt


def test_the_content_is_moved_when_the_block_has_ended(tmp_path: Path) -> None:
    write(tmp_path / "a" / "out")
    assert os.listdir(tmp_path / "a" / "out") == ["inside"]
    assert (tmp_path / "a" / "out" / "inside" / "rows").read_text() == "1"


def test_after_ctrl_c_there_is_no_folder_and_the_export_can_be_repeated(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        fail(folder)
    assert not folder.exists()
    write(folder)


def test_an_empty_folder_stays_after_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    inode = folder.stat().st_ino
    with pytest.raises(KeyboardInterrupt):
        fail(folder)
    assert list(folder.iterdir()) == []
    write(folder)
    assert folder.stat().st_ino == inode, "it may be a mount point, or a shell's current directory"


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / "out" / PARTIAL / "rows"
    left.parent.mkdir(parents=True)
    left.write_text("0")
    write(tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["inside"]


def test_a_link_to_a_folder_that_does_not_exist_is_followed(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "out")
    write(link)
    assert os.listdir(tmp_path / "elsewhere" / "out") == ["inside"]


def test_a_folder_with_files_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ValueError, match="is not empty"):
        write(tmp_path)
    assert os.listdir(tmp_path) == ["notes"]
