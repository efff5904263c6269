"""How likely stored replies are under other prompts, and how much tasks and rubrics tell about
their documents."""

import math
from functools import partial

import pytest

from flows.scope.config import Config
from flows.scope.information import openings, rubric_prompts
from flows.scope.roles import Roles
from flows.settings import profile
from tasks.ask import ask
from tasks.likelihoods import choose, likelihoods, with_documents
from tasks.prompt import Prompt
from tasks.reports.data import open_source
from tasks.reports.information import information
from tasks.rollouts.dialogue import Dialogue
from tasks.rollouts.replies import reply_logprobs
from tests.support.rows import publish, row, turn
from tests.support.scripted import POLICY, ScriptedEngine, word_tokenizer

LN = math.log


# ---- the estimates ----


def reply(task_id, kind, *probabilities):
    """A reply, given by its probability under each document, the source first."""
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
    """0.6 against a mean of (0.6 + 0.2 + 0.1) / 3 = 0.3 is ln 2; 0.1 against 0.1 is 0. Mean and
    error are ln 2 / 2."""
    found = estimates(
        store, reply("t1", "task", 0.6, 0.2, 0.1), reply("t2", "task", 0.1, 0.1, 0.1)
    )["task"]
    assert (found["n"], found["num_documents"], found["num_left_out"]) == (2, 3, 0)
    assert found["information"] == pytest.approx(LN(2) / 2)
    assert found["standard_error"] == pytest.approx(LN(2) / 2)
    assert found["control"] == pytest.approx((LN(0.2 / 0.3) + LN(0.1 / 0.3)) / 4)


def test_a_rubric_tells_only_what_its_task_has_not_told(store):
    """Weights 3/4 and 1/4: 0.4 against 3/4 * 0.4 + 1/4 * 0.2 = 0.35. With equal weights it would
    be against 0.3."""
    found = estimates(store, reply("t", "task", 0.3, 0.1), reply("t", "rubric", 0.4, 0.2))["rubric"]
    assert found["information"] == pytest.approx(LN(0.4 / 0.35))
    assert found["control"] == pytest.approx(LN(0.2 / 0.35))
    assert found["standard_error"] is None


def test_a_task_that_names_its_document_leaves_its_rubric_nothing_to_tell(store):
    found = estimates(store, reply("t", "task", 1.0, 1e-12), reply("t", "rubric", 0.5, 1e-9))
    assert found["task"]["information"] == pytest.approx(LN(2))
    assert found["rubric"]["information"] == pytest.approx(0, abs=1e-9)
    assert [found[kind]["num_at_bound"] for kind in ("task", "rubric")] == [1, 1]


def test_replies_that_may_tell_more_than_could_be_measured_are_counted(store):
    """ln 1.99 is within 0.01 of the bound ln 2, ln 1.8 is not. A rubric's bound is minus the log of
    its source's weight: 0.005 and 0.105; both rubrics reach it."""
    tasks = reply("t1", "task", 0.995, 0.005), reply("t2", "task", 0.9, 0.1)
    found = estimates(store, *tasks, reply("t1", "rubric", 1, 1e-9), reply("t2", "rubric", 1, 1e-9))
    assert {kind: found[kind]["num_at_bound"] for kind in found} == {"task": 1, "rubric": 2}
    note = information(list(found.values())).note
    assert "At the bound: tasks, 1 of 2; rubrics, 2 of 2." in note


