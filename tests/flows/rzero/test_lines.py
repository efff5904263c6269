"""`rzero-iteration/smollm2`, scripted: a question and an answer are the rest of a line each, and
the 400 sums."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from flows.blocks.questions import readers
from flows.runtime.store_root import SOURCE
from flows.rzero.config import Config
from flows.rzero.flow import rzero_iteration
from flows.settings import profile
from tasks.readers.malformed import Malformed
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query

SETTINGS = {
    "iterations": 1,
    "engine.max_model_len": 4096,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "challenger.prompts_per_step": 1,
    "challenger.group_size": 2,
    "solver.candidates": 3,
    "solver.answers": 4,
    "solver.steps": 1,
    "solver.prompts_per_step": 1,
    "solver.group_size": 4,
    "evaluation.items": 5,
}
SPLIT = [
    " 20 + 22 = 42\nQuestion: What is 1 + 1?",
    "42 ",
    " 20 + 22 = 41",
    " 20 + 22 = 42...",
]  # the last one is cut off


def speaker():
    """The Challenger asks for two sums and is cut off in a third question; both in training and
    for the pool."""
    left = [
        " What is 20 + 22?\n",
        " What is the sum of all the numbers that...",
        " What is 40 + 2?\n",
    ]
    left = [*left[:2], *left]

    def say(asked: Asked) -> str:
        if asked.template == "challenger":
            return left.pop(0)
        return SPLIT[asked.sample] if asked.template == "solver" else " 100\n"

    return say


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    model = str(any_text_model(folder / "model"))
    store = folder / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store))
        patch.chdir(SOURCE)  # profiles name their files from there
        perform(Script(speaker()), patch)
        rzero_iteration("smollm2", "r", {**SETTINGS, "models.base": model})
    return store


def test_the_rest_of_a_line_is_a_question_and_its_majority_a_label(store: Path) -> None:
    labels = query(
        store,
        """
        select tasks.text, labels.answer, round(labels.share, 3) as share, num_readable
        from tasks join labels using (run, task_id) where labels.phase = 'pool' and tasks.text is not null
        """,  # noqa: E501
    )
    assert {tuple(row.values()) for row in labels} == {
        ("What is 20 + 22?", "42", 0.667, 3),
        ("What is 40 + 2?", "42", 0.667, 3),
    }
    reasons = query(store, "select malformed from tasks where phase = 'pool' and text is null")
    assert [row["malformed"] for row in reasons] == ["cut off at the token limit"]


def test_the_solver_is_paid_for_the_majoritys_line(store: Path) -> None:
    paid = query(store, "select reward from advantages where phase = 'solver' order by reward")
    # 41 and the reply that was cut off
    assert [row["reward"] for row in paid] == [0.0, 0.0, 1.0, 1.0]


def test_the_solver_and_the_held_out_sums_are_asked_by_the_same_worked_examples(
    store: Path,
) -> None:
    asked = query(store, "select distinct template, messages[1]['content'] as text from prompts")
    asks = {
        template: {row["text"] for row in asked if row["template"] == template}
        for template in ("solver", "boxed")
    }
    examples = {text.rpartition("Question:")[0] for texts in asks.values() for text in texts}
    assert len(examples) == 1 and all(
        text.endswith("?\nAnswer:") for texts in asks.values() for text in texts
    )


def test_line_readers_refuse_an_empty_line_and_others_want_tags_and_a_box() -> None:
    question, answer = readers(in_lines=True)
    assert (question(" What is 1 + 1?\nAnswer: 2"), answer("\n 1 + 1 = 2\n")) == (
        "What is 1 + 1?",
        "2",
    )
    for read, reply, reason in (
        (question, " \n", "no line says anything"),
        (answer, " 1 + 1 =", "no answer is stated"),
    ):
        with pytest.raises(Malformed, match=reason):
            read(reply)
    question, answer = readers(in_lines=False)
    assert (question("<question>Why?</question>"), answer(r"so \boxed{2}")) == ("Why?", "2")


def test_the_held_out_sums_are_right_and_none_of_them_is_a_worked_example() -> None:
    rows = [
        json.loads(line)
        for line in (SOURCE / "data" / "english" / "sums.jsonl").read_text().splitlines()
    ]
    terms = [re.fullmatch(r"What is (\d\d) \+ (\d\d)\?", row["question"]) for row in rows]
    assert [str(int(found[1]) + int(found[2])) for found in terms if found] == [
        row["answer"] for row in rows
    ]
    assert len({row["question"] for row in rows}) == 400
    prompts = (profile.home(Config) / "prompts" / "lines").glob("*.jinja")
    shown = {line for path in prompts for line in re.findall(r"What is .*\?", path.read_text())}
    assert len(shown) == 7 and not shown & {row["question"] for row in rows}
