"""Statements of a report on given rows, one at a time, without a page."""

from __future__ import annotations

from typing import Any

from tasks.reports.data import open_source
from tests.support.rows import publish, row
from warehouse.schemas import Row
from warehouse.store import Place, Store


def rows_of(store: Store, statement: str, iteration: int = 1) -> list[Row]:
    with open_source(store, "r", iteration) as source:
        return source.rows(statement)


def only(columns: str, rows: list[Row]) -> list[tuple[Any, ...]]:
    """Some columns of rows."""
    return [tuple(found[name] for name in columns.split()) for found in rows]


def test_votes_and_rule_disagree_where_most_of_all_votes_say_otherwise(
    place: Place, store: Store
) -> None:
    # answer: its votes, whether the rule accepts it
    given: dict[str, tuple[list[int | None], bool | None]] = {
        "both yes": ([1, 1, 0], True),
        "both no": ([0, 0, 1], False),
        "votes alone": ([1, 1, 0], False),
        "rule alone": ([0, 0, 0], True),
        "a tie is no": ([1, 0], True),
        "an unread vote is no yes": ([1, None], True),
        "no vote is read": ([None, None], True),  # left out
        "no rule": ([1, 1], None),  # left out
    }
    votes = [
        row("votes", judge_rollout_id=f"{name}-{n}", rollout_id=name, task_id="t", vote=vote)
        for name, (of_answer, _) in given.items()
        for n, vote in enumerate(of_answer)
    ]
    matches = [
        row("matches", rollout_id=name, task_id="t", matched=matched)
        for name, (_, matched) in given.items()
    ]
    publish(place, "votes", *votes)
    publish(place, "matches", *matches)
    publish(place, "tasks", row("tasks", task_id="t", task_type="quiz"))
    [counts] = only("task_type n num_votes_only num_rule_only", rows_of(store, "disagreements"))
    assert counts == ("quiz", 6, 1, 3)


def test_a_needle_that_nobody_can_tell_about_is_not_found(place: Place, store: Store) -> None:
    outcomes = [(True, True), (True, False), (False, True), (None, None)]
    needles = [
        row("needles", rollout_id=str(n), length_tokens=100, depth=0.5, correct=right, quoted=quote)
        for n, (right, quote) in enumerate(outcomes)
    ]
    publish(place, "needles", *needles)
    counts = only("length_tokens depth n num_correct num_quoted", rows_of(store, "needles"))
    assert counts == [(100, 0.5, 4, 2, 2)]


def test_lengths_are_of_answers_that_could_be_read(place: Place, store: Store) -> None:
    lengths = [("x", 10), ("x", 30), (None, 500), ("x", None)]
    answers = [
        row("answers", rollout_id=str(n), answer=text, answer_tokens=tokens)
        for n, (text, tokens) in enumerate(lengths)
    ]
    publish(place, "answers", *answers)
    assert only("n mean p50", rows_of(store, "answer_lengths")) == [(2, 20.0, 20.0)]


def test_the_mean_score_of_a_type_is_that_of_its_scored_candidates(
    place: Place, store: Store
) -> None:
    candidates = [("a", True, 0.5), ("a", False, 1.0), ("a", False, None), ("b", False, None)]
    named = {f"t{n}": candidate for n, candidate in enumerate(candidates)}
    tasks = [row("tasks", task_id=name, task_type=kind) for name, (kind, _, _) in named.items()]
    decisions = [
        row("selections", task_id=name, kept=kept, mean_score=score)
        for name, (_, kept, score) in named.items()
    ]
    publish(place, "tasks", *tasks)
    publish(place, "selections", *decisions)
    found = only("task_type n num_kept num_scored mean_score", rows_of(store, "task_types"))
    assert found == [("a", 3, 1, 2, 0.75), ("b", 1, 0, 0, None)]


def test_a_role_that_ever_searches_is_shown_at_every_step(store: Store) -> None:
    """The solver stops searching in its second step; the judge never does."""
    phase = store.run("r").iteration(1).phase("solver")
    for step, num_searches in ((1, 2), (2, 0)):
        replies = (
            row("rollouts", rollout_id=f"s{step}", role="solver", num_searches=num_searches),
            row("rollouts", rollout_id=f"j{step}", role="judge"),
        )
        publish(phase.step(step), "rollouts", *replies)
    assert only("role step mean n", rows_of(store, "searches")) == [
        ("solver", 1, 2.0, 1),
        ("solver", 2, 0.0, 1),
    ]


def test_a_statement_ends_with_the_iteration_that_is_asked_for(store: Store) -> None:
    for iteration in (1, 2):
        gate = row("gates", task_id=f"t{iteration}", gate="source", kind="model", passed=True)
        publish(store.run("r").iteration(iteration), "gates", gate)
    assert only("iteration n", rows_of(store, "gates", iteration=1)) == [(1, 1)]
    assert only("iteration n", rows_of(store, "gates", iteration=2)) == [(1, 1), (2, 1)]
