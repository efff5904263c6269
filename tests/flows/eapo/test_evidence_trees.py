"""Trees of evidence and needles in haystacks over a scripted engine; every number is worked out
by hand."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from flows.eapo.flow import eapo_iteration
from flows.eapo.needles import Haystacks
from flows.eapo.reranker import CLOSING, OPENING, Reranker, RerankerConfig
from flows.eapo.tree import extend, rate, rate_by_similarity, sprout
from flows.worlds.built_in import HAYSTACKS
from tasks.needles import Grid, find, hide, measure, number_needles, number_sentences
from tests.flows.eapo.test_played import (
    BRIDGE,
    FELL,
    FOUNDED,
    MILL,
    ORIGIN,
    PARTS,
    QUESTIONS,
    SETTINGS,
)
from tests.support.rows import publish, row
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Place, Store

# ---- stages ----


def answer(name: str, *quotes: str, task: str = "q") -> dict:
    said = (
        {"answer": "7", "evidence": list(quotes)} if quotes else {"malformed": "no answer element"}
    )
    return row("answers", rollout_id=name, prompt_id="p", task_id=task, **said)


def test_a_tree_begins_with_the_first_different_sets_of_quotes(place: Place) -> None:
    answers = [
        answer("a", "x"),
        answer("b"),
        answer("c", "x"),
        answer("d", "y", "z"),
        answer("e", "z"),
    ]
    nodes = sprout(place, publish(place, "answers", *answers), breadth=2)
    assert [(n["node_id"], n["text"], n["depth"], n["parent"]) for n in nodes.rows()] == [
        ("a", "x", 1, None),
        ("d", "y\nz", 1, None),
    ]


def node(name: str, task: str = "q", text: str = "x") -> dict:
    return row("nodes", node_id=name, task_id=task, depth=1, text=text)


@pytest.mark.parametrize(
    ("marks", "best"),
    [
        ({"a": 0.25, "b": 1.0, "c": 0.5}, "b"),
        ({"a": 0.5, "b": 0.5}, "a"),  # the first of equal ones
        ({"b": 0.0}, "b"),  # a marked one before unmarked ones
        ({}, "a"),  # nobody could tell
    ],
)
def test_the_best_node_has_the_highest_mark(
    place: Place, marks: dict[str, float], best: str
) -> None:
    given = [
        row("marks", rollout_id=name, mark=mark, position=i)
        for i, (name, mark) in enumerate(marks.items())
    ]
    rated = rate(
        place,
        publish(place, "nodes", *map(node, "abc")),
        publish(place, "marks", *given),
        label="rated",
    )
    assert {n["node_id"]: n["score"] for n in rated.rows()} == {
        name: marks.get(name) for name in "abc"
    }
    assert [n["node_id"] for n in rated.rows() if n["best"]] == [best]


def test_similarity_without_a_model_is_f1_of_the_words(place: Place) -> None:
    """ "where was Ada born" and "Ada was old" share two words: 2 * 2 / (4 + 3)."""
    nodes = publish(place, "nodes", node("a", text="It rained."), node("b", text="Ada was old."))
    tasks = publish(place, "tasks", row("tasks", task_id="q", text="Where was Ada born?"))
    rated = rate_by_similarity(place, nodes, tasks, label="rated").rows()
    assert [(n["score"], n["best"]) for n in rated] == [(0.0, False), (pytest.approx(4 / 7), True)]


MICRO = str(Path(__file__).parents[3] / "data/micro/eapo")
PAIRS = [("Where was Ada born?", "Ada was old."), ("Who?", "It rained on the mill. " * 9), ("", "")]


def test_a_reranker_scores_the_probability_of_yes_against_no() -> None:
    """Against transformers, one pair at a time: padding changes nothing."""
    reranker = Reranker(RerankerConfig(model=MICRO, dtype="float32", device="cpu", batch_size=3))
    tokenizer: Any = AutoTokenizer.from_pretrained(MICRO)
    model: Any = AutoModelForCausalLM.from_pretrained(MICRO, dtype=torch.float32)
    no, yes = tokenizer.convert_tokens_to_ids(["no", "yes"])
    expected = []
    for question, text in PAIRS:
        prompt = (
            f"{OPENING}<Instruct>: {reranker.config.instruction}\n<Query>: {question}\n"
            f"<Document>: {text}{CLOSING}"
        )
        tokens = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").input_ids
        logits = model(tokens).logits[0, -1].detach()
        expected.append(float(torch.sigmoid(logits[yes] - logits[no])))
    assert len({round(score, 4) for score in expected}) > 1
    assert reranker.scores(PAIRS) == pytest.approx(expected, abs=1e-5)
    assert reranker.scores([]) == []


def test_a_reranker_cuts_the_text_and_keeps_the_form_around_it() -> None:
    short = Reranker(RerankerConfig(model=MICRO, dtype="float32", device="cpu", max_tokens=40))
    assert short.scores([("Who?", "mill " * 90)]) == pytest.approx(
        short.scores([("Who?", "mill " * 60)])
    )


def test_a_reranker_that_is_not_pinned_or_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pin its revision"):
        RerankerConfig(model="Qwen/Qwen3-Reranker-8B")
    with pytest.raises(ValueError, match="cannot be loaded"):
        Reranker(RerankerConfig(model=str(tmp_path)))


def test_ssa_takes_the_quotes_that_the_reranker_prefers(place: Place) -> None:
    config = RerankerConfig(model=MICRO, dtype="float32", device="cpu")
    texts = ["It rained.", "Ada was old."]
    scores = Reranker(config).scores([("Where was Ada born?", text) for text in texts])
    nodes = publish(place, "nodes", node("a", text=texts[0]), node("b", text=texts[1]))
    tasks = publish(place, "tasks", row("tasks", task_id="q", text="Where was Ada born?"))
    rated = rate_by_similarity(place, nodes, tasks, reranker=config, label="rated").rows()
    assert [n["score"] for n in rated] == pytest.approx(scores)
    assert [n["best"] for n in rated] == [score == max(scores) for score in scores]


def test_steps_continue_the_best_node(place: Place) -> None:
    nodes = publish(place, "nodes", {**node("a"), "best": True}, node("b"))
    answers = publish(place, "answers", answer("s"), answer("t", "x"), answer("u", "x"))
    said = {"t": "<reasoning>so 7</reasoning>", "u": "7"}
    rollouts = publish(
        place, "rollouts", *(row("rollouts", rollout_id=n, reply=said.get(n)) for n in "stu")
    )
    steps = extend(place, nodes, answers, rollouts, element="reasoning", label="steps").rows()
    told = [(n["node_id"], n["parent"], n["depth"], n["text"], n["best"]) for n in steps]
    assert told == [("t", "a", 2, "so 7", True), ("u", "a", 2, "", False)]


def words(text: str) -> int:
    return len(text.split())


def test_a_needle_is_hidden_at_its_depth_of_a_haystack_of_its_length(place: Place) -> None:
    """Sentences have two words, the needle nine. Of 29 words 20 are filler: ten sentences, five
    of them before it."""
    grid = Grid(lengths=(29,), depths=(0.0, 0.5, 1.0), needles=1)
    tasks = number_needles(place, grid=grid, seed=3)
    sentences = number_sentences(place, grid=grid, seed=3)
    straw = " ".join(f"It rained{i}." for i in range(30))
    filler = publish(
        place, "documents", row("documents", document_id="d", text=straw), label="filler"
    )
    contexts = hide(place, tasks, sentences, filler, grid=grid, count=words, seed=0).rows()
    assert [words(c["text"].partition("The access")[0]) for c in contexts] == [0, 10, 20]
    assert all(words(c["text"]) == 29 for c in contexts)
    for task, sentence, context in zip(tasks.rows(), sentences.rows(), contexts, strict=True):
        assert (
            sentence["criterion"] in context["text"] and task["reference"] in sentence["criterion"]
        )


def is_wet(needle: str, sentence: str) -> bool:
    return "dry" not in sentence


def first_only(answers: list[Any], matches: Any, votes: Any) -> dict[str, bool | None]:
    return {a["rollout_id"]: a["rollout_id"] == "a" for a in answers}


def test_a_haystack_leaves_out_what_may_not_stand_beside_its_needle(place: Place) -> None:
    grid = Grid(lengths=(13,), depths=(0.0,), needles=1)
    text = "No dry day. " + "It rained. " * 3
    filler = publish(
        place, "documents", row("documents", document_id="d", text=text), label="filler"
    )
    tasks = number_needles(place, grid=grid, seed=3)
    sentences = number_sentences(place, grid=grid, seed=3)
    (context,) = hide(
        place, tasks, sentences, filler, grid=grid, count=words, seed=3, foreign=is_wet
    ).rows()
    assert context["text"].endswith(". It rained. It rained.")


def test_a_filler_that_is_too_short_is_refused(place: Place) -> None:
    grid = Grid(lengths=(99,), needles=1)
    tasks = number_needles(place, grid=grid, seed=0)
    sentences = number_sentences(place, grid=grid, seed=0)
    filler = publish(
        place, "documents", row("documents", document_id="d", text="It rained."), label="filler"
    )
    with pytest.raises(
        ValueError, match="the filler has 2 tokens, a haystack needs 90: name more documents"
    ):
        hide(place, tasks, sentences, filler, grid=grid, count=words, seed=0)


def test_facts_hidden_among_facts_of_others_are_made_once(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The text they are hidden in and the texts that come of it are two tables."""
    run: Any = SimpleNamespace(
        place=store.run("r"),
        cfg=SimpleNamespace(models=SimpleNamespace(base="data/micro/eapo")),
        world=HAYSTACKS,
    )
    grid = Grid(lengths=(60,), depths=(0.0, 1.0), needles=1)
    made = Haystacks.open(run, grid, None, 0)
    caplog.clear()
    with caplog.at_level(logging.INFO, "selfplay"):
        assert (
            Haystacks.open(run, grid, None, 0).contexts.content_hash == made.contexts.content_hash
        )
    assert [": fresh, " in message for message in caplog.messages] == [True] * 4
    assert made.contexts.num_rows == 2
    run.world = None
    with pytest.raises(ValueError, match="the run's world has no needles to hide"):
        Haystacks.open(run, grid, None, 0)


