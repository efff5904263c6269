"""A model's hash follows its bytes, though these are read only once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warehouse import hashes
from warehouse.draft import hash_folder
from warehouse.hashes import hash_once, remembered_hash


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.safetensors", "sub/b.json"):
        (folder / name).write_text(name)
        os.utime(folder / name, (1, 1))
    return folder


@pytest.mark.parametrize("content", ["[]", "5", "null", '{"PATH": 5}', '{"PATH": [1]}', "{"])
def test_what_is_no_memory_of_hashes_is_not_believed(
    model: Path, tmp_path: Path, content: str
) -> None:
    memory = tmp_path / "hashes.json"
    memory.write_text(content.replace("PATH", str(model / "a.safetensors")))
    assert remembered_hash(model, memory) == hash_folder(model)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read."""
    names: list[str] = []
    before = hashes.hash_file
    monkeypatch.setattr(hashes, "hash_file", lambda path: names.append(path.name) or before(path))
    return names


def test_unchanged_files_are_read_once(model: Path, tmp_path: Path, read: list[str]) -> None:
    memory = tmp_path / "hashes.json"
    assert remembered_hash(model, memory) == hash_folder(model) == remembered_hash(model, memory)
    assert read == ["a.safetensors", "b.json"]


@pytest.mark.parametrize("changed", ["other bytes", "a.safetensorX"])
def test_a_changed_file_is_read_again(
    model: Path, tmp_path: Path, read: list[str], changed: str
) -> None:
    memory = tmp_path / "hashes.json"
    remembered_hash(model, memory)
    (model / "a.safetensors").write_text(changed)  # of the same size or not
    os.utime(model / "a.safetensors", (2, 2))
    assert remembered_hash(model, memory) == hash_folder(model)
    assert read == ["a.safetensors", "b.json", "a.safetensors"]


def test_a_file_that_was_written_just_now_is_not_trusted(
    model: Path, tmp_path: Path, read: list[str]
) -> None:
    (model / "a.safetensors").touch()
    for _ in range(2):
        remembered_hash(model, tmp_path / "hashes.json")
    assert read == ["a.safetensors", "b.json", "a.safetensors"]


def test_a_file_that_is_new_gone_or_renamed_changes_the_hash(model: Path, tmp_path: Path) -> None:
    memory, seen = tmp_path / "hashes.json", set()
    for change in (
        lambda: None,
        lambda: (model / "c").touch(),
        lambda: (model / "c").rename(model / "d"),
    ):
        change()
        seen.add(remembered_hash(model, memory))
        assert remembered_hash(model, memory) == hash_folder(model)
    assert len(seen) == 3


@pytest.mark.parametrize("told", ["{", "", '{"x": 1}'])
def test_a_damaged_memory_or_none_is_no_obstacle(model: Path, tmp_path: Path, told: str) -> None:
    (tmp_path / "hashes.json").write_text(told)
    assert remembered_hash(model, tmp_path / "hashes.json") == hash_folder(model)
    assert remembered_hash(model, tmp_path / "no" / "hashes.json") == hash_folder(model)


def test_a_process_reads_a_file_once_until_it_changes(model: Path, read: list[str]) -> None:
    assert hash_once(model) == hash_folder(model) == hash_once(model)
    (model / "a.safetensors").write_text("other bytes")
    os.utime(model / "a.safetensors", (2, 2))
    assert hash_once(model) == hash_folder(model)
    assert read == ["a.safetensors", "b.json", "a.safetensors"]
