import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.rows import publish, row, samples
from warehouse.catalogue import Catalogue
from warehouse.draft import FILES, PART, RECIPE
from warehouse.schemas import ANSWERS, GATES, REWARDS, SAMPLES
from warehouse.store import Store, Unwritable
from warehouse.table import Damaged

PROJECT = Path(__file__).resolve().parents[2]

FULL = """
import resource, signal, sys
from tasks.stage import stage
from tests.support.rows import row
from warehouse.schemas import SAMPLES
from warehouse.store import Store

@stage(SAMPLES)
def make(*, count):
    for i in range(count):
        yield row("samples", sample_id=str(i * 7919))

store = Store(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
make(store.run("r"), count=2)
make(store.run("s"), count=20_000)
"""


def test_a_disk_that_takes_no_more_is_said_and_nothing_is_half_there(store, tmp_path):
    """A limit on file sizes refuses writes like a full disk."""
    script = tmp_path / "full.py"
    script.write_text(FULL)
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, script, store.root],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"Unwritable: the store {store.root}" in done.stderr
    assert "File too large" in done.stderr and "then repeat the command" in done.stderr
    assert [t.address for t in store.tables()] == ["r/samples"]
    assert store.get("r/samples").num_rows == 2
    assert os.listdir(store.root / "tmp") == os.listdir(store.root / "locks") == []


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (errno.EACCES, "/corpus/part.jsonl"),
        (errno.EIO, "/corpus/part.jsonl"),
        (errno.ENOSPC, "/elsewhere/cache"),
    ],
)
def test_an_error_of_a_file_that_a_stage_reads_is_not_called_one_of_the_store(store, number, name):
    problem = OSError(number, os.strerror(number), name)
    with pytest.raises(OSError) as raised, store.draft(SAMPLES):
        raise problem
    assert raised.value is problem


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (errno.EACCES, "runs/r"),
        (errno.EACCES, ".."),  # the store's folder cannot be created
        (errno.EIO, "tmp/x"),
        (errno.EROFS, "tmp/x"),
        (errno.ENOSPC, None),  # from writing to an open file
        (errno.EIO, None),
    ],
)
def test_a_refused_write_in_the_store_is_explained(store, number, name):
    path = name and os.path.normpath(store.root / name)
    with (
        pytest.raises(Unwritable, match=rf"the store {store.root} .*{os.strerror(number)}"),
        store.draft(SAMPLES),
    ):
        raise OSError(number, os.strerror(number), path)


def test_a_refused_write_that_a_library_in_rust_reports_is_explained(store):
    with (
        pytest.raises(Unwritable, match=rf"the store {store.root} .*os error 27"),
        store.draft(SAMPLES),
    ):
        raise RuntimeError("I/O error: File too large (os error 27)")


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EACCES])
def test_a_file_that_a_library_in_rust_cannot_read_is_not_called_one_of_the_store(store, number):
    problem = RuntimeError(f"{os.strerror(number)} (os error {number})")
    with pytest.raises(RuntimeError) as raised, store.draft(SAMPLES):
        raise problem
    assert raised.value is problem


def test_a_lock_that_cannot_be_written_is_explained(store, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("warehouse.locks.json.dumps", refuse)
    with pytest.raises(Unwritable, match=f"the store {store.root} "), store.lock("r/samples"):
        pass


def test_a_store_that_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        Unwritable, match=r"file/store is not a folder .* \(Not a directory\): set SELFPLAY_STORE"
    ):
        Store(tmp_path / "file" / "store")


def test_an_address_says_run_iteration_phase_step_and_label(store):
    place = store.run("r").iteration(3).phase("solver").step(7)
    assert place.address("rollouts", "grade") == "r/iter-003/solver/step-007/rollouts.grade"
    assert store.run("r").address("documents") == "r/documents"


def test_rows_come_back_as_they_were_written(store):
    table = publish(store.run("r"), "samples", *samples("a", "b"))
    assert table.rows() == samples("a", "b")
    assert (table.num_rows, table.schema) == (2, SAMPLES)
    assert store.get("r/samples").rows() == table.rows()
    assert [t.address for t in store.tables()] == ["r/samples"]


