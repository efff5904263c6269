"""The version of a store's schema: which stores can be read, and the errors for the others."""

import json
from pathlib import Path
from typing import Annotated, TypedDict

import pytest

from tasks.stage import Rows, stage
from tests.support.rows import publish, row, samples
from warehouse.draft import RECIPE
from warehouse.query import query
from warehouse.schemas import SAMPLES
from warehouse.store import Store
from warehouse.version import RECORD, VERSION, IncompatibleStore, columns, incompatible

SNAPSHOT = Path(__file__).parents[1] / "data" / "schema.json"
ID = Annotated[str, "identity"]
SIZE = Annotated[int, "its size"]
MAYBE_SIZE = Annotated[int | None, "its size", "not known"]
MAYBE_NAME = Annotated[str | None, "its name", "it has none"]


def define_things(new_table, **hints):
    new_table(
        "things", TypedDict("Thing", {"thing_id": ID, **hints}), grain="a thing", key="thing_id"
    )


def made_store(root: Path, new_table) -> Store:
    """A store of things with a size and nothing else."""
    define_things(new_table, size=SIZE)
    store = Store(root)
    publish(
        store.run("r"),
        "things",
        row("things", thing_id="a", size=3),
        row("things", thing_id="b", size=4),
    )
    return store


def record(store: Store) -> dict:
    return json.loads((store.root / RECORD).read_text())


def test_columns_change_with_the_version_or_stay_readable():
    """If this fails, `warehouse.version` says whether VERSION must be raised; then rewrite the file
    with
    `python -m warehouse.version > tests/data/schema.json`."""
    stored = json.loads(SNAPSHOT.read_text())
    if stored["version"] == VERSION:
        assert list(incompatible(stored["tables"], columns())) == [], "raise VERSION"
    assert {"version": VERSION, "tables": columns()} == stored, "write tests/data/schema.json again"


def test_a_new_store_says_what_it_is_written_with(tmp_path):
    store = Store(tmp_path)
    assert (record(store)["version"], record(store)["tables"]) == (VERSION, columns())
    assert record(store)["tables"]["gates"]["passed"] == "bool or null"
    publish(store.run("r"), "samples", *samples("a"))
    assert Store(tmp_path).get("r/samples").rows() == samples("a")


def test_rows_from_before_a_column_was_added_have_null_in_it(tmp_path, new_table):
    made_store(tmp_path, new_table)
    define_things(new_table, size=MAYBE_SIZE, name=MAYBE_NAME)
    store = Store(tmp_path)
    table, first = store.get("r/things"), {"thing_id": "a", "size": 3, "name": None}
    assert table.rows() == [first, {"thing_id": "b", "size": 4, "name": None}]
    assert table.rows_with("thing_id", ["a"]) == [first]
    (batch,) = table.batches(["thing_id", "name"])
    assert batch.to_pylist() == [{"thing_id": "a", "name": None}, {"thing_id": "b", "name": None}]
    assert query(store.root, "select name, size from things order by size") == [
        {"name": None, "size": 3},
        {"name": None, "size": 4},
    ]
    assert record(store)["tables"]["things"] == {
        "thing_id": "string",
        "size": "int32 or null",
        "name": "string or null",
    }


@pytest.mark.parametrize(
    ("hints", "says"),
    [
        ({}, "things.size is gone"),
        ({"size": Annotated[float, "its size"]}, "things.size was int32, is double"),
        (
            {"size": SIZE, "colour": Annotated[str, "its colour"]},
            "things.colour is new and never null",
        ),
    ],
)
def test_a_store_whose_rows_lack_what_this_code_needs_is_refused(tmp_path, new_table, hints, says):
    made_store(tmp_path, new_table)
    define_things(new_table, **hints)
    with pytest.raises(
        IncompatibleStore,
        match=rf"{says}\). Read it with the code that wrote it, or .*SELFPLAY_STORE",
    ):
        Store(tmp_path)


def test_a_column_that_was_null_somewhere_cannot_become_one_that_never_is(tmp_path, new_table):
    define_things(new_table, size=MAYBE_SIZE)
    Store(tmp_path)
    define_things(new_table, size=SIZE)
    with pytest.raises(IncompatibleStore, match=r"things\.size was int32 or null, is int32"):
        Store(tmp_path)


def test_a_store_from_before_versions_is_refused_with_the_way_out(tmp_path, new_table):
    store = made_store(tmp_path, new_table)
    (store.root / RECORD).unlink()
    with pytest.raises(IncompatibleStore) as refused:
        Store(tmp_path)
    assert (
        str(refused.value)
        == f"the store {tmp_path} was written with version 1 of the schema, this code reads version"
        f" {VERSION}. Read it with the code that wrote it, or start another store: set"
        f" SELFPLAY_STORE, or move this one away (mv {tmp_path} {tmp_path}-v1)"
    )


def test_a_store_of_a_later_version_asks_for_later_code(tmp_path):
    store = Store(tmp_path)
    (store.root / RECORD).write_text(json.dumps({**record(store), "version": VERSION + 1}))
    with pytest.raises(
        IncompatibleStore, match=rf"version {VERSION + 1} of the schema.* Update selfplay"
    ):
        Store(tmp_path)


def test_a_table_that_this_process_has_not_imported_stays_on_record(
    tmp_path, new_table, monkeypatch
):
    store = made_store(tmp_path, new_table)
    monkeypatch.undo()
    Store(tmp_path)
    assert record(store)["tables"]["things"] == {"thing_id": "string", "size": "int32"}


@stage(SAMPLES)
def drawn() -> Rows:
    yield row("samples", sample_id="a")


@pytest.mark.parametrize(
    "content", [None, "", "{}", "[]", "5", '{"version": "3"}', '{"version": 3}']
)
def test_a_record_that_is_lost_or_damaged_is_written_again_if_all_tables_are_ours(
    tmp_path, content
):
    store = Store(tmp_path)
    drawn(store.run("r"))
    if content is None:
        (store.root / RECORD).unlink()
    else:
        (store.root / RECORD).write_text(content)
    assert [r["sample_id"] for r in Store(tmp_path).get("r/samples").rows()] == ["a"]
    assert record(store)["tables"] == columns()


@pytest.mark.parametrize("damage", ["columns", "table", "text"])
def test_a_damaged_record_beside_a_table_of_unknown_columns_is_refused(tmp_path, damage):
    store = Store(tmp_path)
    drawn(store.run("r"))
    path = store.folder("r/samples") / RECIPE
    text = json.dumps({**json.loads(path.read_text()), damage: "of another time"})
    path.write_text("{" if damage == "text" else text)
    (store.root / RECORD).write_text("[]")
    with pytest.raises(IncompatibleStore, match="was written with version 1 of the schema"):
        Store(tmp_path)