def test_found_needles_are_quoted_whole_and_answered_rightly(place: Place) -> None:
    grid = Grid(lengths=(20,), depths=(0.0, 1.0), needles=1)
    tasks = number_needles(place, grid=grid, seed=1)
    sentences = number_sentences(place, grid=grid, seed=1)
    one, two = (s["criterion"] for s in sentences.rows())
    quotes = {"a": (one,), "b": (two[:20],)}
    said = [
        answer(n, *quotes[n], task=t["task_id"]) for n, t in zip("ab", tasks.rows(), strict=True)
    ]
    answers = publish(place, "answers", *said)
    found: Any = find(place, tasks, sentences, answers, grid=grid, correct=first_only).rows()
    assert [(f["length_tokens"], f["depth"], f["quoted"], f["correct"]) for f in found] == [
        (20, 0.0, True, True),
        (20, 1.0, False, False),
    ]
    scores = [value for metric, value in measure(found) if metric == "score"]
    assert scores == [1.0, 0.0]


# ---- a run ----

WEATHER = " ".join(f"Day {i} was cold." for i in range(60))
HELD_OUT = [
    {"id": "mill", "question": MILL, "answer": "Ulm", "context": f"{FOUNDED} It rained. {ORIGIN}"},
    {"id": "bridge", "question": BRIDGE, "answer": "1902", "context": f"{FELL} {WEATHER}"},
]
EVIDENCE = {"mill": [FOUNDED, ORIGIN], "bridge": [FELL]}
READ = {
    MILL: [
        PARTS.format("It rained.", "rain"),
        PARTS.format(f"{FOUNDED}\n{ORIGIN}", "Ulm"),
        PARTS.format(ORIGIN, "Ulm"),
    ],
    BRIDGE: [PARTS.format(FELL, "1902"), PARTS.format(FELL, "1902"), "no parts"],
}
FROM_ORIGIN = [PARTS.format(ORIGIN, "Bonn"), PARTS.format(ORIGIN, "Ulm"), "no parts"]
DIRECT = {
    MILL: ["<answer>Ulm</answer>", "<answer>Bonn</answer>", "Ulm"],
    BRIDGE: ["<answer>1902</answer>"] * 3,
}