def test_a_table_without_rows_is_a_table(store):
    assert publish(store.run("r"), "samples").rows() == []


def test_nothing_is_visible_before_it_is_published(store):
    with store.draft(SAMPLES) as draft:
        draft.write(samples("a"))
        assert store.find("r/samples") is None
        assert list(store.tables()) == []
        assert os.listdir(store.root / "runs") == []


def test_a_draft_that_fails_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError), store.draft(SAMPLES) as draft:
        draft.write(samples("a"))
        _ = 1 / 0
    assert os.listdir(store.root / "tmp") == []
    with pytest.raises(ValueError, match="nothing is published at r/samples"):
        store.get("r/samples")


def test_publishing_again_replaces_the_whole_table(store):
    publish(store.run("r"), "samples", *samples("a", "b"))
    publish(store.run("r"), "samples", *samples("c"))
    assert store.get("r/samples").rows() == samples("c")
    assert os.listdir(store.root / "tmp") == []


def test_equal_rows_have_equal_hashes_wherever_they_stand(store):
    one, same = (publish(store.run(run), "samples", *samples("a")) for run in ("r", "s"))
    assert one.content_hash == same.content_hash
    assert one.content_hash != publish(store.run("r"), "samples", *samples("b")).content_hash


def test_files_beside_the_rows_are_part_of_the_content(store):
    hashes = []
    for text in ("weights", "weights", "other"):
        with store.draft(SAMPLES) as draft:
            draft.write(samples("a"))
            (draft.files / "model").mkdir()
            (draft.files / "model" / "w.bin").write_text(text)
            hashes.append(store.publish(draft, "r/samples", {"key": "k"}).content_hash)
    assert hashes[0] == hashes[1] != hashes[2]
    assert (store.get("r/samples").files / "model" / "w.bin").read_text() == "other"


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data[:-1] if how == "cut short" else data)


@pytest.mark.parametrize("how", ["changed by one bit", "cut short", "deleted"])
def test_damaged_rows_are_found_when_they_are_read(store, how):
    publish(store.run("r"), "samples", *samples("a"))
    damage(store.folder("r/samples") / PART, how)
    table = store.get("r/samples")
    assert list(table.problems())
    with pytest.raises(
        Damaged, match=rf"r/samples/{PART} is not what was published .* repeat `selfplay run`"
    ):
        table.rows()


@pytest.mark.parametrize("how", ["changed by one bit", "cut short", "deleted"])
def test_damaged_files_are_found(store, how):
    with store.draft(SAMPLES) as draft:
        (draft.files / "w.bin").write_text("weights")
        table = store.publish(draft, "r/samples", {"key": "k"})
    assert not list(table.problems())
    damage(store.folder("r/samples") / FILES / "w.bin", how)
    assert list(table.problems())


@pytest.mark.parametrize(
    "change",
    [{"num_rows": 2}, {"seconds": 1.5}, {"new": None}, {"table": "unknown"}, {"contents": []}],
    ids=str,
)
def test_a_table_whose_recipe_says_something_else_is_made_again(store, change):
    """No hash of a file covers `seconds`, and `table` decides how the rows are read."""
    place = store.run("r")
    publish(place, "samples", *samples("a"))
    path = store.folder("r/samples") / RECIPE
    said = json.loads(path.read_text())
    path.with_suffix(".new").write_text(json.dumps({**said, **change}))
    path.with_suffix(".new").replace(path)
    assert store.find("r/samples") is None
    assert list(store.without_recipe("r")) == ["r/samples"]
    assert Catalogue(store).tables("r") == []
    assert publish(place, "samples", *samples("a")).rows() == samples("a")


@pytest.mark.parametrize("name", ["started_at", "recipe_hash", "seconds", "stage"])
def test_a_table_whose_recipe_lacks_a_part_is_made_again(store, name):
    publish(store.run("r"), "samples", *samples("a"))
    path = store.folder("r/samples") / RECIPE
    said = json.loads(path.read_text())
    del said[name]
    path.with_suffix(".new").write_text(json.dumps(said))
    path.with_suffix(".new").replace(path)
    assert store.find("r/samples") is None


