"""Benchmarks in files: several accepted answers, exact match and F1 beside the rule."""

import json

import pytest

from flows.blocks.long_context import QuestionSet, measure
from flows.spell.held_out import difficulty
from flows.spell.rules import covers
from tests.support.rows import row

LINES = [
    {
        "id": 1,
        "question": "who wrote it?",
        "answers": ["Joseph M. Scriven", "Scriven", "?"],
        "context": "By Scriven.",
    },
    {"id": "b", "question": "when?", "answer": 1868, "context": "In 1868."},
]


def read(place, tmp_path, *lines):
    path = tmp_path / "quiz.jsonl"
    path.write_text(
        "".join(json.dumps({"task_type": "general_qa", **line}) + "\n" for line in lines)
    )
    opened = QuestionSet.open(place, str(path), {"general_qa"})
    return opened.tasks, opened.contexts


def test_a_question_of_a_file_has_one_answer_or_a_list_of_them(place, tmp_path):
    tasks, contexts = read(place, tmp_path, *LINES)
    told = [(t["task_id"], t["text"], t["reference"], t["accepted"]) for t in tasks.rows()]
    assert told == [
        # "?" has no words
        ("1", "who wrote it?", "Joseph M. Scriven", ["Joseph M. Scriven", "Scriven"]),
        ("b", "when?", "1868", None),
    ]
    assert [c["text"] for c in contexts.rows()] == ["By Scriven.", "In 1868."]


def test_questions_of_one_id_are_told_apart(place, tmp_path):
    """A file's column `id` may be the document's."""
    same = [{"id": "doc7", "question": "who?", "answer": a, "context": f"{a}."} for a in "xyz"]
    same.append({"id": "doc7#2", "question": "who?", "answer": "w", "context": "w."})
    tasks, contexts = read(place, tmp_path, *same)
    assert [t["task_id"] for t in tasks.rows()] == ["doc7", "doc7#2", "doc7#3", "doc7#2#"]
    text_of = {row["document_id"]: row["text"] for row in contexts.rows()}
    assert [text_of[t["document_id"]] for t in tasks.rows()] == ["x.", "y.", "z.", "w."]


@pytest.mark.parametrize("answers", [{}, {"answers": []}])
def test_a_question_without_an_answer_is_refused_with_its_line(place, tmp_path, answers):
    with pytest.raises(ValueError, match=r"quiz\.jsonl, row 2: quiz-0 has no answer"):
        read(place, tmp_path, LINES[0], {"id": 2, "question": "who?", "context": "x", **answers})


def test_the_rule_holds_any_accepted_answer():
    task = {
        "task_type": "general_qa",
        "reference": "Mark Antony",
        "accepted": ["Mark Antony", "Marcus Antonius"],
    }
    assert [covers(task, said) for said in ("it was marcus antonius", "Mark Antony", "Antony")] == [
        True,
        True,
        False,
    ]
    assert covers({"task_type": "finance_math", "reference": "7", "accepted": ["7", "8"]}, "8")


def test_exact_match_and_f1_take_the_nearest_accepted_answer_and_give_nothing_for_none():
    """ "M. Scriven, 1855" shares two words with "Joseph M. Scriven": F1 is 2 * 2 / (3 + 3)."""
    task = row(
        "tasks",
        task_id="t",
        task_type="general_qa",
        reference="Joseph M. Scriven",
        accepted=["Joseph M. Scriven", "Emma"],
    )
    answers = [
        row(
            "answers",
            rollout_id=f"a{i}",
            task_id="t",
            answer=said,
            malformed=None if said else "more than 10 words",
        )
        for i, said in enumerate(["joseph m scriven", "M. Scriven, 1855", "Rome", None])
    ]
    matches = [
        row("matches", rollout_id=a["rollout_id"], task_id="t", matched=a["rollout_id"] == "a0")
        for a in answers
    ]
    found = dict(measure([task], answers, matches, [], passes=(1,)))
    assert found == {
        "score": 0.25,
        "score_general_qa": 0.25,
        "pass_at_1": 0.25,
        "unanswered": 0.25,
        "exact_match": 0.25,
        "f1": pytest.approx((1 + 2 / 3) / 4),
    }


def test_a_question_is_as_hard_as_a_fixed_responder_fails_by_the_rule_and_by_the_judge():
    """One of four answers is right by the rule and another by the judge: 1 - 2/4. Letters are
    not judged."""
    tasks = [row("tasks", task_id=t, task_type=t) for t in ("general_qa", "multiple_choice")]
    matches = [
        row("matches", rollout_id=f"{t['task_id']}-{i}", task_id=t["task_id"], matched=i == 0)
        for t in tasks
        for i in range(4)
    ]
    answers = [
        row("answers", rollout_id=m["rollout_id"], task_id=m["task_id"], answer="x")
        for m in matches
    ]
    judged = [
        row("votes", rollout_id=f"{t['task_id']}-1", task_id=t["task_id"], vote=1) for t in tasks
    ]
    found = dict(difficulty(tasks, answers, matches, judged))
    assert found == {
        "difficulty": 0.75,
        "difficulty_general_qa": 0.5,
        "difficulty_multiple_choice": 0.75,
    }


def test_what_was_never_sampled_makes_no_question_hard():
    """One answer is right, the other's prompt was too long; nobody could be asked the second
    question."""
    tasks = [row("tasks", task_id=t, task_type="general_qa") for t in ("one", "none")]
    answers = [
        row("answers", rollout_id="right", task_id="one", answer="x"),
        row("answers", rollout_id="long", task_id="one", malformed="prompt over the limit"),
        row("answers", rollout_id="failed", task_id="none", malformed="engine error"),
    ]
    matches = [
        row(
            "matches",
            rollout_id=a["rollout_id"],
            task_id=a["task_id"],
            matched=True if a["answer"] else None,
        )
        for a in answers
    ]
    found = list(difficulty(tasks, answers, matches, []))
    assert found == [("difficulty", 0.0), ("difficulty_general_qa", 0.0)]
