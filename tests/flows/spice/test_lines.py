"""`spice-iteration/smollm2`, scripted: a question on one line that tells what it asks for,
answered in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flows.runtime.store_root import SOURCE
from flows.settings import profile
from flows.spice.config import Config
from flows.spice.flow import spice_iteration
from flows.spice.readers import read_line
from tasks.readers.malformed import Malformed
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query

SETTINGS = {
    "steps": 1,
    "documents_per_step": 2,
    "reasoner.answers": 4,
    "engine.max_model_len": 4096,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "evaluation.items": 3,
}
TOLD = "Ada was born in London. Where was Ada born?"
SHOWN = "\n\nText: Ada was born in London.\nQuestion: Where was Ada born?\nAnswer:"
# the last one is cut off
ANSWERS = [" London\nQuestion: Who?", " london.", " Paris\n", " London..."]


def say(asked: Asked) -> str:
    if asked.template == "free_form":
        told = "London" in asked.text.rpartition("Text:")[2]
        return f" {TOLD} Answer: London.\n" if told else " Where did Bob go? Answer: Rome\n"
    return ANSWERS[asked.sample] if SHOWN in asked.text else " Rome\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lines")
    texts = ("Ada was born in London.", "Bob left for Rome.")
    rows = [{"id": text[:3], "title": text[:3], "text": text} for text in texts]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        patch.chdir(SOURCE)  # profiles name their files from there
        perform(Script(say), patch)
        settings = {**SETTINGS, "models.base": model, "engine.model": model}
        spice_iteration("smollm2", "r", settings, str(folder / "corpus.jsonl"))
    return folder / "store"


def test_a_question_without_the_words_of_its_answer_is_asked_again_and_never_answered(
    store: Path,
) -> None:
    tasks = query(
        store, "select text, reference, malformed, count(*) as n from tasks group by all order by n"
    )
    assert [tuple(found.values()) for found in tasks] == [
        (TOLD, "London", None, 1),
        (None, None, "the question does not tell what it asks for", 3),
    ]


def test_the_reasoner_is_paid_for_the_same_line_and_only_it_is_trained(store: Path) -> None:
    paid = query(store, "select reward from rewards where label = 'reasoner' order by reward")
    # Paris, and the reply that was cut off
    assert [found["reward"] for found in paid] == [0.0, 0.0, 1.0, 1.0]
    assert query(store, "select count(*) as n from batches")[0]["n"] == 4


def test_the_reasoner_and_the_held_out_questions_are_asked_by_the_same_worked_examples(
    store: Path,
) -> None:
    asked = query(store, "select distinct template, messages[-1]['content'] as text from prompts")
    texts = {
        name: [found["text"] for found in asked if found["template"] == name]
        for name in ("reasoner", "short")
    }
    assert len({text.rpartition("\n\n")[0] for told in texts.values() for text in told}) == 1
    assert len(texts["short"]) == 3 and all(text.endswith(SHOWN) for text in texts["reasoner"])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (" Ada was born in London.\n", "no question with its answer on one line"),
        (" Ada was born in Rome. Where? Answer: Rome", "the answer is not in the text"),
        (" Where was Ada born? Answer: London", "the question does not tell what it asks for"),
        (
            " Ada was born in London. Who? Answer: Ada was born in",
            "the answer has more than 3 words",
        ),
    ],
)
def test_a_question_in_lines_that_cannot_be_used_says_why(reply: str, reason: str) -> None:
    rollout: Any = {"reply": reply}
    prompt: Any = {
        "messages": [{"role": "user", "content": "Text: Ada was born in London.\nQuestion:"}]
    }
    with pytest.raises(Malformed, match=reason):
        read_line(rollout, prompt)


def test_lines_ask_for_strings_alone() -> None:
    with pytest.raises(ValueError, match='"lines" ask for strings'):
        profile.load(Config, "smollm2", {"challenger.answer_types": ["String", "Integer"]})