def test_a_recipe_that_is_amended_is_sealed_again(store):
    publish(store.run("r"), "samples", *samples("a"))
    said = store.get("r/samples").recipe
    store.amend("r/samples", {**said, "seconds": 2.5})  # as `selfplay clean` does
    assert store.get("r/samples").recipe["seconds"] == 2.5


def test_one_flipped_bit_of_a_recipe_is_noticed_wherever_it_is(store):
    """Every 7th bit: they fall on every letter of a byte in turn."""
    publish(store.run("r"), "samples", *samples("a"))
    path = store.folder("r/samples") / RECIPE
    whole = path.read_bytes()
    meaning = json.loads(whole)
    num_noticed = 0
    for bit in range(0, 8 * len(whole), 7):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.with_suffix(".new").write_bytes(changed)
        path.with_suffix(".new").replace(path)
        table = store.find("r/samples")
        num_noticed += table is None
        assert table is None or table.recipe == meaning, "white space has no meaning"
    assert num_noticed > len(whole)


def test_a_column_that_the_schema_lacks_is_refused_by_name(store):
    with (
        pytest.raises(ValueError, match="table samples has no column colour"),
        store.draft(SAMPLES) as draft,
    ):
        draft.write([{**row("samples"), "colour": "red"}])


def test_a_null_is_refused_where_the_schema_gives_it_no_meaning(store):
    with (
        pytest.raises(ValueError, match="table gates: kind must not be null"),
        store.draft(GATES) as draft,
    ):
        draft.write([row("gates", passed=None), row("gates", kind=None)])


@pytest.mark.parametrize("total", [float("nan"), float("inf"), "high"])
def test_a_reward_that_is_no_finite_number_is_refused(store, total):
    """A group with one NaN would have no advantage but NaN."""
    with (
        pytest.raises(ValueError, match="rewards: reward must be a finite number in"),
        store.draft(REWARDS) as draft,
    ):
        draft.write([row("rewards"), row("rewards", reward=None), row("rewards", reward=total)])


def test_a_value_of_another_type_is_refused_by_its_column(store):
    with (
        pytest.raises(ValueError, match="table answers: answer: Expected bytes, got"),
        store.draft(ANSWERS) as draft,
    ):
        draft.write([row("answers"), row("answers", answer=12)])


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../evil", "a/b", "/tmp/a", "_empty", "-a", "a\n", "a~b", "a" * 101, "\u202ea"],
)
def test_a_name_that_leads_elsewhere_is_no_run(store, name):
    with pytest.raises(ValueError, match="a run cannot be called"):
        store.run(name)
    with pytest.raises(ValueError, match="a run cannot be called"):
        list(store.tables(name))


@pytest.mark.parametrize("left", [b"", b'{"table": "sam', b"{}", b"[]", None])
def test_a_table_whose_recipe_is_lost_or_cut_off_was_never_made_and_hides_no_other(store, left):
    for run in "rs":
        publish(store.run(run), "samples", *samples("a"))
    recipe = store.folder("r/samples") / "recipe.json"
    recipe.unlink() if left is None else recipe.write_bytes(left)
    assert store.find("r/samples") is None
    assert [t.address for t in store.tables()] == ["s/samples"]
    assert list(store.without_recipe("r")) == ["r/samples"]
    assert publish(store.run("r"), "samples", *samples("b")).rows() == samples("b")
    assert list(store.without_recipe("r")) == list(store.without_recipe("s")) == []


def test_what_is_kept_beside_a_run_is_whole_or_named_as_damaged(store):
    assert store.kept("r", "request.json") is None
    store.keep("r", "request.json", {"corpus": "\u00e9"})
    assert store.kept("r", "request.json") == {"corpus": "\u00e9"}
    for damaged in ('{"corp', "", "[]", "7"):
        (store.folder("r") / "request.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"runs/r/request.json is damaged .* remove it"):
            store.kept("r", "request.json")
