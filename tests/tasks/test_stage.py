import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel

from tasks.engines.fleet import Fleet
from tasks.models.engine import EngineConfig
from tasks.models.yarn import Yarn
from tasks.stage import rows_of, stage
from tests.support.rows import publish, row
from warehouse import status
from warehouse.draft import PART, Draft
from warehouse.schemas import GATES, ROLLOUTS, SAMPLES, TABLES
from warehouse.store import Store, Table


class Size(BaseModel):
    width: int = 1
    height: int = 1


@stage(SAMPLES, tools=("calls",))
def draw(
    source: Table | None = None, *, count: int = 2, size: Size | None = None, calls: list[str]
) -> Iterator[dict]:
    calls.append("draw")
    for i in range(count):
        yield row("samples", sample_id=str(i))


@stage(SAMPLES)
def fail_midway(*, count: int) -> Iterator[dict]:
    for i in range(count):
        yield row("samples", sample_id=str(i))
    raise ValueError("the engine died")


@stage(GATES)
def judge(*, broken: int) -> Iterator[dict]:
    for i in range(4):
        yield row("gates", task_id=str(i), malformed="no score element" if i < broken else None)


@stage(SAMPLES)
def with_files(*, draft: Draft, address: str) -> Iterator[dict]:
    (draft.files / "address.txt").write_text(address)
    yield row("samples")


@pytest.fixture
def said(caplog):
    """What the stages have logged since the last call."""
    caplog.set_level(logging.INFO, "selfplay")

    def take() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    return take


def test_a_stage_publishes_its_rows_with_the_recipe_beside_them(place):
    table = draw(place, count=2, calls=[])
    assert table.address == "r/iter-001/solver/step-002/samples"
    assert [r["sample_id"] for r in table.rows()] == ["0", "1"]
    recipe = place.store.get(table.address).recipe
    assert recipe["params"] == {"source": None, "count": 2, "size": None}
    assert recipe["stage"] == f"{__name__}.draw"
    assert f"{__name__}.draw" in recipe["code"]


def test_what_is_fresh_is_not_made_again(place, said):
    calls = []
    first, again = (draw(place, calls=calls) for _ in range(2))
    assert calls == ["draw"]
    assert again.rows() == first.rows()
    assert said()[-1] == "r/iter-001/solver/step-002/samples: fresh, 2 rows"


def test_what_another_process_made_meanwhile_is_not_made_again(place, monkeypatch):
    """The other process has the lock first: it makes the table while this one waits."""
    calls = []
    lock = Store.lock

    @contextlib.contextmanager
    def waiting(store, address):
        monkeypatch.setattr(Store, "lock", lock)
        draw(place, calls=calls)
        with lock(store, address):
            yield

    monkeypatch.setattr(Store, "lock", waiting)
    assert draw(place, calls=calls).num_rows == 2
    assert calls == ["draw"]


def test_tools_are_no_part_of_the_recipe(place):
    table = draw(place, calls=[])
    draw(place, calls=(calls := ["another tool"]))
    assert calls == ["another tool"]
    assert "calls" not in table.recipe["params"]


class Calls(list):
    """A tool that changes the rows by its precision."""

    precision = "float32"

    def recipe_identity(self) -> dict[str, str]:
        return {"precision": self.precision}


def test_what_a_tool_states_of_itself_is_part_of_the_recipe(place, said):
    assert draw(place, calls=Calls()).recipe["params"]["calls"] == {"precision": "float32"}
    assert draw(place, calls=(again := Calls())).num_rows == 2
    assert again == []
    other = Calls()
    other.precision = "bfloat16"
    said()
    draw(place, calls=other)
    assert other == ["draw"]
    assert "made with calls.precision float32, now bfloat16" in said()[0]


