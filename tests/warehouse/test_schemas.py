import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, TypedDict

import pyarrow as pa
import pytest

from tests.support.rows import publish, row, turn
from warehouse.query import query
from warehouse.schemas import (
    TABLES,
    Advantage,
    Answer,
    Flag,
    Hash,
    Long,
    ReplyColumns,
    Reward,
    WhyMalformed,
    define,
)

PROJECT = Path(__file__).resolve().parents[2]


class Part(TypedDict):
    name: str
    sizes: list[Long]


class Thing(TypedDict):
    thing_id: Annotated[str, "identity"]
    done: Annotated[bool, "whether it is"]
    count: Annotated[int, "how many"]
    bytes: Annotated[Long | None, "its size", "not known"]
    digest: Annotated[Hash, "of it"]
    mask: Annotated[list[Flag], "which"]
    shares: Annotated[dict[str, float] | None, "by name", "it has none"]
    parts: Annotated[list[Part], "what it is made of"]


class Guess(TypedDict):
    guess_id: Annotated[str, "identity"]
    said_in: Annotated[str | None, "the rollout that guessed", "a rule did"]
    number: Annotated[int | None, "what was guessed", "nothing could be read"]
    malformed: WhyMalformed


def test_the_arrow_schema_follows_from_the_annotations_and_their_notes(new_table):
    found = new_table("things", Thing, grain="a thing", key="thing_id digest").arrow
    sizes = pa.struct([("name", pa.string()), ("sizes", pa.list_(pa.int64()))])
    expected = [
        ("thing_id", pa.string(), False, "identity", ""),
        ("done", pa.bool_(), False, "whether it is", ""),
        ("count", pa.int32(), False, "how many", ""),
        ("bytes", pa.int64(), True, "its size", "not known"),
        ("digest", pa.uint64(), False, "of it", ""),
        ("mask", pa.list_(pa.int8()), False, "which", ""),
        ("shares", pa.map_(pa.string(), pa.float64()), True, "by name", "it has none"),
        ("parts", pa.list_(sizes), False, "what it is made of", ""),
    ]
    assert [(f.name, f.type, f.nullable) for f in found] == [e[:3] for e in expected]
    assert [tuple(f.metadata.values()) for f in found] == [
        (e[3].encode(), e[4].encode()) for e in expected
    ]
    assert found.metadata == {b"table": b"things", b"grain": b"a thing", b"key": b"thing_id,digest"}


def test_a_table_that_extends_another_has_its_columns_first():
    assert TABLES["advantages"].columns[:-1] == TABLES["rewards"].columns
    assert TABLES["advantages"].columns[-1].name == "advantage"


@pytest.mark.parametrize(
    ("hint", "says"),
    [
        (str, "column bad.c has 0 notes, it needs 1: what it means"),
        (
            Annotated[str | None, "meaning"],
            "column bad.c has 1 notes, it needs 2: what it means, and what a null means",
        ),
        (Annotated[str, "meaning", "never"], "column bad.c has 2 notes, it needs 1"),
        (Annotated[complex, "meaning"], "column bad.c: no Arrow type stands for .*complex"),
    ],
)
def test_a_column_without_its_notes_or_an_arrow_type_is_refused(hint, says):
    with pytest.raises(TypeError, match=says):
        define("bad", TypedDict("Bad", {"c": hint}), grain="a row", key="c")
    assert "bad" not in TABLES


def test_a_key_that_is_no_column_is_refused():
    with pytest.raises(TypeError, match="table bad has no column name"):
        define("bad", Thing, grain="a row", key="thing_id name")


def test_a_table_that_may_be_malformed_has_to_name_the_reply():
    with pytest.raises(
        TypeError, match="table bad has a column malformed: say by `parsed` which rollout"
    ):
        define("bad", Guess, grain="a guess", key="guess_id")
    with pytest.raises(TypeError, match="table bad has no column rollout_id"):
        define(
            "bad",
            Guess,
            grain="a guess",
            key="guess_id",
            parsed=ReplyColumns("rollout_id", "number"),
        )


def test_a_new_table_of_parsed_replies_is_seen_by_the_view_of_rollouts(new_table, store):
    new_table(
        "guesses", Guess, grain="a guess", key="guess_id", parsed=ReplyColumns("said_in", "number")
    )
    place = store.run("r")
    publish(
        place,
        "rollouts",
        *[row("rollouts", rollout_id=i, turns=[turn("x")]) for i in ("a", "b", "c")],
    )
    read = [("1", "a", 7, None), ("2", "b", None, "no number"), ("3", None, 9, None)]
    publish(
        place,
        "guesses",
        *[dict(zip(Guess.__annotations__, values, strict=True)) for values in read],
    )
    found = query(
        store.root, "select rollout_id, parsed, malformed from rollouts order by rollout_id"
    )
    assert [tuple(r.values()) for r in found] == [
        ("a", "7", None),
        ("b", None, "no number"),
        ("c", None, None),
    ]


def test_malformed_choices_are_not_counted_as_read(store):
    place = store.run("r")
    publish(
        place, "rollouts", *[row("rollouts", rollout_id=i, turns=[turn("x")]) for i in ("a", "b")]
    )
    unread = row("choices", rollout_id="b", malformed="no type named")
    publish(place, "choices", row("choices", rollout_id="a", task_type="integer"), unread)
    found = query(store.root, "select parsed, malformed from rollouts order by rollout_id")
    assert [tuple(r.values()) for r in found] == [("integer", None), (None, "no type named")]


def test_rows_are_typed_by_the_columns_that_they_have(store):
    table = publish(store.run("r"), "advantages", row("advantages", rollout_id="a", advantage=0.5))
    assert table.rows(Advantage) == table.rows(Reward) == table.rows()
    with pytest.raises(
        TypeError, match=r"r/advantages has no column answer.*: its rows are no Answer"
    ):
        table.rows(Answer)


WRONG = """
from warehouse.schemas import Task
from warehouse.table import Table

def texts(tasks: Table) -> list[str | None]:
    return [row["txet"] for row in tasks.rows(Task)]

def length(task: Task) -> int:
    return len(task["text"])
"""


@pytest.mark.needs("pyright")
def test_the_type_checker_sees_the_columns_and_their_nulls(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    settings = {
        "include": [str(tmp_path)],
        "extraPaths": [str(PROJECT)],
        "typeCheckingMode": "standard",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "-p",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [
        (e["range"]["start"]["line"], e["message"])
        for e in json.loads(done.stdout)["generalDiagnostics"]
    ]
    assert [line for line, _ in found] == [5, 8]
    assert '"txet" is not a defined key in "Task"' in found[0][1]
    assert "None" in found[1][1]
