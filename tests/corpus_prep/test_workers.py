"""Map work: outputs are complete or absent, never made twice, and the same for every kind of
worker."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from corpus_prep.workers import Workers, map_shards
from tasks.stage import stage
from warehouse.schemas import SAMPLES


@dataclass(frozen=True)
class Piece:
    out: Path
    number: int


def write_square(piece: Piece, settings: dict[str, int]) -> None:
    piece.out.write_text(str(piece.number**2 + settings["add"]))
    if piece.number == settings.get("fails_at"):
        raise ZeroDivisionError(f"no piece {piece.number}")


def write_folder(piece: Piece, settings: None) -> None:
    piece.out.mkdir()
    (piece.out / "part").touch()
    raise ZeroDivisionError


def pieces(folder: Path) -> list[Piece]:
    return [Piece(folder / "out" / f"{number}", number) for number in range(4)]


def test_results_come_in_the_order_of_the_specs(tmp_path):
    found = map_shards(write_square, pieces(tmp_path), {"add": 1})
    assert [path.read_text() for path in found] == ["1", "2", "5", "10"]


def test_what_was_made_before_a_failure_stays_and_nothing_half_made_does(tmp_path):
    with pytest.raises(ZeroDivisionError, match="no piece 2"):
        map_shards(write_square, pieces(tmp_path), {"add": 0, "fails_at": 2})
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0", "1"]
    found = map_shards(write_square, pieces(tmp_path), {"add": 100})
    assert [path.read_text() for path in found] == ["0", "1", "104", "109"]


def test_half_made_folders_go_as_well(tmp_path):
    with pytest.raises(ZeroDivisionError):
        map_shards(write_folder, pieces(tmp_path), None)
    assert list((tmp_path / "out").iterdir()) == []


def test_ray_without_the_extra_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match="extra `cluster`"):
        map_shards(write_square, pieces(tmp_path), {"add": 0}, Workers(kind="ray"))


def test_a_recipe_says_what_the_stage_cost(place):
    @stage(SAMPLES)
    def costly(megabytes):
        assert np.ones(megabytes << 17).sum() > 0
        yield from ()

    small = costly(place, 1, label="small")
    large = costly(place, 400, label="large")
    assert large.recipe["peak_memory_mb"] - small.recipe["peak_memory_mb"] > 300
    assert 0 < large.recipe["cpu_s"] < 10


@pytest.mark.slow
def test_a_failure_in_a_pool_is_raised_here(tmp_path):
    with pytest.raises(ZeroDivisionError, match="no piece 2"):
        map_shards(write_square, pieces(tmp_path), {"add": 0, "fails_at": 2}, Workers(count=2))
    assert not list((tmp_path / "out").glob(".*"))
