"""Tasks of other loaders become questions with references."""

from __future__ import annotations

import json
import sys

import pytest
from click.testing import CliRunner

from flows.app.command import cli
from flows.environments.import_tasks import from_nemo_gym, from_verifiers, write_questions
from flows.environments.write import write_environment
from tasks.benchmarks.items import items_of
from tasks.benchmarks.own_file import columns_of
from tests.flows.environments.test_loaders import LOADERS, with_verifiers


def gym_row(text: str, **more) -> str:
    request = {"input": [{"role": "system", "content": "Be brief."}, *_user(text)]}
    return json.dumps({"responses_create_params": request, **more}) + "\n"


def _user(text: str) -> list[dict]:
    return [{"role": "user", "content": [{"type": "input_text", "text": text}]}]


def test_rows_of_nemo_gym_keep_their_whole_prompt_reference_and_options(tmp_path):
    file = tmp_path / "gym.jsonl"
    file.write_text(
        gym_row("Which?", expected_answer="B", options=[{"A": "one"}, {"B": "two"}])
        + gym_row("How many?", verifier_metadata={"answer": 7})
    )
    assert from_nemo_gym(file) == [
        {
            "id": "gym-0",
            "question": "Be brief.\n\nWhich?",
            "answers": ["B"],
            "options": ["one", "two"],
        },
        {"id": "gym-1", "question": "Be brief.\n\nHow many?", "answers": ["7"]},
    ]


def test_the_file_is_read_as_a_benchmark_of_ones_own(tmp_path):
    source, out = tmp_path / "gym.jsonl", tmp_path / "questions.jsonl"
    source.write_text(gym_row("2 + 2?", expected_answer="4"))
    arguments = ["import", str(source), "--from", "nemo-gym", "-o", str(out)]
    done = CliRunner().invoke(cli.main, arguments)
    assert done.exit_code == 0, done.output
    assert "1 questions, with reference answers" in done.output
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    [item] = items_of(rows, "mine", columns_of(out))
    assert (item["text"], item["references"]) == ("Be brief.\n\n2 + 2?", ["4"])


def test_another_file_is_refused_with_its_columns(tmp_path):
    file = tmp_path / "other.jsonl"
    file.write_text('{"question": "Why?"}\n')
    with pytest.raises(ValueError, match="no responses_create_params, but question"):
        from_nemo_gym(file)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"responses_create_params": {}}, "row 2: responses_create_params has no input"),
        ({"responses_create_params": None}, "row 2: responses_create_params has no input"),
        ({"responses_create_params": {"input": 7}}, "row 2: .* has no input"),
        ({"responses_create_params": {"input": ["Why?"]}}, "row 2: .* has no input"),
        ({"responses_create_params": {"input": [{"content": 7}]}}, "row 2: .* has no input"),
        ({"responses_create_params": {"input": [{"content": [{"text": None}]}]}}, "row 2: .* no"),
        ("Why?", "row 2 has no responses_create_params, but str"),
        ({}, "row 2 has no responses_create_params"),
    ],
)
def test_a_row_without_a_prompt_is_named(tmp_path, line, why):
    file = tmp_path / "gym.jsonl"
    file.write_text(gym_row("Which?") + json.dumps(line) + "\n")
    with pytest.raises(ValueError, match=why):
        from_nemo_gym(file)


def test_answers_for_some_questions_alone_are_refused(tmp_path):
    rows = [{"question": "a", "answers": ["1"]}, {"question": "b"}]
    with pytest.raises(ValueError, match="1 of 2 tasks state a reference"):
        write_questions(rows, tmp_path / "out.jsonl")


def test_a_taskset_that_does_not_load_says_why():
    with pytest.raises(ValueError, match=r"taskset none does not load in .*: .*Error"):
        from_verifiers("none", sys.executable, {})


@pytest.mark.slow
@with_verifiers
def test_an_exported_taskset_comes_back_as_questions(environment, tmp_path, monkeypatch):
    write_environment(environment, "verifiers", tmp_path / "out", "card")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "out"))
    questions = from_verifiers("selfplay-made-up", str(LOADERS), {"split": "test"})
    test_tasks = [task for task in environment.tasks if task["split"] == "test"]
    assert [row["id"] for row in questions] == [task["task_id"] for task in test_tasks]
    assert [row["answers"] for row in questions] == [[task["reference"]] for task in test_tasks]
