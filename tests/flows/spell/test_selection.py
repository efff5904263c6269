"""Role-specific dynamic sampling: given rows and expected choices."""

from collections import Counter
from typing import Any

import pytest

from flows.spell.flow import CONSISTENT_VOTES, QUESTIONS
from flows.spell.steps import RESPONDER_GROUPS
from tasks.keep import Limit, choose, keep
from tasks.normalise import normalise
from tests.support.rows import publish, row
from warehouse.store import Table

TYPES = ["general_qa", "finance_math", "multiple_choice"]


def question(task_id: str, right: int | None = 4, of: int = 8, **given: Any) -> dict[str, Any]:
    """A question with `right` of its answers right; None if it was not answered. `total` is the
    questioner's reward."""
    parts = {
        "grounded": given.pop("grounded", 1.0),
        "num_answers": 0.0,
        "num_right": 0.0,
        "num_readable": 0.0,
    }
    if right is not None:
        parts |= {
            "num_answers": float(of),
            "num_right": float(right),
            "num_readable": float(given.pop("readable", of)),
        }
    reward = 1.0 if right and 0 < right < of else 0.0
    return {
        "task_id": task_id,
        "task_type": given.pop("task_type", "general_qa"),
        "malformed": given.pop("malformed", None),
        "unscorable": given.pop("unscorable", None),
        "reward": given.pop("reward", reward),
        "components": parts,
        "score": None if right is None else right / of,
    }


def published(place, questions) -> dict[str, Table]:
    tasks = [
        row(
            "tasks",
            prompt_id=f"p-{q['task_id']}",
            **{k: q[k] for k in ("task_id", "task_type", "malformed")},
        )
        for q in questions
    ]
    scores = [
        row(
            "rewards",
            rollout_id=q["task_id"],
            **{k: q[k] for k in ("task_id", "components", "unscorable", "reward", "score")},
        )
        for q in questions
    ]
    for score in scores:
        if score["unscorable"]:
            score["reward"] = None
    return {"tasks": publish(place, "tasks", *tasks), "rewards": publish(place, "rewards", *scores)}


def take(
    place, questions, earlier=(), target: int = 100, seed: int = 0, right_share: float = 0.0
) -> Table:
    how = {
        "limits": (Limit(target, "batch already full"),),
        "seed": seed,
        "right_share": right_share,
    }
    return keep(
        place, RESPONDER_GROUPS, **published(place, questions), earlier=tuple(earlier), **how
    )


def reasons(table: Table) -> dict[str, str | None]:
    return {r["task_id"]: r["reason"] for r in table.rows()}


def test_every_question_has_a_group_or_its_first_reason_why_not(place):
    given = {
        "fair": (question("fair"), None),
        "one": (question("one", 1), None),
        "seven": (question("seven", 7), None),
        "none": (question("none", 0), "no answer right"),
        "all": (question("all", 8), "every answer right"),
        "form": (
            question("form", None, malformed="no JSON object", reward=-1.0),
            "malformed: no JSON object",
        ),
        "known": (question("known", None, grounded=0.0, reward=-0.5), "answered without documents"),
        "long": (
            question("long", None, unscorable="prompt over the limit"),
            "prompt over the limit",
        ),
    }
    found = reasons(take(place, [q for q, _ in given.values()]))
    assert found == {task_id: reason for task_id, (_, reason) in given.items()}


def test_kept_questions_come_first_and_what_was_counted_stands_beside(place):
    given = [
        question("a", 0),
        question("b", 1, of=1),
        question("c"),
        question("d", None),
        question("e", 3, of=4),
    ]
    rows = take(place, given).rows()
    assert [r["kept"] for r in rows] == [True, True, False, False, False]
    counts = {r["task_id"]: (r["num_correct"], r["num_judged"], r["num_rollouts"]) for r in rows}
    assert counts == {
        "a": (0, 8, 8),
        "b": (1, 1, 1),
        "c": (4, 8, 8),
        "d": (0, None, 0),
        "e": (3, 4, 4),
    }


def test_a_third_of_three_answers_is_told_by_counts(place):
    assert reasons(take(place, [question("t", 1, of=3)])) == {"t": None}


def test_a_batch_is_filled_over_rounds_and_no_further(place):
    first = take(place.step(1), [question(t) for t in "abc"], target=5)
    second = take(place.step(2), [question(t) for t in "defgh"], [first], target=5)
    third = take(place.step(3), [question("i")], [first, second], target=5)
    assert [sum(r["kept"] for r in t.rows()) for t in (first, second, third)] == [3, 2, 0]
    assert reasons(third) == {"i": "batch already full"}


def test_the_order_is_drawn_by_the_seed_and_by_nothing_else(place):
    given = [question(f"t{i}") for i in range(12)]

    def kept(table: Table) -> list[str]:
        return [r["task_id"] for r in table.rows() if r["kept"]]

    order = kept(take(place.step(1), given, target=6))
    assert (
        kept(take(place.step(2), given[::-1], target=6))
        == order
        != kept(take(place.step(3), given, target=6, seed=1))
    )


