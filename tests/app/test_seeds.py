"""Seed questions of several data sets, from rows in each set's published format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.app.seeds import Source, draw, read_sources

SEEDS = Path("flows/mae/seeds.toml")
# two rows of each, as in the training split; the second is the first with another question
ROWS = {
    "gsm8k": {"question": "How many clips?", "answer": "48/2 = <<48/2=24>>24 clips.\n#### 72"},
    "commonsenseqa": {
        "id": "075e",
        "question": "Where would you find a fox?",
        "question_concept": "fox",
        "choices": {"label": ["A", "B"], "text": ["hen house", "forest"]},
        "answerKey": "B",
    },
    "boolq": {"question": "is a fox a dog", "answer": True, "passage": "Foxes are canids."},
    "hellaswag": {
        "ctx": "A man kneels. He",
        "endings": ["stands.", "flies."],
        "label": "0",
        "split": "train",
    },
    "math": {
        "problem": "What is $1+1$?",
        "level": "Level 1",
        "type": "Algebra",
        "solution": "It is $\\boxed{2}$.",
    },
    "mbpp": {"task_id": 601, "text": "Write a function.", "code": "def f(): pass", "test_list": []},
    "mmlu": {"question": "What is DNA?", "subject": "", "choices": ["acid", "base"], "answer": 0},
    "openbookqa": {
        "id": "7-980",
        "question_stem": "The sun is responsible for",
        "choices": {"text": ["plants sprouting", "puppies"], "label": ["A", "B"]},
        "answerKey": "A",
    },
}
ANSWERS = {
    "gsm8k": "72",
    "commonsenseqa": "B",
    "boolq": "yes",
    "hellaswag": "A",
    "math": "2",
    "mbpp": "def f(): pass",
    "mmlu": "A",
    "openbookqa": "A",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, row in ROWS.items():
        key = next(
            key for key in ("question", "question_stem", "problem", "ctx", "text") if key in row
        )
        rows = [row, row, {**row, key: f"Again: {row[key]}"}]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return tmp_path


def source(name: str, **changed: object) -> Source:
    (found,) = (one for one in read_sources(SEEDS) if one.name == name)
    return found.model_copy(update=changed)


@pytest.mark.parametrize("name", ROWS)
def test_a_question_of_every_form_has_its_answer_and_equal_ones_are_drawn_once(folder, name):
    drawn = draw(source(name, count=2), folder, seed=0)
    assert drawn.problem is None
    assert len({row["question"] for row in drawn.questions}) == 2
    assert {row["answer"] for row in drawn.questions} == {ANSWERS[name]}
    assert {row["source"] for row in drawn.questions} == {name}
    assert all(row["licence"] for row in drawn.questions)


def test_the_counts_are_those_of_the_papers_table():
    counts = {one.name: one.count for one in read_sources(SEEDS)}
    assert len(counts) == 14 and sum(counts.values()) == 1000
    assert (counts["gsm8k"], counts["humaneval"], counts["hellaswag"]) == (77, 15, 90)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpqa", "it has no training split"),
        ("squad", "no revision of hf:rajpurkar/squad.* is pinned: name one"),
        ("math", "no source on the hub is known: put its training split into .*math.jsonl"),
    ],
)
def test_what_cannot_be_drawn_from_says_why_and_the_way_out(tmp_path, name, why):
    drawn = draw(source(name), tmp_path, seed=0)
    assert drawn.questions == []
    assert drawn.problem is not None
    assert re.search(why, drawn.problem)


def test_a_gated_source_and_a_short_one_are_refused(folder):
    gated = source("mbpp", gated=True)
    assert "gated: accept the terms" in str(draw(gated, folder / "none", seed=0).problem)
    assert (
        draw(source("gsm8k"), folder, seed=0).problem
        == "has 2 different questions, but 77 are wanted"
    )


def test_a_split_that_is_evaluated_is_refused():
    with pytest.raises(ValueError, match=r"split=test is no training split"):
        Source(name="gsm8k", count=1, like="gsm8k", source="hf:openai/gsm8k?config=main&split=test")


def test_the_command_writes_nothing_while_sources_are_missing_unless_it_is_told_to(
    folder, tmp_path
):
    file = tmp_path / "sources.toml"
    out = tmp_path / "seeds.jsonl"
    file.write_text(
        '[gsm8k]\ncount = 2\nlike = "gsm8k"\n[gpqa]\ncount = 1\nrefused = "no training split"\n'
    )
    asked = ["seeds", str(file), "--out", str(out), "--folder", str(folder)]
    refused = CliRunner().invoke(cli.main, asked)
    assert (refused.exit_code, out.exists()) == (1, False)
    assert "nothing was written: no questions can be drawn from gpqa" in refused.output
    assert CliRunner().invoke(cli.main, [*asked, "--partial"]).exit_code == 0
    assert [json.loads(line)["answer"] for line in out.read_text().splitlines()] == ["72", "72"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 3", r"seeds\.toml: x is no table: write each source as \[NAME\]"),
        ("[[sources]]\na = 1", r"seeds\.toml: sources is no table"),
        ("", r"seeds\.toml lists no source"),
        ("[a", r"seeds\.toml is not valid TOML"),
    ],
)
def test_a_file_that_lists_no_sources_is_refused(tmp_path, text, says):
    (tmp_path / "seeds.toml").write_text(text)
    with pytest.raises(ValueError, match=says):
        read_sources(tmp_path / "seeds.toml")
