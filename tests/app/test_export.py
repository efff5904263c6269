"""`selfplay export`: what `datasets` loads is what the store holds."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from flows.app.command import cli
from tests.support.rows import publish, row
from tests.support.store_to_view import HOSTILE, lay
from warehouse.clean import ROLLOUTS, Removal, remove
from warehouse.publish import write_dataset


def test_a_folder_that_cannot_be_made_is_named(store, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    lay(store)
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli.main, ["export", "mine", "-o", str(tmp_path / "file" / "out")])
    assert result.exit_code == 1 and result.output.startswith(f"Error: {tmp_path}/file/out")
    assert result.output.endswith(": Not a directory\n")


def test_every_table_is_a_configuration_that_datasets_loads(store, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    place = lay(store)
    publish(
        place.iteration(2).phase("training").step(1),
        "answers",
        row("answers", rollout_id="a9", answer="b"),
    )
    counts = write_dataset(store, "mine", tmp_path / "out")
    assert counts["rollouts"] == 4 and counts["answers"] == 3 and "labels" not in counts
    for name, num_rows in counts.items():
        loaded = datasets.load_dataset(
            str(tmp_path / "out"), name, split="train", cache_dir=str(tmp_path / "cache")
        )
        assert loaded.num_rows == num_rows, name
        if name == "advantages":
            assert loaded["components"][:2] == [[{"key": "a plain text", "value": 0.5}]] * 2
    answers = datasets.load_dataset(
        str(tmp_path / "out"), "answers", split="train", cache_dir=str(tmp_path / "cache")
    )
    found = [
        (a["run"], a["iteration"], a["phase"], a["step"], a["rollout_id"], a["answer"])
        for a in answers
    ]
    assert found == [
        ("mine", 1, "training", 1, "a1", "a plain text"),
        ("mine", 1, "training", 1, "a2", None),
        ("mine", 2, "training", 1, "a9", "b"),
    ]


def test_the_card_says_where_rows_come_from_and_what_texts_may_be_used_for(store, tmp_path):
    lay(store)
    publish(
        store.run("mine"),
        "documents",
        row("documents", document_id="d", source="a book", licence="CC BY 4.0"),
    )
    write_dataset(store, "mine", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    header = yaml.safe_load(card.split("---")[1])
    assert {"config_name": "advantages", "data_files": "advantages/*.parquet"} in header["configs"]
    for shown in (
        "some-iteration",
        "| a book | CC BY 4.0 | 1 |",
        "| source | model | 1 | 1 | 0 |",
        "| rollouts | 4 |",
    ):
        assert shown in card, shown


def test_texts_of_the_run_cannot_change_the_card(store, tmp_path):
    lay(store, text=f"{HOSTILE}\n---\n# x | y\n")
    write_dataset(store, "mine", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        "\n# x" not in card
        and "<script" not in card.replace("\\<script", "")
        and card.count("\n---\n") == 1
    )


def test_a_folder_that_holds_something_is_left_alone(store, tmp_path):
    lay(store)
    (tmp_path / "kept").write_text("mine")
    done = CliRunner().invoke(cli.main, ["export", "mine", "-o", str(tmp_path)])
    assert (
        done.exit_code == 1
        and "not empty" in done.output
        and sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["kept"]
    )


def test_a_run_that_there_is_not_is_said(store, tmp_path):
    done = CliRunner().invoke(cli.main, ["export", "nope", "-o", str(tmp_path / "out")])
    assert (
        done.exit_code == 1
        and "there is no run 'nope'" in done.output
        and not Path(tmp_path / "out").exists()
    )


def test_what_was_cleaned_away_is_said_to_be_left_out(store, tmp_path, monkeypatch):
    monkeypatch.setenv("SELFPLAY_STORE", str(store.root))
    lay(store)
    old = [table for table in store.tables("mine") if table.schema.name == "rollouts"]
    remove(store, [Removal(table, ROLLOUTS, table.parts) for table in old])
    said = CliRunner().invoke(cli.main, ["export", "mine", "-o", str(tmp_path / "out")]).output
    assert f"left out: {len(old)} table(s) of rollouts, whose rows `selfplay clean` removed" in said
    assert "as their rows had been removed: " in (tmp_path / "out" / "README.md").read_text()
    said = CliRunner().invoke(cli.main, ["export", "mine", "--transcripts"]).output
    assert (
        said
        == "Error: the rollouts of mine were cleaned away: `selfplay rerun mine rollouts` samples"
        " them again\n"
    )
