"""How likely stored replies are under other prompts, and what tasks and rubrics tell of their documents."""

import math
from functools import partial

import pytest

from flows import profile
from flows.scope.config import Config, InformationSettings
from flows.scope.information import mark_schemes, openings, with_documents
from flows.scope.roles import Roles
from tasks.ask import ask
from tasks.likelihoods import likelihoods
from tasks.prompt import Prompt
from tasks.reports.data import open_source
from tasks.reports.information import information
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.replies import reply_logprobs
from tests.support.rows import publish, row, turn
from tests.support.scripted import POLICY, ScriptedEngine, word_tokenizer

LN = math.log


# ---- the estimates ------------------------------------------------------------------------------------------------


def reply(task_id, kind, *probabilities):
    """A reply by its probability under each document, the source first."""
    return [
        row(
            "likelihoods",
            prompt_id=f"{task_id}-{kind}-{i}",
            task_id=task_id,
            kind=kind,
            document_id=f"d{i}",
            is_source=i == 0,
            logprob=None if p is None else LN(p),
        )
        for i, p in enumerate(probabilities)
    ]


def estimates(store, *replies):
    rows = [one for found in replies for one in found]
    for kind in sorted({one["kind"] for one in rows}):
        some = [one for one in rows if one["kind"] == kind]
        publish(store.run("r").iteration(1).phase("information"), "likelihoods", *some, label=kind)
    with open_source(store, "r", 1) as source:
        return {found["kind"]: found for found in source.rows("learnable_information")}


def test_a_task_tells_the_log_of_how_much_likelier_its_document_makes_it(store):
    """0.6 against a mean of (0.6 + 0.2 + 0.1) / 3 = 0.3: ln 2. 0.1 against 0.1: nothing. Mean and error: ln 2 / 2."""
    found = estimates(store, reply("t1", "task", 0.6, 0.2, 0.1), reply("t2", "task", 0.1, 0.1, 0.1))["task"]
    assert (found["n"], found["num_documents"], found["num_left_out"]) == (2, 3, 0)
    assert found["information"] == pytest.approx(LN(2) / 2)
    assert found["standard_error"] == pytest.approx(LN(2) / 2)
    assert found["control"] == pytest.approx((LN(0.2 / 0.3) + LN(0.1 / 0.3)) / 4)


def test_a_rubric_tells_only_what_its_task_has_not_told(store):
    """Weights 3/4 and 1/4: 0.4 against 3/4 * 0.4 + 1/4 * 0.2 = 0.35. With even weights it would be against 0.3."""
    found = estimates(store, reply("t", "task", 0.3, 0.1), reply("t", "rubric", 0.4, 0.2))["rubric"]
    assert found["information"] == pytest.approx(LN(0.4 / 0.35))
    assert found["control"] == pytest.approx(LN(0.2 / 0.35))
    assert found["standard_error"] is None


def test_a_task_that_names_its_document_leaves_its_rubric_nothing_to_tell(store):
    found = estimates(store, reply("t", "task", 1.0, 1e-12), reply("t", "rubric", 0.5, 1e-9))
    assert found["task"]["information"] == pytest.approx(LN(2))
    assert found["rubric"]["information"] == pytest.approx(0, abs=1e-9)


def test_no_task_tells_more_than_the_log_of_the_number_of_documents_however_long_it_is(store):
    """exp(-3000) is 0 in floating point."""
    task = [
        {**one, "logprob": value} for one, value in zip(reply("t", "task", 1, 1, 1), (-3000, -9000, -9999), strict=True)
    ]
    rubric = [
        {**one, "logprob": value}
        for one, value in zip(reply("t", "rubric", 1, 1, 1), (-5000, -4990, -7000), strict=True)
    ]
    found = estimates(store, task, rubric)
    assert found["task"]["information"] == pytest.approx(LN(3))
    assert found["rubric"]["information"] == pytest.approx(0)
    assert found["task"]["control"] < -5000


def test_where_documents_do_not_matter_estimates_and_controls_are_0(store):
    same = [reply(f"t{i}", kind, *[0.1 * (i + 1)] * 4) for i in range(5) for kind in ("task", "rubric")]
    for found in estimates(store, *same).values():
        assert [found[name] for name in ("information", "control", "standard_error")] == pytest.approx([0, 0, 0])


