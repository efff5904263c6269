"""`eapo-iteration/smollm2`, scripted: a quote with its answer on one line, and a score of one digit
for every quote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.eapo.compare import read_scores_in_line
from flows.eapo.flow import eapo_iteration
from flows.eapo.readers import read_line
from flows.runtime.store_root import SOURCE
from tasks.readers.malformed import Malformed
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query

TEXT = "Ada was born in London in 1815. Bob left for Rome."
SETTINGS = {
    "steps": 1,
    "batch_size": 2,
    "group_size": 3,
    "reward_model.batch_size": 1,
    "engine.max_model_len": 4096,
    "dialogues.input_tokens": 4000,
    "monitor.max_sampler_kl": None,  # a script samples nothing
}
REPLIES = [
    " Ada was born in London Answer: London\n",
    " Ada lives in Paris Answer: Paris\n",
    " I do not know\n",
]


def say(asked: Asked) -> str:
    if asked.template == "compare":
        return " 5 1\n"
    return REPLIES[asked.sample % 3]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    questions = folder / "questions.jsonl"
    rows = [
        {"question": f"where was ada born, {number}?", "answer": "London", "context": TEXT}
        for number in range(4)
    ]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        patch.chdir(SOURCE)  # profiles name their files from there
        perform(Script(say), patch)
        settings = {
            **SETTINGS,
            "models.base": model,
            "engine.model": model,
            "questions": str(questions),
            "evaluation.benchmark": str(questions),
        }
        eapo_iteration("smollm2", "r", settings)
    return folder / "store"


def test_a_line_holds_a_quote_and_an_answer(store: Path) -> None:
    answers = query(
        store,
        "select distinct answer, evidence, verbatim, malformed from answers order by answer",
    )
    assert [tuple(row.values()) for row in answers] == [
        ("London", ["Ada was born in London"], 1.0, None),
        ("Paris", ["Ada lives in Paris"], 0.0, None),
        (None, None, None, "no quote with its answer on one line"),
    ]


def test_the_reward_weighs_answer_evidence_and_form_as_in_equation_2(store: Path) -> None:
    rewards = query(
        store,
        "select answer, round(reward, 6) as reward from rewards"
        " join answers using (rollout_id) group by all order by reward",
    )
    assert [tuple(row.values()) for row in rewards] == [
        (None, 0.0),
        ("Paris", 0.1),  # 0.6 * 0 + 0.3 * 0 + 0.1
        ("London", 1.0),  # 0.6 * 1 + 0.3 * 1 + 0.1
    ]


def test_scores_are_marks_and_the_highest_is_the_best() -> None:
    prompt: Any = {"rollout_ids": ["a", "b", "c"]}

    def marks(reply: str) -> list[tuple[float, bool]]:
        rollout: Any = {"reply": reply}
        rows = read_scores_in_line(rollout, prompt, highest=5)
        return [(row["mark"], row["is_best"]) for row in rows]

    assert marks(" 2, 5, 1\nQuestion:") == [(0.25, False), (1.0, True), (0.0, False)]
    assert marks(" 3 3 3") == [(0.5, False)] * 3
    for reply, reason in [
        (" 2 5", "another number of scores than of sets"),
        (" 2 5 6", "a score is no integer from 1 to 5"),
        (" the second", "another number of scores than of sets"),
        ("\n", "no list of scores"),
    ]:
        with pytest.raises(Malformed, match=reason):
            marks(reply)


def test_a_quote_is_sought_in_the_last_text_and_not_in_the_examples() -> None:
    content = "Text: It was shot in Aarhus.\nQuestion: where?\nQuote: x Answer: y\n\nText: " + TEXT
    prompt: Any = {"messages": [{"role": "user", "content": content}]}
    rollout: Any = {"reply": " It was shot in Aarhus. Answer: Aarhus"}
    assert read_line(rollout, prompt)["verbatim"] == 0.0


def test_the_reward_model_learns_its_scores_that_agree_with_the_outcomes(store: Path) -> None:
    (batch,) = query(store, "select count(*) as num_rows from batches where phase = 'reward_model'")
    assert batch == {"num_rows": 2}  # both comparisons: 5 for a right answer, 1 for a wrong one
    assert query(store, "select 1 from updates where role = 'reward_model'")