def test_engines_state_what_changes_their_replies(tmp_path):
    def stated(**settings: Any) -> dict[str, Any]:
        config = EngineConfig(**{"model": "m", "max_model_len": 64, **settings})
        return Fleet(config, 1, tmp_path).recipe_identity()

    assert stated() == stated(max_num_seqs=1, gpu_memory_utilization=0.5, place="ray")
    assert stated() == stated(max_model_len=128)
    assert stated() != stated(dtype="bfloat16")
    assert stated() != stated(yarn=Yarn(factor=2.0))


def test_a_changed_parameter_remakes_the_table_and_is_named(place, said):
    draw(place, count=8, calls=[])
    said()
    assert draw(place, count=4, calls=[]).num_rows == 4
    assert "stale, rebuilding: made with count 8, now 4" in said()[0]


def test_a_changed_field_of_a_setting_remakes_the_table(place, said):
    draw(place, size=Size(width=1), calls=[])
    draw(place, size=Size(width=2), calls=(calls := []))
    assert calls == ["draw"]
    assert any("made with size" in line for line in said())


def test_a_changed_input_remakes_the_table_and_is_named(place, said):
    source = publish(place, "documents", row("documents", document_id="a"))
    draw(place, source, calls=[])
    source = publish(place, "documents", row("documents", document_id="b"))
    said()
    draw(place, source, calls=(calls := []))
    assert calls == ["draw"]
    assert "documents changed" in said()[0]


def test_an_input_that_was_remade_alike_leaves_the_table_fresh(place):
    for _ in range(2):
        source = publish(place, "documents", row("documents", document_id="a"))
        draw(place, source, calls=(calls := []))
    assert calls == []


MODULE = '''
from tasks.stage import stage
from tests.support.rows import row
from warehouse.schemas import SAMPLES


@stage(SAMPLES)
def make():
    """Yield a row."""
    yield row("samples", sample_id=name(1))  # one


def name(n):
    return f"sample {n}"
'''


@pytest.mark.parametrize(
    ("old", "new", "logged", "sample_id"),
    [
        ('"""Yield a row."""', '"""Yield one row."""', "fresh, 1 rows", "sample 1"),
        ("  # one", "", "fresh, 1 rows", "sample 1"),
        ('f"sample {n}"', 'f"row {n}"', "stale, rebuilding: code of madeup.name", "row 1"),
        ("name(1)", "name(2)", "stale, rebuilding: code of madeup.make", "sample 2"),
    ],
    ids=["docstring", "comment", "helper", "stage"],
)
def test_edited_code_remakes_the_table_and_is_named_but_words_about_it_do_not(
    place, said, tmp_path, monkeypatch, old, new, logged, sample_id
):
    monkeypatch.setattr("warehouse.code.PACKAGES", ("madeup",))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    for text in (MODULE, MODULE.replace(old, new)):
        (tmp_path / "madeup.py").write_text(text)
        sys.modules.pop("madeup", None)
        importlib.invalidate_caches()
        said()
        table = importlib.import_module("madeup").make(place)
    sys.modules.pop("madeup")
    assert logged in said()[0]
    assert table.rows()[0]["sample_id"] == sample_id


def test_a_stage_that_fails_midway_leaves_the_store_as_it_was(place):
    before = publish(place, "samples", row("samples", sample_id="old"))
    with pytest.raises(ValueError, match="the engine died"):
        fail_midway(place, count=2000)  # by then more than one chunk of rows is written
    assert place.store.get(before.address).rows() == before.rows()
    assert os.listdir(place.store.root / "tmp") == os.listdir(place.store.root / "locks") == []


@pytest.mark.parametrize("damage", ["truncate", "delete"])
def test_damaged_rows_are_remade(place, said, damage):
    table = draw(place, calls=[])
    part = table.folder / PART
    part.unlink() if damage == "delete" else part.write_bytes(part.read_bytes()[:-9])
    said()
    remade = draw(place, calls=(calls := []))
    assert calls == ["draw"] and remade.num_rows == 2 and not list(remade.problems())
    assert {"truncate": "has", "delete": "is lost"}[damage] in said()[0]


