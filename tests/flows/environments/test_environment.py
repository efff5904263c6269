"""A played run becomes an environment: its kept tasks, their prompts, and the run's own scorer."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from datasets import load_dataset

from flows.app.command import cli
from flows.environments.environment import documents_behind, with_splits
from flows.environments.write import package_of, write_environment
from tests.flows.environments.faulty import faulty_reader
from tests.flows.environments.test_loaders import outside
from tests.flows.spice.test_played import SETTINGS, Roles
from tests.support.rows import row
from tests.support.scripted_play import Script, any_text_model, perform


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run of SPICE over three documents, of which two get a kept question; its store."""
    from flows.spice.flow import spice_iteration

    folder = tmp_path_factory.mktemp("played")
    rows = [
        {"id": f"d{i}", "text": f"In d{i} seven and five make twelve.", "licence": "CC0-1.0"}
        for i in range(3)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        perform(Script(Roles().say), patch)
        settings = {**SETTINGS, "models.base": model, "engine.model": model}
        spice_iteration("micro", "r", settings, str(folder / "corpus.jsonl"))
    return folder / "store"


def exported(played, monkeypatch, folder, *options: str):
    monkeypatch.setenv("SELFPLAY_STORE", str(played))
    arguments = ["export", "r", "-o", str(folder), *options]
    return CliRunner().invoke(cli.main, arguments)


def lines(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_kept_tasks_leave_with_the_prompts_that_they_were_answered_with(
    played, monkeypatch, tmp_path
):
    done = exported(played, monkeypatch, tmp_path / "out", "--tasks", "trl")
    assert done.exit_code == 0, done.output
    rows = [*lines(tmp_path / "out/train.jsonl"), *lines(tmp_path / "out/test.jsonl")]
    asked = [row["prompt"][-1]["content"].splitlines()[0] for row in rows]
    # of d0 three questions were valid and one was kept; d2 has none
    assert sorted(asked) == [
        "What is 7 + 5, asked of d0?",
        "What is 7 + 5, asked of d1?",
    ]
    tasks = [json.loads(row["task"]) for row in rows]
    assert {(task["reference"], task["answer_type"]) for task in tasks} == {("12", "Integer")}


def test_the_scorer_is_the_one_that_the_run_used(played, monkeypatch, tmp_path):
    exported(played, monkeypatch, tmp_path / "out", "--tasks", "verifiers")
    text = (tmp_path / "out/selfplay_r/scoring.py").read_text()
    assert "READ = last_box" in text and "COMPARE = agree" in text
    assert "inside \\\\boxed{}" in text  # the prompt's own words are no answer


def test_the_card_has_gates_lineage_and_the_licence_of_the_sources(played, monkeypatch, tmp_path):
    exported(played, monkeypatch, tmp_path / "out", "--tasks", "openrlhf")
    card = (tmp_path / "out/README.md").read_text()
    assert "| CC0-1.0 | 3 |" in card
    assert "invalid question" in card and "another question of its document is drawn" in card
    assert "| reasoner | reasoner |" in card
    assert "No random sample of the kept tasks was audited" in card


def test_a_folder_that_is_not_empty_is_left_as_it_is(environment, tmp_path):
    (tmp_path / "mine").write_text("")
    with pytest.raises(ValueError, match="is not empty"):
        write_environment(environment, "trl", tmp_path, "card")


def test_formats_exclude_other_exports(played, monkeypatch, tmp_path):
    done = exported(played, monkeypatch, tmp_path / "o", "--tasks", "trl", "--transcripts")
    assert done.exit_code == 1
    assert "exclude each other" in done.output


def test_tasks_that_share_a_document_are_in_one_split():
    rows = [{"task_id": f"t{i}", "documents": [f"d{i}"]} for i in range(400)]
    rows += [{"task_id": "both", "documents": ["d1", "d399"]}]
    split_of = {row["task_id"]: row["split"] for row in with_splits(rows)}
    assert split_of["t1"] == split_of["t399"] == split_of["both"]
    # a tenth, of 400 documents: 40, give or take three standard deviations of 6
    assert 22 <= sum(split == "test" for split in split_of.values()) <= 58


def test_a_document_and_the_evidence_of_its_task_are_in_one_split():
    task = row("tasks", document_id="d1", evidence=["d2", "d1"])
    assert documents_behind(task) == ["d1", "d2"]
    assert documents_behind(row("tasks", document_id="d1")) == ["d1"]
    assert documents_behind(row("tasks", evidence=["d2"])) == ["d2"]
    assert documents_behind(row("tasks")) == []


def test_splits_do_not_change_when_tasks_are_added():
    rows = [{"task_id": f"t{i}", "documents": [f"d{i}"]} for i in range(50)]
    before = {row["task_id"]: row["split"] for row in with_splits(rows[:30])}
    after = {row["task_id"]: row["split"] for row in with_splits(rows)}
    assert before == {task: after[task] for task in before}


def test_the_training_script_needs_no_test_tasks(environment, tmp_path, monkeypatch):
    tasks = [{**task, "split": "train"} for task in environment.tasks]
    write_environment(replace(environment, tasks=tasks), "trl", tmp_path / "out", "card")
    monkeypatch.chdir(tmp_path / "out")
    loading = re.search(r"load_dataset\(.*\)", Path("train.py").read_text())
    assert loading
    cached = partial(load_dataset, cache_dir=str(tmp_path / "cache"))
    assert eval(loading[0], {"load_dataset": cached}).num_rows == len(tasks)


def test_a_fault_of_the_reader_costs_the_reply_and_stops_no_training(environment, tmp_path):
    """As in the run: one reply has no answer, with the reason, and scores 0."""
    faulty = replace(environment.scorer, read=faulty_reader)
    write_environment(replace(environment, scorer=faulty), "trl", tmp_path / "out", "card")
    script = """
import json
import re
from selfplay_made_up.scoring import score
result = score({}, "a reply")
print(json.dumps([result.value, result.reason]))
"""
    found = json.loads(outside(sys.executable, tmp_path / "out", script))
    assert found == [0.0, "reader failed: KeyError"]


def test_the_card_says_where_cut_off_replies_are_scored(played, monkeypatch, tmp_path):
    for kind, says_so in (("openrlhf", True), ("verifiers", False)):
        exported(played, monkeypatch, tmp_path / kind, "--tasks", kind)
        card = (tmp_path / kind / "README.md").read_text()
        assert ("which replies were cut off" in card) == says_so


def test_a_package_is_named_for_its_run():
    assert package_of("SPICE-micro.2") == "selfplay_spice_micro_2"


def test_the_search_leaves_with_its_index_and_finds_what_the_run_found(tmp_path):
    """In an interpreter without the project, on an index of three documents."""
    from corpus_prep.read.documents import DocumentRow
    from corpus_prep.search.index import build_index, load_index
    from flows.environments.environment import TOOL_EXAMPLE, Environment, Scorer, Search, with_tool
    from tasks.readers.boxed import last_box
    from tasks.scorers.equality import agree

    rows = [
        DocumentRow(f"d{i}", f"Title {i}", f"The {word} river </answer> is {i} km long.")
        for i, word in enumerate(("red", "blue", "red red"))
    ]
    index = build_index(rows, tmp_path / "index")
    example = "<search>words</search>"
    search = Search(index, documents_per_query=2, result_tokens=15, example=example)
    messages = [{"role": "user", "content": f"Search like this: {example}. How long?"}]
    task = {
        "task_id": "t",
        "text": "How long?",
        "reference": "2",
        "document_id": "d2",
        "messages": with_tool(messages, search),
        "split": "train",
    }
    scorer = Scorer(last_box, whole=True, instructions=(), compare=agree)
    environment = Environment("searching", [task], scorer, search=search, searches=True)
    write_environment(environment, "trl", tmp_path / "out", "card")
    [line] = lines(tmp_path / "out/train.jsonl")
    assert line["prompt"][0]["content"] == f"Search like this: {TOOL_EXAMPLE}. How long?"
    script = "from reward import search\nimport json\nprint(json.dumps(search('red river')))"
    found = json.loads(outside(sys.executable, tmp_path / "out", script))
    # both are cut to 15 x 4 letters; the one that has the word twice comes first, 7 + 41 letters
    [ours] = load_index(index).search(["red river"], 2)
    assert [hit.title for hit in ours] == ["Title 2", "Title 0"]
    assert found == "[1] Title 2\nThe red red river ‹/answer› is 2 km long.\n[2] Title 0\nThe r"
    with pytest.raises(ValueError, match="not written for openrlhf"):
        write_environment(environment, "openrlhf", tmp_path / "other", "card")