def test_a_reply_without_a_probability_is_left_out_and_counted(store):
    found = estimates(
        store,
        *(reply("t1", "task", 0.6, 0.2), reply("t1", "rubric", 0.6, None)),
        *(reply("t2", "task", 0.6, None), reply("t2", "rubric", 0.5, 0.5)),
        *(reply("t3", "task", 0.2, 0.2), reply("t3", "rubric", 0.3, 0.1)),
    )
    assert (found["task"]["n"], found["task"]["num_left_out"]) == (2, 1)
    assert (found["rubric"]["n"], found["rubric"]["num_left_out"]) == (1, 2)
    assert found["rubric"]["information"] == pytest.approx(LN(0.3 / 0.2))


def test_the_figure_says_the_numbers_and_their_controls(store):
    found = estimates(store, reply("t", "task", 0.6, 0.2, 0.1), reply("t", "rubric", 0.1, 0.1, 0.1))
    title = information(list(found.values())).title
    assert title == "Iteration 1: a task tells 0.69 nats of its document, its rubric 0.00 nats more; " + (
        "control -0.75 and 0.00 (n 1)"
    )
    assert information([]).title == "What tasks tell of their documents was not measured"


# ---- the replies --------------------------------------------------------------------------------------------------


class Fleet:
    """A scripted engine in place of engines in processes."""

    def __init__(self, engine: ScriptedEngine):
        self.engine = engine

    def reply_logprobs(self, prompts, policy, dialogue):
        return reply_logprobs(self.engine, prompts, policy, dialogue)


def prompt(prompt_id, document_id, text, rollout_id="q"):
    about = {"document_id": document_id, "task_id": "t", "rollout_id": rollout_id}
    return row("prompts", prompt_id=prompt_id, messages=[{"role": "user", "content": text}], **about)


def ids(text):
    return word_tokenizer()(text, add_special_tokens=False)["input_ids"]


def test_a_reply_is_weighed_after_its_own_conversation_with_another_opening(place):
    """Its two tokens are likelier, e^-1 each, where the opening shows the moon."""
    searched = turn("s", context_token_ids=ids("user moon assistant"), sampled_token_ids=ids("<search> a </search>"))
    after = ids("<|im_end|> tool b assistant")
    final = turn("t", context_token_ids=after, sampled_token_ids=ids("red blue"), continues=True)
    rollouts = publish(place, "rollouts", row("rollouts", rollout_id="other", turns=[searched]), label="other")
    rollouts = [rollouts, publish(place, "rollouts", row("rollouts", rollout_id="q", turns=[searched, final]))]
    tasks = publish(place, "tasks", row("tasks", task_id="t", document_id="moon"))
    long = "a " * 400
    asked = publish(
        place, "prompts", *(prompt(d, d, text) for d, text in (("moon", "moon"), ("sun", "sun"), ("c", long)))
    )
    engine = ScriptedEngine(lambda *_: None, likelihood=lambda text, _: -1.0 if "moon" in text else -4.0)
    settings = {"kind": "task", "policy": POLICY, "dialogue": Dialogue(prompt_tokens=300), "fleet": Fleet(engine)}
    found = likelihoods(place, asked, rollouts, tasks, **settings).rows()
    assert [(r["document_id"], r["is_source"], r["logprob"], r["num_tokens"]) for r in found] == [
        ("moon", True, -2.0, 2),
        ("sun", False, -8.0, 2),
        ("c", False, None, 2),
    ]
    assert found[2]["error"].startswith("prompt of ") and found[0]["error"] is None
    before = "<|im_start|> user {} <|im_end|> <|im_start|> assistant <search> a </search> <|im_end|> tool b assistant"
    assert sorted(engine.prompts) == [before.format("moon"), before.format("sun")]


def test_more_replies_than_an_engine_takes_at_once_all_come_back():
    asked = [
        {"prompt_id": str(i), "messages": [{"role": "user", "content": "a"}], "between_token_ids": []}
        for i in range(11)
    ]
    asked = [{**one, "reply_token_ids": [5] * (i + 1)} for i, one in enumerate(asked)]
    found = list(reply_logprobs(ScriptedEngine(lambda *_: None), asked, POLICY, Dialogue(), frozenset([("3", 0)])))
    assert {r["prompt_id"]: r["logprob"] for r in found} == {str(i): -0.5 * (i + 1) for i in range(11) if i != 3}


# ---- what is asked ------------------------------------------------------------------------------------------------

