from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from flows.scope.config import Config
from flows.scope.readers import read_answer, read_rubric, read_task, read_verdict
from flows.scope.roles import Roles
from flows.settings import profile
from tasks.prompt import Malformed
from tasks.read import Reader, reads
from tests.support.rows import row, turn
from warehouse.schemas import TABLES, TASKS, Schema

WEIGHTS = {"critical": 3.0, "important": 2.0, "bonus": 1.0}


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("<score>1</score>", 1),
        ("<think>hm</think><score> 0 </score>", 0),
        ("<score>0</score> no, <score>1</score>", 1),
        ("<score>1</score><score>0</score>", 0),
        ("<think><score>1</score></think><score>0</score>", 0),
        ("<think>a</think><score>0</score><think><score>1</score></think><score>1</score>", 1),
        ("<score>0</score><think> wait: <score>1</score>", 0),
        ("thought without a start </think><score>1</score>", 1),
        ("<score>\n1\n</score> and so on", 1),
        ("<think> never ends <score>1</score>", 1),  # its author forgot to close the block
    ],
)
def test_the_last_verdict_outside_of_thoughts_counts(reply, verdict):
    assert read_verdict(reply) == verdict


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no score element"),
        ("1", "no score element"),
        ("<think><score>1</score></think>", "no score element"),
        ("<think> never ends <score>1</score>, but", "no score element"),
        ("<score>1", "no score element"),
        ("<score></score>", "score is neither 0 nor 1"),
        ("<score>0.5</score>", "score is neither 0 nor 1"),
        ("<score>10</score>", "score is neither 0 nor 1"),
        ("<score>yes</score>", "score is neither 0 nor 1"),
        ("<score>1</score><score>maybe</score>", "score is neither 0 nor 1"),
        ("<score>0 <score>1</score></score>", "score is neither 0 nor 1"),
        ("‹score›1‹/score›", "no score element"),
    ],
)
def test_a_reply_without_a_verdict_is_malformed_and_neither_0_nor_1(reply, reason):
    with pytest.raises(Malformed, match=reason):
        read_verdict(reply)


@pytest.mark.parametrize(
    ("reply", "task"),
    [
        ("<think>x</think><task> Why is it so? </task>", "Why is it so?"),
        ("<task>first</task> or <task>second</task>", "second"),
        ("<task>draft <task>nested</task>", "nested"),
        ("<task><question>Why?</question></task>", "Why?"),
        ("<task>Answer this. <question> Why? </question></task>", "Answer this. Why?"),
        ("<task><question>open</task>", "open"),
        ("<think>a</think><think><task>thought last</task>", "thought last"),
        ("<think><task>thought</task></think><task>said</task>", "said"),
        ("<task>two\nlines</task>", "two\nlines"),
    ],
)
def test_a_task_is_the_text_of_the_last_pair_without_the_tags_of_a_question(reply, task):
    assert read_task(reply) == task


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no task element"),
        ("<task>never closed", "no task element"),
        ("<task>  </task>", "empty task element"),
        ("<task>good</task><task></task>", "empty task element"),
        ("<task><question> </question></task>", "empty question element"),
        ("<think><task>thought</task> or not", "no task element"),
    ],
)
def test_a_reply_without_a_task_is_malformed(reply, reason):
    with pytest.raises(Malformed, match=reason):
        read_task(reply)


def test_an_answer_is_the_last_pair():
    assert read_answer("<answer>a</answer><answer> b </answer>") == "b"


def criteria(*texts: str, priority: str = "critical") -> str:
    lines = "".join(f'<rubric priority="{priority}">{text}</rubric>\n' for text in texts)
    return f"<rubrics>\n{lines}</rubrics>"


def read(reply: str):
    return read_rubric(reply, 3, 10, WEIGHTS)


def test_criteria_keep_their_order_priority_and_weight():
    reply = (
        '<think>plan</think><rubrics><rubric priority="bonus">Names  the\nriver.</rubric>'
        '<rubric priority = "Critical" > Names the food. </rubric>'
        '<rubric priority="important">Names the metal.</rubric></rubrics>'
    )
    assert [(r["position"], r["criterion"], r["priority"], r["weight"]) for r in read(reply)] == [
        (0, "Names the river.", "bonus", 1.0),
        (1, "Names the food.", "critical", 3.0),
        (2, "Names the metal.", "important", 2.0),
    ]