def test_damaged_files_beside_the_rows_are_remade(place):
    table = with_files(place)
    (table.files / "address.txt").write_text("elsewhere")
    assert (
        with_files(place).files / "address.txt"
    ).read_text() == "r/iter-001/solver/step-002/samples"


def test_a_stage_that_another_process_makes_is_refused(place):
    with (
        place.store.lock(place.address("samples")),
        pytest.raises(RuntimeError, match="is being built by"),
    ):
        draw(place, calls=[])


def test_labels_tell_tables_of_one_place_apart(place):
    one = draw(place, calls=[], label="one")
    two = draw(place, calls=[], label="two", count=3)
    assert (one.address, two.address) == (
        place.address("samples", "one"),
        place.address("samples", "two"),
    )
    assert [len(rows_of(t)) for t in (one, two, (one, two))] == [2, 3, 5]


def test_reasons_of_unused_rows_are_counted_in_the_recipe(place, said):
    assert judge(place, broken=3).recipe["counts"] == {"no score element": 3}
    assert said()[-1].endswith(", 3 no score element")
    assert judge(place, broken=0).recipe["counts"] == {}


def test_a_stage_of_millions_yields_arrow_tables_and_whole_parquet_files(place, tmp_path):
    rows = [
        row("screenings", document_id=str(i), kept=i % 2 == 0, reason=None if i % 2 == 0 else "odd")
        for i in range(6)
    ]
    schema = TABLES["screenings"].arrow
    pq.write_table(pa.Table.from_pylist(rows[4:], schema=schema), tmp_path / "whole.parquet")

    @stage(TABLES["screenings"])
    def screen():
        yield rows[0]
        yield pa.Table.from_pylist(rows[1:4], schema=schema)
        yield tmp_path / "whole.parquet"

    table = screen(place)
    assert table.rows() == rows and table.num_rows == 6
    assert (
        [path.name for path in table.paths()]
        == list(table.parts)
        == ["part-00000.parquet", "part-00001.parquet"]
    )
    assert table.recipe["counts"] == {"odd": 3}


def test_an_arrow_table_with_a_forbidden_null_is_refused_by_column(place):
    @stage(TABLES["screenings"])
    def screen():
        yield pa.table(
            {
                "document_id": pa.array([None], pa.string()),
                "kept": [True],
                "reason": ["x"],
                "instead": ["y"],
            }
        )

    with pytest.raises(ValueError, match="table screenings: document_id must not be null"):
        screen(place)


@stage(ROLLOUTS, tools=("engines",))
def sample(*, tokens: tuple[int, ...], engines: Any) -> Iterator[dict]:
    for i, count in enumerate(tokens):
        yield row("rollouts", rollout_id=str(i), num_sampled_tokens=count)


def test_what_a_stage_costs_stands_beside_its_rows(place):
    """Tokens are those of its rows; GPU-seconds are its seconds times the GPUs of its tools, 0
    on CPUs."""
    six_gpus, cpu = (Fleet(engine(d), n, place.store.root) for d, n in (("cuda", 6), ("cpu", 2)))
    on_gpus = sample(place, tokens=(5, 7), engines=six_gpus, label="gpus").recipe
    on_cpu = sample(place, tokens=(), engines=cpu, label="cpu").recipe
    assert on_gpus["tokens"] == 12 and on_gpus["gpu_s"] == pytest.approx(
        6 * on_gpus["seconds"], abs=0.004
    )
    assert on_cpu["gpu_s"] == 0 and not on_cpu["tokens"]
    assert draw(place, calls=[]).recipe["gpu_s"] == 0
    shown = {found["address"].partition(".")[2]: found for found in status.stages(place.store, "r")}
    assert (shown["gpus"]["tokens"], shown["gpus"]["gpu_s"]) == (12, on_gpus["gpu_s"])


def engine(device: Any) -> EngineConfig:
    return EngineConfig(model="m", max_model_len=8, device=device)
