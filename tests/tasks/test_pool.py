"""Pools that persist across iterations: what enters, what leaves and why, and what is drawn."""

from collections import Counter

import pytest

from tasks.pool import PoolRules, draw_entries, leaving, pool
from tests.support.rows import publish, row


def tasks(place, *ids, label=None, **given):
    """Readable tasks, each the text of its id."""
    rows = (row("tasks", **{"task_id": i, "rollout_id": i, "text": f"{i}?", **given}) for i in ids)
    return publish(place, "tasks", *rows, label=label)


def scores(place, *given, label=None):
    """Rows of (rollout_id, task_id, total, components)."""
    rows = (
        row("rewards", rollout_id=r, task_id=t, reward=total, components=parts)
        for r, t, total, parts in given
    )
    return publish(place, "rewards", *rows, label=label)


def draws(place, *ids):
    return publish(
        place, "draws", *(row("draws", draw_id=str(n), entry_id=i) for n, i in enumerate(ids))
    )


def inside(table):
    return [r["entry_id"] for r in table.rows() if r["kept"]]


def reasons(table):
    return {r["entry_id"]: r["reason"] for r in table.rows() if not r["kept"]}


def test_a_pool_grows_over_steps_the_oldest_first(place):
    first = pool(place.step(1), tasks=tasks(place.step(1), "a", "b"))
    second = pool(place.step(2), previous=first, tasks=tasks(place.step(2), "c"))
    assert inside(second) == ["a", "b", "c"]
    a, _, c = second.rows()
    assert (a["origin"], c["origin"]) == (
        "r/iter-001/solver/step-001/tasks",
        "r/iter-001/solver/step-002/tasks",
    )
    assert (a["rollout_id"], a["num_uses"], a["last_used"], a["score"]) == ("a", 0, None, None)


def test_unreadable_tasks_and_those_not_chosen_do_not_enter(place):
    given = [
        tasks(place, "a", "b"),
        publish(place, "tasks", row("tasks", task_id="c", malformed="no"), label="m"),
    ]
    kept = [row("selections", task_id=i, kept=i == "b") for i in "abc"]
    found = pool(place, tasks=given, chosen=publish(place, "selections", *kept))
    assert inside(found) == ["b"] and reasons(found) == {}


def test_what_equals_an_entry_does_not_enter_and_says_so(place):
    first = pool(place.step(1), tasks=tasks(place.step(1), "a"))
    again = tasks(place.step(2), "b", "c", text="a?")
    found = pool(place.step(2), previous=first, tasks=again)
    assert inside(found) == ["a"]
    assert reasons(found) == {"b": "same text as another", "c": "same text as another"}
    third = pool(place.step(3), previous=found)
    assert [r["entry_id"] for r in third.rows()] == ["a"]  # what left is listed once


def test_unique_columns_hold_within_a_group_and_nulls_equal_nothing():
    entries = [
        {"cluster": 1, "text": "a", "reference": "x"},
        {"cluster": 2, "text": "a", "reference": "x"},
        {"cluster": 1, "text": "b", "reference": "x"},
        {"cluster": 1, "text": "c", "reference": None},
        {"cluster": 1, "text": "d", "reference": None},
    ]
    rules = PoolRules(per=("cluster",), unique=("text", "reference"))
    assert leaving(entries, 0, rules) == [None, None, "same reference as another", None, None]


def test_what_is_already_in_the_pool_stays_though_it_equals_another():
    assert leaving([{"text": "a"}, {"text": "a"}, {"text": "a"}], 2, PoolRules()) == [
        None,
        None,
        "same text as another",
    ]


@pytest.mark.parametrize(
    "leaves, out",
    [
        ("oldest", [0, 1]),
        ("most_used", [3, 0]),  # 5 uses, then 1, the older of two
        ("lowest_score", [4, 2]),  # 0.1, 0.2; never scored (1) stays
        ("highest_score", [0, 3]),
    ],
)
def test_over_its_size_a_pool_gives_up_entries_by_its_rule(leaves, out):
    uses = (1, 1, 0, 5, 0)
    measured = (0.9, None, 0.2, 0.8, 0.1)
    entries = [{"text": str(i), "num_uses": uses[i], "score": measured[i]} for i in range(5)]
    found = leaving(entries, 3, PoolRules(max_size=3, leaves=leaves))
    assert [i for i, reason in enumerate(found) if reason] == sorted(out)
    assert {r for r in found if r} == {f"no room: {leaves.replace('_', ' ')}"}