def test_three_to_ten_criteria_are_a_rubric():
    assert len(read(criteria(*"abc"))) == 3
    assert len(read(criteria(*"abcdefghij"))) == 10


def test_the_last_rubric_counts():
    assert [r["criterion"] for r in read(criteria(*"abc") + criteria(*"xyz"))] == ["x", "y", "z"]


def test_an_unclosed_criterion_is_lost_and_does_not_swallow_the_next():
    reply = criteria("a", "b", "c").replace("<rubrics>", '<rubrics><rubric priority="bonus">open ')
    assert [r["criterion"] for r in read(reply)] == ["a", "b", "c"]


@pytest.mark.parametrize("priority", ["vital", ""])
def test_a_criterion_of_no_known_priority_has_the_lowest(priority):
    found = read(criteria(*"abc", priority=priority))
    assert [(r["priority"], r["weight"]) for r in found] == [("bonus", 1.0)] * 3


def test_criteria_that_no_rubric_encloses_count_all_the_same():
    bare = criteria(*"abc").replace("<rubrics>", "").replace("</rubrics>", "")
    assert read(bare) == read(criteria(*"abc"))


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no criterion"),
        ("<rubrics></rubrics>", "empty rubrics element"),
        ("<think>" + criteria(*"abc") + "</think>", "no rubrics element"),
        (criteria(*"abc").removesuffix("</rubrics>"), "no rubrics element"),
        ("<rubrics>1. a 2. b 3. c</rubrics>", "no criterion"),
        (criteria(*"ab"), "fewer criteria than allowed"),
        (criteria("a", "b", "b", " a "), "fewer criteria than allowed"),
        (criteria("a", "b", "  "), "fewer criteria than allowed"),
        (criteria(*"abcdefghijk"), "more criteria than allowed"),
    ],
)
def test_a_rubric_that_cannot_be_used_is_malformed(reply, reason):
    with pytest.raises(Malformed, match=reason):
        read(reply)


# ---- rows of a table made of replies ----

EMPTY: Mapping[str, Any] = MappingProxyType({})
CUT = {"length": "cut off at the token limit", "turns": "out of turns"}


def rows(
    reader: Reader, schema: Schema = TASKS, about: Mapping[str, Any] = EMPTY, **rollout: Any
) -> list[dict]:
    given = {
        "rollout_id": "q",
        "finish_reason": "final",
        "reply": "said",
        "turns": [turn("said")],
        **rollout,
    }
    return list(
        reader.rows(schema, row("rollouts", **given), row("prompts", **{"prompt_id": "p", **about}))
    )


def said(rollout, prompt):
    return {"text": rollout["reply"]}


@pytest.mark.parametrize(("finish", "reason"), CUT.items())
def test_only_a_conversation_that_ended_well_is_read(finish, reason):
    """Checked with SCOPE's Challenger and Solver; parts of the format are still measured."""
    roles = Roles(profile.load(Config, "micro"))
    for role in (roles.challenger, roles.solver):
        said = {"finish_reason": finish, "reply": "<task>a</task><answer>a</answer>"}
        (found,) = rows(role.read, role.into, {"search_turns": 1}, **said)
        assert found["malformed"] == reason and found["format"]["total"] > 0
        assert {"text", "answer"}.isdisjoint(found)


@pytest.mark.parametrize(("finish", "reason"), CUT.items())
def test_a_reader_of_whole_replies_refuses_one_that_was_cut_off(finish, reason):
    (found,) = rows(Reader(said, whole=True), finish_reason=finish)
    assert (found["malformed"], "text" in found) == (reason, False)
    (found,) = rows(Reader(said), finish_reason=finish)
    assert (found["malformed"], found["text"]) == (None, "said")