CFG = profile.load(Config, "micro")
DOCUMENTS = [{"document_id": f"d{i}", "title": "", "text": f"words {i}", "dropped_reason": None} for i in range(9)]
TASKS = [
    row(
        "tasks",
        task_id=f"t{i}",
        rollout_id=f"t{i}",
        document_id=f"d{i}",
        task_type="planning",
        search_turns=1,
        text=f"do {i}",
        evidence=[f"d{i}", f"d{i + 1}"],
    )
    for i in range(6)
]
SELECTIONS = [{"task_id": f"t{i}", "kept": i in (2, 4)} for i in range(6)]


def choose(num_tasks=3, num_documents=4, seed=0, drawn=DOCUMENTS):
    settings = InformationSettings(num_tasks=num_tasks, num_documents=num_documents)
    return list(with_documents(SELECTIONS, TASKS, drawn, settings, seed))


def test_kept_tasks_come_first_each_with_its_own_document_and_different_others():
    chosen = choose()
    assert len(chosen) == 12 and {t["task_id"] for t in chosen[:8]} == {"t2", "t4"}
    for i in range(0, 12, 4):
        documents = [t["document_id"] for t in chosen[i : i + 4]]
        assert documents[0] == "d" + chosen[i]["task_id"][1:] and len(set(documents)) == 4
    assert choose() == chosen != choose(seed=1)


def test_a_small_corpus_drawn_more_than_once_gives_fewer_documents():
    assert len(choose(1, 8, drawn=[*DOCUMENTS[:6], *DOCUMENTS[:6]])) == 6


def test_another_document_takes_the_sources_place_and_the_other_evidence_stays():
    roles, settings = Roles(CFG), InformationSettings(num_tasks=1, num_documents=9)
    written = [
        row("rubrics", task_id=t["task_id"], criterion="Names a.", judge_rollout_id=f"w-{t['task_id']}") for t in TASKS
    ]
    (own, *others) = mark_schemes(
        selections=SELECTIONS,
        tasks=TASKS,
        documents=DOCUMENTS,
        drawn=DOCUMENTS,
        rubrics=written,
        mark=roles.rubric_writer.about,
        settings=settings,
        seed=0,
    )
    number = int(own["document_id"][1:])
    assert own["rollout_id"] == f"w-t{number}" and own["task"] == f"do {number}"
    assert own["documents"].split() == ["words", str(number), "words", str(number + 1)]
    for other in others:
        shown = [other["document_id"][1:]] + [str(number + 1)] * (other["document_id"] != f"d{number + 1}")
        assert other["documents"].split() == [word for i in shown for word in ("words", i)]


def test_the_prompt_with_the_own_document_is_the_one_the_task_was_written_from(place):
    roles, settings = Roles(CFG), InformationSettings(num_tasks=6, num_documents=2)
    samples = publish(
        place,
        "samples",
        *(row("samples", **{k: t[k] for k in ("document_id", "task_type", "search_turns")}) for t in TASKS),
    )
    documents = publish(place, "documents", *(row("documents", **d) for d in DOCUMENTS))
    selections = publish(place, "selections", *(row("selections", **s) for s in SELECTIONS))
    values = dict(roles.challenger.values)
    first = ask(place, roles.challenger.prompt, values=values, samples=samples, documents=documents)
    about = partial(openings, propose=roles.challenger.about, settings=settings, seed=0)
    again = ask(
        place,
        Prompt("challenger", roles.challenger.templates, about),
        values=values,
        selections=selections,
        tasks=publish(place, "tasks", *TASKS),
        documents=documents,
        drawn=samples,
        label="again",
    )
    own = {r["document_id"]: r["messages"] for r in again.rows() if r["document_id"][1:] == r["task_id"][1:]}
    assert own == {r["document_id"]: r["messages"] for r in first.rows()}
    assert again.num_rows == 12 and {r["rollout_id"] for r in again.rows()} == {t["rollout_id"] for t in TASKS}


def test_without_any_task_nothing_is_asked_and_no_engine_needed(place):
    asked = publish(place, "prompts")
    unread = publish(place, "rollouts", row("rollouts", rollout_id="unread", turns=[]))
    settings = {"kind": "task", "policy": POLICY, "dialogue": Dialogue(), "fleet": None}
    assert likelihoods(place, asked, [unread], [], **settings).num_rows == 0
