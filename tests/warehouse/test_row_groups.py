"""Rows looked up by a column: the right ones, in order, from large tables that are passed over
once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.rows import row
from warehouse import row_groups
from warehouse.row_groups import RowGroups, _remembered
from warehouse.schemas import TABLES
from warehouse.store import Place, Table

# the row groups: three in one file, the last in another
CHUNKS = (("b", "a"), ("c", "a"), ("d",), ("b", "b"))
RECIPE = {"key": "given", "stage": "tests.given", "started_at": 0.0, "seconds": 0.0, "counts": {}}


@pytest.fixture(autouse=True)
def remembering(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every table counts as large, and none is remembered yet."""
    monkeypatch.setattr(row_groups, "LARGE", 0)
    _remembered.cache_clear()
    yield
    _remembered.cache_clear()


def publish(place: Place, chunks: Sequence[Sequence[str]], new_part: int | None = 3) -> Table:
    """Documents with these ids, a row group for each chunk, and a new file before chunk
    `new_part`. Texts count up."""
    with place.store.draft(TABLES["documents"]) as draft:
        number = 0
        for i, chunk in enumerate(chunks):
            if i == new_part:
                draft._close_part()
            draft.write(
                [row("documents", document_id=d, text=str(number + n)) for n, d in enumerate(chunk)]
            )
            number += len(chunk)
        return place.store.publish(draft, place.address("documents"), RECIPE)


def texts(table: Table, *ids: str) -> list[str]:
    return [found["text"] for found in table.rows_with("document_id", ids)]


@pytest.mark.parametrize("large", [0, 1000])
def test_rows_are_found_in_order_wherever_their_ids_repeat(place, monkeypatch, large) -> None:
    monkeypatch.setattr(row_groups, "LARGE", large)
    table = publish(place, CHUNKS)
    assert len(table.parts) == 2
    for _ in range(2):
        assert texts(table, "b") == ["0", "5", "6"]
        assert texts(table, "d", "a", "a") == ["1", "3", "4"]
        assert texts(table, "unknown", "c") == ["2"]
        assert texts(table, "unknown") == [] == texts(table)


def test_only_row_groups_that_hold_a_value_are_named(place) -> None:
    groups = RowGroups.of(publish(place, CHUNKS).paths(), "document_id")
    first, second = groups.paths
    assert list(groups.holding(["a"])) == [(first, [0, 1])]
    assert list(groups.holding(["b", "d"])) == [(first, [0, 2]), (second, [0])]
    assert list(groups.holding(["e"])) == []
    assert groups.hashes.nbytes + groups.groups.nbytes == 12 * 7


def test_values_of_one_hash_cost_a_read_and_are_told_apart(place, monkeypatch) -> None:
    monkeypatch.setattr(row_groups, "hash", len, raising=False)  # of all ids here the same
    table = publish(place, CHUNKS)
    assert [groups for _, groups in RowGroups.of(table.paths(), "document_id").holding(["c"])] == [
        [0, 1, 2],
        [0],
    ]
    assert texts(table, "c") == ["2"]


def test_nulls_and_empty_tables_hold_nothing(place) -> None:
    assert publish(place, CHUNKS).rows_with("title", ["x"]) == []
    assert texts(publish(place.iteration(1), ()), "a") == []


def test_a_table_that_is_rewritten_is_passed_over_again(place) -> None:
    assert texts(publish(place, CHUNKS), "a") == ["1", "3"]
    assert texts(publish(place, [("a",), ("b", "a", "a")]), "a") == ["0", "2", "3"]


def test_threads_that_look_up_at_once_share_one_pass(place) -> None:
    table = publish(place, [[f"{i}-{n}" for n in range(50)] for i in range(20)])
    wanted = [(f"{i}-{n}", 50 * i + n) for i in range(20) for n in (0, 49)]
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda one: texts(table, one[0]), wanted))
    assert found == [[str(number)] for _, number in wanted]
    assert _remembered.cache_info().misses == 1


def test_few_tables_are_remembered(place) -> None:
    for t in range(1, 8):
        assert texts(publish(place.iteration(t), CHUNKS), "c") == ["2"]
    assert _remembered.cache_info().currsize == row_groups.MOST_TABLES