def say(asked: Asked) -> str:
    if asked.template == "judge":
        references = re.findall(r"^- (.*)$", asked.text, re.MULTILINE)
        [given] = re.findall(r"^Answer to grade .*: (.*)$", asked.text, re.MULTILINE)
        return f"[[{'CORRECT' if given in references else 'INCORRECT'}]]"
    if "access code" in asked.text:
        needle = re.search(r"The access code of the [a-z ]+ is (\d+)\.", asked.text)
        assert needle
        first = asked.text.index(needle[0]) < asked.text.index("Day ")
        return PARTS.format(needle[0], needle[1] if first else "lost")
    question = next(text for text in (MILL, BRIDGE) if text in asked.text)
    if asked.template == "direct":
        return DIRECT[question][asked.sample]
    if asked.template == "compare":  # ORIGIN alone is marked highest
        return (
            '{"scores": [1, 3, 5]}'
            if question == MILL and "rained" in asked.text
            else '{"scores": [5]}'
        )
    if asked.template == "steps":
        return '{"scores": [2, 4]}' if question == MILL else '{"scores": [4, 4, 4]}'
    if question == BRIDGE:
        return READ[question][asked.sample if WEATHER in asked.text else 0]
    if "rained" in asked.text:
        return READ[question][asked.sample]
    return (
        PARTS.format(f"{FOUNDED}\n{ORIGIN}", "Ulm")
        if FOUNDED in asked.text
        else FROM_ORIGIN[asked.sample]
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("trees")
    store = Store(folder / "store")
    held = folder / "held.jsonl"
    questions = folder / "questions.jsonl"
    lines = ({**one, "task_type": "multi_hop", "evidence": EVIDENCE[one["id"]]} for one in HELD_OUT)
    held.write_text("".join(json.dumps(line) + "\n" for line in lines))
    questions.write_text(
        "".join(json.dumps({**one, "task_type": "multi_hop"}) + "\n" for one in QUESTIONS)
    )
    settings = {
        **SETTINGS,
        "models.base": str(any_text_model(folder / "model")),
        "questions": str(questions),
        "iterations": 1,
        "evaluation.benchmark": str(held),
        "evaluation.samples": 3,
        "evaluation.trees.modes": ["direct", "ssa", "llm-e", "llm-r", "oracle"],
        "evaluation.needles": {"lengths": [120, 240], "depths": [0.0, 1.0], "needles": 2},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        perform(Script(say), patch)
        eapo_iteration("micro", "r", settings)
    return store


def rows(store: Store, sql: str) -> list[tuple]:
    return [tuple(found.values()) for found in query(store.root, sql)]


def test_every_way_of_answering_has_its_score(played: Store) -> None:
    """Direct: 1 of 3 for MILL and 3 of 3 for BRIDGE. SSA answers from both sentences; LLM-E from
    the last alone, and wrongly; LLM-R chooses the right one of the steps that follow."""
    found = rows(
        played,
        "select benchmark, metric, round(score, 4) from evaluations where benchmark like 'held, %'"
        " and iteration = 0 and metric <> 'unanswered' order by all",
    )
    assert found == [
        ("held, direct", "score", 0.6667),
        ("held, llm-e", "evidence_recall", 0.75),
        ("held, llm-e", "score", 0.5),
        ("held, llm-r", "evidence_recall", 0.75),
        ("held, llm-r", "score", 1.0),
        ("held, oracle", "score", 1.0),
        ("held, ssa", "evidence_recall", 1.0),
        ("held, ssa", "score", 1.0),
    ]


def test_every_node_is_stored_with_its_parent_depth_and_score(played: Store) -> None:
    """The question's 7 words share 2 with the 9 of FOUNDED + ORIGIN, and 1 with the 4 of ORIGIN."""
    found = rows(
        played,
        "select label, depth, round(score, 4), best, parent is not null from nodes "
        "where task_id = 'mill' and iteration = 0 and label <> 'quotes' order by label, position",
    )
    assert [f for f in found if f[0].startswith("ssa")] == [
        ("ssa-quotes", 1, 0.0, False, False),
        ("ssa-quotes", 1, 0.25, True, False),
        ("ssa-quotes", 1, 0.1818, False, False),
        ("ssa-steps", 2, None, True, True),
    ]
    assert [f for f in found if f[0] in ("llm-e-quotes", "llm-r-rated")] == [
        ("llm-e-quotes", 1, 0.0, False, False),
        ("llm-e-quotes", 1, 0.5, False, False),
        ("llm-e-quotes", 1, 1.0, True, False),
        ("llm-r-rated", 2, pytest.approx(0.3333), False, True),
        ("llm-r-rated", 2, 1.0, True, True),
    ]


def test_nobody_who_answers_from_quotes_sees_the_context(played: Store) -> None:
    asked = rows(
        played,
        "select distinct label, messages[1].content like '%Day 1 was%' or messages[1].content like"
        " '%rained%' from prompts where label in ('ssa', 'llm-e', 'llm-r', 'oracle', 'direct') and"
        " iteration = 0 order by label",
    )
    assert asked == [
        ("direct", True),
        ("llm-e", False),
        ("llm-r", False),
        ("oracle", False),
        ("ssa", False),
    ]


def test_needles_are_found_by_length_and_depth(played: Store) -> None:
    found = rows(
        played,
        "select length_tokens, depth, count(*), avg(correct::int), avg(quoted::int) from needles"
        " where iteration = 1 group by all order by all",
    )
    assert found == [
        (120, 0.0, 2, 1.0, 1.0),
        (120, 1.0, 2, 0.0, 1.0),
        (240, 0.0, 2, 1.0, 1.0),
        (240, 1.0, 2, 0.0, 1.0),
    ]
    page = (played.root / "reports" / "r" / "iter-001.html").read_text()
    assert "Needles found" in page