def test_size_holds_for_each_group_and_chance_is_seeded():
    entries = [{"text": str(i), "entry_id": str(i), "task_type": "xy"[i % 2]} for i in range(20)]
    rules = PoolRules(max_size=3, leaves="random", per=("task_type",))
    found = [leaving(entries, 0, rules, seed) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    for once in found:
        assert Counter(e["task_type"] for e, why in zip(entries, once, strict=True) if not why) == {
            "x": 3,
            "y": 3,
        }


def test_uses_and_scores_follow_an_entry(place):
    first = pool(place.step(1), tasks=tasks(place.step(1), "a", "b"))
    used = draws(place.step(2), "a", "a")
    answered = scores(
        place.step(2), ("s1", "a", 1.0, {}), ("s2", "a", 0.0, {}), ("s3", "a", None, {})
    )
    second = pool(place.step(2), previous=first, draws=used, rewards=answered)
    a, b = second.rows()
    # of the two that were scorable
    assert (a["num_uses"], a["last_used"], a["score"]) == (2, used.address, 0.5)
    assert (b["num_uses"], b["last_used"], b["score"]) == (0, None, None)
    third = pool(place.step(3), previous=second, draws=draws(place.step(3), "b"))
    assert [(r["num_uses"], r["score"]) for r in third.rows()] == [(2, 0.5), (1, None)]


def test_a_task_has_the_score_of_the_rollout_that_wrote_it_if_there_is_one(place):
    given = scores(
        place,
        ("a", "a", -1.0, {"difficulty": 0.25}),
        ("s1", "a", 1.0, {}),
        ("s2", "b", 1.0, {"x": 3.0}),
    )
    found = pool(place, tasks=tasks(place, "a", "b"), rewards=given, component="difficulty")
    assert [r["score"] for r in found.rows()] == [0.25, None]
    totals = pool(place, tasks=tasks(place, "a", "b"), rewards=given, label="totals")
    assert [r["score"] for r in totals.rows()] == [-1.0, 1.0]


def test_solved_tasks_leave_a_pool_of_unsolved_ones(place):
    rules = PoolRules(highest_score=0.75, lowest_score=0.25)
    first = pool(place.step(1), tasks=tasks(place.step(1), "a", "b", "c"), rules=rules)
    given = scores(place.step(2), ("s1", "a", 1.0, {}), ("s2", "b", 0.75, {}), ("s3", "c", 0.0, {}))
    second = pool(place.step(2), previous=first, rewards=given, rules=rules)
    assert inside(second) == ["b"]
    assert reasons(second) == {"a": "score too high", "c": "score too low"}


def test_a_new_entry_needs_a_score_to_enter_and_an_old_one_does_not():
    """Rounding may put a mean just below the bound that it equals."""
    scores = {"old": 0.1, "low": 0.69, "none": None, "equal": 0.7 - 1e-12, "high": 0.9}
    entries = [{"text": text, "score": score} for text, score in scores.items()]
    out = ["score too low to enter", "no score"]
    assert leaving(entries, 1, PoolRules(enters_from=0.7)) == [None, *out, None, None]


def test_a_mean_that_rounding_puts_beyond_the_bound_that_it_equals_stays(place):
    rules = PoolRules(highest_score=0.3, lowest_score=0.3)
    first = pool(place.step(1), tasks=tasks(place.step(1), "a", "b"), rules=rules)
    given = scores(place.step(2), ("s1", "a", 0.1 + 0.2, {}), ("s2", "b", 0.3 - 1e-12, {}))
    second = pool(place.step(2), previous=first, rewards=given, rules=rules)
    assert inside(second) == ["a", "b"]


def test_a_pool_of_answers_keeps_several_of_one_task(place):
    rows = [("s1", "a", "7"), ("s2", "a", "8"), ("s3", "b", None)]
    answers = publish(
        place, "answers", *(row("answers", rollout_id=r, task_id=t, answer=x) for r, t, x in rows)
    )
    given = scores(place, ("s1", "a", 1.0, {}), ("a", "a", 0.5, {}))
    found = pool(
        place,
        tasks=tasks(place, "a", "b"),
        answers=answers,
        rewards=given,
        rules=PoolRules(unique=()),
    )
    assert [
        (r["entry_id"], r["task_id"], r["text"], r["answer"], r["score"]) for r in found.rows()
    ] == [
        ("s1", "a", "a?", "7", 1.0),
        ("s2", "a", "a?", "8", None),  # the task's own score is not its answer's
    ]


def test_a_column_that_a_pool_lacks_is_refused(place):
    with pytest.raises(ValueError, match="a pool has no column skill"):
        pool(place, tasks=tasks(place, "a"), rules=PoolRules(per=("skill",)))


def drawn(place, given, num_draws, **settings):
    found = draw_entries(
        place, pool=given, num_draws=num_draws, **{"seed": 0, "epoch": place.path, **settings}
    )
    return [r["entry_id"] for r in found.rows()]


def test_no_entry_is_drawn_twice_before_all_were(place):
    given = pool(place, tasks=tasks(place, *"abcde"))
    found = drawn(place, given, 12)
    assert sorted(found[:5]) == sorted(found[5:10]) == list("abcde")
    assert found[:5] != found[5:10]


def test_draws_depend_on_the_seed_and_the_epoch_and_carry_the_entry(place):
    given = pool(place, tasks=tasks(place, *"abcdefgh", task_type="x"))
    at = [place.step(i) for i in range(3, 8)]
    same = [drawn(at[i], given, 8, epoch="e") for i in (0, 1)]
    assert (
        same[0]
        == same[1]
        not in (drawn(at[2], given, 8, epoch="f"), drawn(at[3], given, 8, epoch="e", seed=1))
    )
    first = draw_entries(at[4], pool=given, num_draws=1, seed=0, epoch="e").rows()[0]
    assert (first["entry_id"], first["text"], first["task_type"]) == (
        same[0][0],
        f"{same[0][0]}?",
        "x",
    )


def test_what_left_the_pool_is_not_drawn(place):
    given = pool(place, tasks=tasks(place, *"abcde"), rules=PoolRules(max_size=2))
    assert sorted(drawn(place, given, 2)) == ["d", "e"]


def test_least_used_first_goes_round_the_pool_over_steps(place):
    given = pool(place.step(1), tasks=tasks(place.step(1), *"abcdef"))
    seen = []
    for n in range(2, 8):
        found = draw_entries(place.step(n), pool=given, num_draws=2, seed=n, least_used=True)
        seen += [r["entry_id"] for r in found.rows()]
        given = pool(place.step(n), previous=given, draws=found)
    assert sorted(seen[:6]) == sorted(seen[6:]) == list("abcdef")


def weigh(entry):
    return {"a": 3.0, "b": 1.0, "c": 0.0}[entry["entry_id"]]


def test_how_often_an_entry_was_used_changes_no_draw_unless_asked_to(place):
    fresh = pool(place.step(1), tasks=tasks(place.step(1), *"abcdefgh"))
    used = pool(place.step(2), previous=fresh, draws=draws(place, *"aab"))
    assert drawn(place.step(3), fresh, 8, epoch="e") == drawn(place.step(4), used, 8, epoch="e")


def test_weights_make_entries_come_early_in_proportion(place):
    """Weights 3 : 1 : 0: in laps of two, a comes first in three of four (standard error 0.014);
    c never comes."""
    found = drawn(place, pool(place, tasks=tasks(place, *"abc")), 2_000, weigh=weigh)
    assert set(found) == {"a", "b"}
    assert Counter(found[::2])["a"] / 1_000 == pytest.approx(0.75, abs=0.05)


def test_without_repeats_there_may_be_fewer_and_an_empty_pool_is_an_error_otherwise(place):
    given = pool(place, tasks=tasks(place, "a", "b"))
    assert sorted(drawn(place.step(3), given, 5, repeat=False)) == ["a", "b"]
    empty = pool(place.step(4), tasks=tasks(place.step(4)))
    assert drawn(place.step(4), empty, 5, repeat=False) == []
    with pytest.raises(ValueError, match="has nothing to draw: of its 0 entries"):
        drawn(place.step(5), empty, 5)


def test_this_steps_entries_are_drawn_before_all_others(place):
    given = pool(place.step(1), tasks=tasks(place.step(1), *"abcdef"))
    new = tasks(place.step(2), "g", "h")
    grown = pool(place.step(2), previous=given, tasks=new)
    found = drawn(place.step(2), grown, 10, first=new)
    assert sorted(found[:2]) == ["g", "h"]
    assert sorted(found[2:]) == list("abcdefgh")  # and once more among the others


def test_without_repeats_new_entries_come_first_and_once_and_old_ones_fill_up(place):
    given = pool(place.step(1), tasks=tasks(place.step(1), *"ab"))
    new = tasks(place.step(2), "c", "d")
    grown = pool(place.step(2), previous=given, tasks=new)
    found = drawn(place.step(2), grown, 9, first=new, repeat=False)
    assert (sorted(found[:2]), sorted(found[2:])) == (["c", "d"], ["a", "b"])


def test_of_more_new_entries_than_draws_none_is_old(place):
    given = pool(place.step(1), tasks=tasks(place.step(1), *"ab"))
    new = tasks(place.step(2), *"cdef")
    grown = pool(place.step(2), previous=given, tasks=new)
    assert set(drawn(place.step(2), grown, 3, first=new)) < set("cdef")


def test_several_pools_are_drawn_from_together(place):
    some = pool(place.step(1), tasks=tasks(place.step(1), "a", "b"))
    others = pool(place.step(2), tasks=tasks(place.step(2), "c"))
    assert sorted(drawn(place.step(3), [some, others], 3)) == ["a", "b", "c"]