def test_a_question_whose_own_answer_few_readable_answers_share_is_rather_wrong_than_hard(place):
    """At least a third of the readable answers must agree: 2 of 8 are too few, 2 of 6 are
    enough."""
    given = [question("few", 2), question("third", 2, readable=6), question("half", 4)]
    found = reasons(take(place, given, right_share=1 / 3))
    assert found == {"few": "too few answers right", "third": None, "half": None}


def questions_chosen(place, questions, target: int = 100) -> dict[str, str | None]:
    tables = published(place, questions)
    how = {"limits": (Limit(target, "batch already full"),), "seed": 0, "right_share": 0.0}
    groups = keep(place, RESPONDER_GROUPS, **tables, **how)
    chosen = choose(place, QUESTIONS, **tables, groups=groups, types=TYPES, seed=0)
    assert all(r["group_id"] == f"p-{r['task_id']}" for r in chosen.rows())
    return reasons(chosen)


def test_as_many_negatives_as_positives_are_taken_of_each_type(place):
    given = [question(f"g+{i}") for i in range(2)] + [question(f"g-{i}", 0) for i in range(5)]
    given += [question("f+", task_type="finance_math")]
    given += [
        question(f"f-{i}", None, malformed="no JSON object", reward=-1.0, task_type="finance_math")
        for i in "ab"
    ]
    found = questions_chosen(place, given)
    taken = Counter(t[:2] for t, reason in found.items() if reason is None)
    assert taken == {"g+": 2, "g-": 2, "f+": 1, "f-": 1}
    assert Counter(filter(None, found.values())) == {"as many negatives as positives are taken": 4}


def test_a_shortage_of_negatives_passes_to_the_next_type(place):
    # general: 3 positives, 1 negative, so 2 missing; finance: 1 positive, 2 negatives, 1 of them
    # its own and 1 passed on, so 1 missing; choice: no positive, 5 negatives, the 1 left over
    given = [question(f"g+{i}") for i in range(3)] + [question("g-", 0)]
    given += [question("f+", task_type="finance_math")]
    given += [question(f"f-{i}", 8, task_type="finance_math") for i in range(2)]
    given += [question(f"c-{i}", 0, task_type="multiple_choice") for i in range(5)]
    found = questions_chosen(place, given)
    taken = Counter(t[:2] for t, reason in found.items() if reason is None)
    assert taken == {"g+": 3, "g-": 1, "f+": 1, "f-": 2, "c-": 1}


def test_a_shortage_of_the_last_type_is_lost_and_earlier_negatives_stay_out(place):
    given = [question("g-1", 0), question("g-2", 0), question("c+", task_type="multiple_choice")]
    found = questions_chosen(place, given)
    assert [t for t, reason in found.items() if reason is None] == ["c+"]


def test_negatives_before_the_first_positive_take_no_place_of_later_ones(place):
    # general: two negatives for no positive; finance: 3 positives and no negative, so 3 missing;
    # choice: four negatives, of which three make up for these
    given = [question("g-1", 0), question("g-2", 0)]
    given += [question(f"f+{i}", task_type="finance_math") for i in range(3)]
    given += [question(f"c-{i}", 0, task_type="multiple_choice") for i in range(4)]
    found = questions_chosen(place, given)
    taken = Counter(t[:2] for t, reason in found.items() if reason is None)
    assert taken == {"f+": 3, "c-": 3}


def test_solvable_questions_beyond_the_batch_are_neither_positives_nor_negatives(place):
    found = questions_chosen(place, [question("a"), question("b"), question("n", 0)], target=1)
    assert sorted(map(str, found.values())) == ["None", "None", "its answers are not in the batch"]
    assert found["n"] is None


def test_solvable_questions_beyond_the_batch_make_up_for_no_shortage_of_negatives(place):
    """General has two positives, one negative, and two solvable ones that are not in the batch, one
    of them without a group. It lacks one negative, so it takes one of finance."""
    given = [*(question(t) for t in ("a", "b", "beyond", "unknown")), question("n", 0)]
    given += [question(t, 0, task_type="finance_math") for t in ("f", "g")]
    tables = published(place, given)
    rows = [
        row("selections", task_id=t, kept=t in "ab") for t in ("a", "b", "beyond", "n", "f", "g")
    ]
    groups = publish(place, "selections", *rows)
    found = choose(place, QUESTIONS, **tables, groups=groups, types=TYPES, seed=0).rows()
    kept = [r["task_id"] for r in found if r["kept"]]
    assert set(kept[:3]) == {"a", "b", "n"} and kept[3:] in (["f"], ["g"])
    assert [r["kept"] for r in found] == [True] * 4 + [False] * 3
    why = {r["task_id"]: r["reason"] for r in found}
    assert why["beyond"] == why["unknown"] == "its answers are not in the batch"