def test_what_an_engine_could_not_finish_is_stored_with_its_reason():
    reader = Reader(said)
    known = {"rollout_id": "q", "task_id": "q", "prompt_id": "p"}
    given = {"error": [], "context": [turn("a")]}
    found = [rows(reader, finish_reason=finish, turns=turns) for finish, turns in given.items()]
    reasons = ["engine error", "no room left in the context"]
    assert [[select(one, known) for one in some] for some in found] == [[known], [known]]
    assert [one["malformed"] for some in found for one in some] == reasons
    (whole,) = rows(reader)
    assert select(whole, {**known, "text": 0, "malformed": 0}) == {
        **known,
        "text": "said",
        "malformed": None,
    }


def select(found: dict, names: Iterable[str]) -> dict:
    return {name: found.get(name) for name in names}


def test_the_ids_of_a_row_are_those_of_its_prompt_as_far_as_its_table_has_them():
    about = {
        "prompt_id": "p",
        "document_id": "d",
        "task_id": "t",
        "task_type": "planning",
        "criterion_id": "c",
    }
    asked = {**about, "rollout_id": "answered", "search_turns": 2, "template": "x"}
    answer, task, verdict = (
        rows(Reader(lambda *_: {}), TABLES[name], asked)[0]
        for name in ("answers", "tasks", "judgments")
    )
    assert select(answer, ("rollout_id", "task_id", "prompt_id")) == {
        "rollout_id": "q",
        "task_id": "t",
        "prompt_id": "p",
    }
    # a new task has a new id
    assert (task["task_id"], task["document_id"], task["search_turns"]) == ("q", "d", 2)
    graded = {
        "judge_rollout_id": "q",
        "rollout_id": "answered",
        "task_id": "t",
        "criterion_id": "c",
    }
    assert select(verdict, graded) == graded  # what was judged, and the judge's rollout
    for found, name in ((answer, "answers"), (task, "tasks"), (verdict, "judgments")):
        assert found.keys() <= {column.name for column in TABLES[name].columns}, name


def test_several_rows_are_read_from_one_reply_and_share_its_ids():
    listed = Reader(lambda *_: [{"criterion_id": i} for i in "ab"], lambda *_: {"position": 7})
    found = rows(listed, TABLES["rubrics"], {"task_id": "t"})
    assert [(r["criterion_id"], r["task_id"], r["position"]) for r in found] == [
        ("a", "t", 7),
        ("b", "t", 7),
    ]
    assert rows(Reader(lambda *_: []), TABLES["rubrics"]) == []


def test_what_is_measured_stands_in_malformed_rows_too_and_a_reading_overrules_it():
    def refuse(rollout, prompt):
        raise Malformed("no")

    measured = {"text": "measured", "evidence": ["d"]}
    (refused,) = rows(Reader(refuse, lambda *_: measured))
    assert select(refused, ("text", "evidence", "malformed")) == {**measured, "malformed": "no"}
    (whole,) = rows(Reader(said, lambda *_: measured))
    assert select(whole, ("text", "evidence", "malformed")) == {
        "text": "said",
        "evidence": ["d"],
        "malformed": None,
    }


def test_a_reader_that_fails_costs_its_reply_only_and_is_named():
    (found,) = rows(Reader(lambda rollout, prompt: {"text": rollout["no such"]}))
    assert found["malformed"] == "reader failed: KeyError"
    # fails at its second row
    (found,) = rows(Reader(lambda rollout, prompt: ({"text": 1 // n} for n in (1, 0))))
    assert (found["malformed"], found.get("text")) == ("reader failed: ZeroDivisionError", None)


def test_a_reader_of_one_value_takes_whole_replies_and_names_its_column():
    reader = reads("answer", read_answer)
    (found,) = rows(reader, TABLES["answers"], reply="<answer>42</answer>")
    assert (found["answer"], found["malformed"]) == ("42", None)
    (found,) = rows(reader, TABLES["answers"], reply="<answer>42</answer>", finish_reason="length")
    assert (found.get("answer"), found["malformed"]) == (None, "cut off at the token limit")
    (found,) = rows(reader, TABLES["answers"], reply=None)
    assert found["malformed"] == "no answer element"


def test_a_table_that_holds_no_replies_has_no_reader():
    with pytest.raises(AssertionError, match="rewards holds no replies"):
        rows(Reader(said), TABLES["rewards"])
