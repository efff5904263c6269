import pytest

from flows.scope.readers import last_pair, read_rubric, read_task, read_verdict
from flows.scope.roles import read_answer as read_answer_rollout
from flows.scope.roles import read_task as read_task_rollout
from tasks.prompt import Malformed
from tasks.read import Reader
from tests.support.rows import row, turn

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
        ("<think> never ends <score>1</score>", "no score element"),
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
        ("<task>Answer this. <question> Why? </question></task>", "Why?"),
        ("<think><task>thought</task></think><task>said</task>", "said"),
        ("<task>two\nlines</task>", "two\nlines"),
    ],
)
def test_a_task_is_the_text_of_the_last_pair_or_of_its_question(reply, task):
    assert read_task(reply) == task


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no task element"),
        ("<task>never closed", "no task element"),
        ("<task>  </task>", "empty task element"),
        ("<task>good</task><task></task>", "empty task element"),
        ("<task><question> </question></task>", "empty question element"),
        ("<task><question>open</task>", "no question element"),
        ("<think><task>thought</task>", "no task element"),
    ],
)
def test_a_reply_without_a_task_is_malformed(reply, reason):
    with pytest.raises(Malformed, match=reason):
        read_task(reply)


def test_an_answer_is_the_last_pair():
    assert last_pair("<answer>a</answer><answer> b </answer>", "answer") == "b"


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


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no rubrics element"),
        ("<rubrics></rubrics>", "empty rubrics element"),
        ("<think>" + criteria(*"abc") + "</think>", "no rubrics element"),
        (criteria(*"abc").removesuffix("</rubrics>"), "no rubrics element"),
        ("<rubrics>1. a 2. b 3. c</rubrics>", "fewer criteria than allowed"),
        (criteria(*"ab"), "fewer criteria than allowed"),
        (criteria("a", "b", "b", " a "), "fewer criteria than allowed"),
        (criteria("a", "b", "  "), "fewer criteria than allowed"),
        (criteria(*"abcdefghijk"), "more criteria than allowed"),
        (criteria(*"abc", priority="vital"), "unknown priority 'vital'"),
        (criteria(*"abc", priority=""), "unknown priority ''"),
    ],
)
def test_a_rubric_that_cannot_be_used_is_malformed(reply, reason):
    with pytest.raises(Malformed, match=reason):
        read(reply)


def test_only_a_conversation_that_ended_well_is_read():
    for finish, reason in {"length": "cut off at the token limit", "turns": "out of turns"}.items():
        rollout = row("rollouts", finish_reason=finish, reply="<task>a</task><answer>a</answer>", turns=[turn("x")])
        for read_rollout in (read_task_rollout, read_answer_rollout):
            with pytest.raises(Malformed, match=reason):
                read_rollout(rollout, row("prompts"))


def test_what_an_engine_could_not_finish_is_stored_with_its_reason():
    reader = Reader(about=lambda rollout, prompt: {"task_id": "t"}, read=lambda rollout, prompt: {"text": "read"})
    given = {"error": [], "context": [turn("a")]}
    rows = [
        list(reader.rows(row("rollouts", finish_reason=f, turns=turns), row("prompts"))) for f, turns in given.items()
    ]
    assert rows == [
        [{"task_id": "t", "malformed": "engine error"}],
        [{"task_id": "t", "malformed": "no room left in the context"}],
    ]
    whole = reader.rows(row("rollouts", finish_reason="final", turns=[turn("a")]), row("prompts"))
    assert list(whole) == [{"task_id": "t", "text": "read", "malformed": None}]