def test_questions_without_a_reward_are_never_negatives(place):
    given = [
        question("a"),
        question("n", None, unscorable="answer too long", malformed="answer too long"),
    ]
    assert questions_chosen(place, given) == {"a": None, "n": "answer too long"}


def votes(place, *groups: tuple[str, int, int | None, float | None], **bounds: Any) -> Table:
    """Groups of votes as (answer, rule, majority, share)."""
    rows = []
    for answer, rule, majority, share in groups:
        parts = {"rule": float(rule)}
        if majority is not None and share is not None:
            parts |= {"majority": float(majority), "majority_share": share}
        rows += [
            row(
                "rewards",
                rollout_id=f"{answer}-{i}",
                group_id=answer,
                task_id="q",
                components=parts,
            )
            for i in "ab"
        ]
    given = {"low": 0.51, "high": 0.99, "consistency": True, "num_groups": 1, "seed": 0, **bounds}
    limits = (Limit(given["num_groups"], "enough groups are taken"),)
    return choose(
        place, CONSISTENT_VOTES, rewards=publish(place, "rewards", *rows), limits=limits, **given
    )


def test_votes_are_trained_on_where_a_divided_majority_equals_the_rule(place):
    given = {
        "agree": ((1, 1, 0.75), None),
        "agree no": ((0, 0, 0.625), None),
        "differ": ((0, 1, 0.75), "majority and rule differ"),
        "tie": ((0, 0, 0.5), "no clear majority"),
        "all": ((1, 1, 1.0), "unanimous"),
        "unread": ((1, None, None), "no vote could be read"),
    }
    found = votes(
        place, *((name, *measured) for name, (measured, _) in given.items()), num_groups=2
    )
    assert {r["group_id"]: r["reason"] for r in found.rows()} == {
        name: reason for name, (_, reason) in given.items()
    }


@pytest.mark.parametrize(
    ("share", "reason"),
    [(0.51, None), (0.5099, "no clear majority"), (0.99, None), (0.991, "unanimous")],
)
def test_both_ends_of_the_share_are_inside(place, share, reason):
    assert votes(place, ("a", 1, 1, share)).rows()[0]["reason"] == reason


@pytest.mark.parametrize(
    ("share", "bounds"), [(0.625, {"low": 0.625000001}), (0.75, {"high": 0.749999999})]
)
def test_a_share_that_is_just_the_bound_with_its_tolerance_is_inside(place, share, bounds):
    """The bound minus, or plus, 1e-9 equals the share to the last bit."""
    assert (bounds.get("low", share + 1e-9) - 1e-9, bounds.get("high", share - 1e-9) + 1e-9) == (
        share,
        share,
    )
    assert votes(place, ("a", 1, 1, share), **bounds).rows()[0]["reason"] is None


def test_without_consistency_only_the_equality_is_given_up(place):
    found = votes(place, ("differ", 0, 1, 0.75), ("tie", 0, 0, 0.5), consistency=False)
    assert {r["group_id"]: r["reason"] for r in found.rows()} == {
        "differ": None,
        "tie": "no clear majority",
    }


def test_whole_groups_are_drawn_by_the_seed(place):
    given = [(f"a{i}", 1, 1, 0.75) for i in range(10)]
    first, second = (votes(place.step(s), *given, num_groups=4, seed=s) for s in (1, 2))
    taken = [{r["group_id"] for r in t.rows() if r["kept"]} for t in (first, second)]
    assert [len(t) for t in taken] == [4, 4] and taken[0] != taken[1]
    assert {r["reason"] for r in first.rows()} == {None, "enough groups are taken"}
    assert [r["kept"] for r in first.rows()] == [True] * 4 + [False] * 6


def test_too_few_usable_groups_are_none_at_all(place):
    found = votes(place, ("a", 1, 1, 0.75), ("b", 1, 1, 0.75), ("c", 1, 1, 1.0), num_groups=3)
    assert Counter(r["reason"] for r in found.rows()) == {
        "too few usable groups": 2,
        "unanimous": 1,
    }


def test_only_chosen_rows_are_compared_with_each_other(place):
    given = [("a", "q", 1.0), ("b", "r", 0.0), ("c", "s", -1.0)]
    rows = [
        row("rewards", rollout_id=r, group_id=r, task_id=task, reward=total)
        for r, task, total in given
    ]
    scores = publish(place, "rewards", *rows)
    chosen = publish(
        place, "groups", *(row("groups", group_id=t, task_id=t, kept=t != "s") for t in "qrs")
    )
    found = normalise(place, scores, scheme="zscore", within=(), chosen=chosen)
    assert {r["rollout_id"]: round(r["advantage"], 3) for r in found.rows()} == {
        "a": 1.0,
        "b": -1.0,
    }