def test_no_task_tells_more_than_the_log_of_the_number_of_documents_however_long_it_is(store):
    """exp(-3000) is 0 in floating point."""
    task = [
        {**one, "logprob": value}
        for one, value in zip(reply("t", "task", 1, 1, 1), (-3000, -9000, -9999), strict=True)
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
    same = [
        reply(f"t{i}", kind, *[0.1 * (i + 1)] * 4) for i in range(5) for kind in ("task", "rubric")
    ]
    found = estimates(store, *same)
    assert found.keys() == {"task", "rubric"}
    for estimate in found.values():
        assert [
            estimate[name] for name in ("information", "control", "standard_error")
        ] == pytest.approx([0, 0, 0])


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
    figure = information(list(found.values()))
    assert (
        figure.title
        == "In iteration 1 a task tells 0.69 nats about its document, its rubric 0.00 nats more"
    )
    assert figure.note.endswith("In this iteration (n 1) the control is -0.75 and 0.00.")
    assert information([]).title == "What tasks tell about their documents was not measured"


# ---- the replies ----


class Fleet:
    """A scripted engine in place of engines in processes."""

    def __init__(self, engine: ScriptedEngine):
        self.engine = engine

    def reply_logprobs(self, prompts, policy, dialogue):
        return reply_logprobs(self.engine, prompts, policy, dialogue)


def prompt(prompt_id, document_id, text, rollout_id="q"):
    about = {"document_id": document_id, "task_id": "t", "rollout_id": rollout_id}
    return row(
        "prompts", prompt_id=prompt_id, messages=[{"role": "user", "content": text}], **about
    )


def ids(text):
    return word_tokenizer()(text, add_special_tokens=False)["input_ids"]


def test_what_an_element_holds_is_weighed_behind_its_tag_without_thoughts_and_searches(
    place, tmp_path
):
    """The element's two tokens are likelier, e^-1 each, if the opening shows the moon. What
    precedes them, and the rest of the conversation, is not scored."""
    model = tmp_path / "model"
    word_tokenizer().save_pretrained(model)
    searched = turn(
        "s",
        context_token_ids=ids("user moon assistant"),
        sampled_token_ids=ids("<search> a </search>"),
    )
    after = ids("<|im_end|> tool b assistant")
    said = "<think> <task> c </task> moon </think> a <task> red blue </task> <|im_end|>"
    final = turn("t", context_token_ids=after, sampled_token_ids=ids(said), continues=True)
    cut = turn("u", sampled_token_ids=ids("<think> moon <task> red"))
    rollouts = [
        publish(place, "rollouts", row("rollouts", rollout_id="cut", turns=[cut]), label="other"),
        publish(place, "rollouts", row("rollouts", rollout_id="q", turns=[searched, final])),
    ]
    tasks = publish(place, "tasks", row("tasks", task_id="t", document_id="moon"))
    long = "a " * 400
    shown = (("moon", "moon", "q"), ("sun", "sun", "q"), ("c", long, "q"), ("d", "sun", "cut"))
    asked = publish(place, "prompts", *(prompt(d, d, text, rollout) for d, text, rollout in shown))
    engine = ScriptedEngine(
        lambda *_: None, likelihood=lambda text, _: -1.0 if "moon" in text else -4.0
    )
    policy = POLICY.model_copy(update={"weights": str(model)})
    engine.use = lambda used: None  # type: ignore[method-assign]
    settings = {
        "kind": "task",
        "element": "task",
        "policy": policy,
        "dialogue": Dialogue(prompt_tokens=300),
    }
    found = likelihoods(place, asked, rollouts, tasks, fleet=Fleet(engine), **settings).rows()
    assert [(r["document_id"], r["is_source"], r["logprob"], r["num_tokens"]) for r in found] == [
        ("moon", True, -2.0, 2),
        ("sun", False, -8.0, 2),
        ("c", False, None, 2),
        ("d", False, None, 0),
    ]
    assert [r["error"] for r in found[:2]] == [None, None]
    assert found[2]["error"].startswith("prompt of ") and found[3]["error"] == "no task element"
    before = "<|im_start|> user {} <|im_end|> <|im_start|> assistant <task>"
    assert sorted(engine.prompts) == [before.format("moon"), before.format("sun")]


def test_more_replies_than_an_engine_takes_at_once_all_come_back():
    asked = [
        {
            "prompt_id": str(i),
            "messages": [{"role": "user", "content": "a"}],
            "between_token_ids": [],
        }
        for i in range(11)
    ]
    asked = [{**one, "reply_token_ids": [5] * (i + 1)} for i, one in enumerate(asked)]
    found = list(
        reply_logprobs(
            ScriptedEngine(lambda *_: None), asked, POLICY, Dialogue(), frozenset([("3", 0)])
        )
    )
    assert {r["prompt_id"]: r["logprob"] for r in found} == {
        str(i): -0.5 * (i + 1) for i in range(11) if i != 3
    }


# ---- what is asked ----

CFG = profile.load(Config, "micro")
DOCUMENTS = [
    {"document_id": f"d{i}", "title": "", "text": f"words {i}", "dropped_reason": None}
    for i in range(9)
]
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


def samples(*documents, task_id="x"):
    return [
        row("samples", sample_id=f"{task_id}-{i}", document_id=d) for i, d in enumerate(documents)
    ]


DRAWN = samples(*(d["document_id"] for d in DOCUMENTS))


def test_kept_tasks_come_first():
    chosen = choose(SELECTIONS, TASKS, 3, seed=0)
    assert len(chosen) == 3 and set(chosen[:2]) == {"t2", "t4"}
    assert {tuple(choose(SELECTIONS, TASKS, 3, seed)) for seed in range(9)} > {tuple(chosen)}


def test_a_task_is_shown_with_its_own_document_then_what_was_retrieved_then_those_like_it_then_others():  # noqa: E501
    near = [*samples("d4", "d0", task_id="t2"), *samples("d8", task_id="t1")]
    shown = list(with_documents(TASKS, near, DRAWN, chosen=["t2"], most=6))
    documents = [t["document_id"] for t in shown]
    assert documents[:4] == ["d2", "d3", "d4", "d0"] and len(set(documents)) == 6
    assert [t["evidence"] for t in shown[:3]] == [["d2", "d3"], ["d3"], ["d4", "d3"]]


def test_a_small_corpus_gives_fewer_documents():
    # and d3
    assert (
        len(list(with_documents(TASKS, [], samples("d0", "d1", "d2"), chosen=["t2"], most=8))) == 4
    )


def test_another_document_takes_the_sources_place_and_the_other_evidence_stays():
    written = [
        row(
            "rubrics",
            task_id=t["task_id"],
            criterion="Names a.",
            judge_rollout_id=f"w-{t['task_id']}",
        )
        for t in TASKS
    ]
    shown = partial(with_documents, chosen=["t1", "t2"], most=9)
    given = {"tasks": TASKS, "documents": DOCUMENTS, "near": [], "drawn": DRAWN, "with_each": shown}
    ask = Roles(CFG).rubric_writer.variables
    asked = list(rubric_prompts(**given, rubrics=written[2:], ask=ask))
    assert {(a["rollout_id"], a["task"]) for a in asked} == {("w-t2", "do 2")}  # t1 has no rubric
    own, retrieved, *others = asked
    assert own["documents"].split() == ["words", "2", "words", "3"]
    assert retrieved["documents"].split() == ["words", "3"]
    for other in others:
        assert other["documents"].split() == ["words", other["document_id"][1:], "words", "3"]


def test_the_prompt_with_the_own_document_is_the_one_the_task_was_written_from(place):
    roles = Roles(CFG)
    asked_with = [
        row("samples", **{k: t[k] for k in ("document_id", "task_type", "search_turns")})
        for t in TASKS
    ]
    documents = publish(place, "documents", *(row("documents", **d) for d in DOCUMENTS))
    values = dict(roles.challenger.values)
    drawn = publish(place, "samples", *asked_with)
    first = ask(place, roles.challenger.prompt, values=values, samples=drawn, documents=documents)
    shown = partial(with_documents, chosen=[t["task_id"] for t in TASKS], most=3)
    about = partial(openings, ask=roles.challenger.variables, with_each=shown)
    again = ask(
        place,
        Prompt("challenger", roles.challenger.templates, about),
        values=values,
        tasks=publish(place, "tasks", *TASKS),
        documents=documents,
        near=publish(place, "samples", label="near"),
        drawn=drawn,
        label="again",
    )
    own = {
        r["document_id"]: r["messages"]
        for r in again.rows()
        if r["document_id"][1:] == r["task_id"][1:]
    }
    assert own == {r["document_id"]: r["messages"] for r in first.rows()}
    assert again.num_rows == 18 and {r["rollout_id"] for r in again.rows()} == {
        t["rollout_id"] for t in TASKS
    }


def test_without_any_task_nothing_is_asked_and_no_engine_needed(place):
    asked = publish(place, "prompts")
    unread = publish(place, "rollouts", row("rollouts", rollout_id="unread", turns=[]))
    settings = {
        "kind": "task",
        "element": "task",
        "policy": POLICY,
        "dialogue": Dialogue(),
        "fleet": None,
    }
    assert likelihoods(place, asked, [unread], [], **settings).num_rows == 0
