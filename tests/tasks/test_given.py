"""Tasks that people wrote, in the tables that also hold a policy's own."""

import json

import pytest

from tasks.given import draw_tasks, given_rubrics, given_tasks
from tests.support.rows import publish, row


def items(place, *names: str):
    criteria = [
        {"text": "Names the river.", "weight": 0.5},
        {"text": "Names the stone.", "weight": 1.0},
    ]
    rows = (
        {
            "task_id": name,
            "text": f"What of {name}?",
            "references": ["one", "two"],
            "given": json.dumps({"criteria": criteria}),
        }
        for name in names
    )
    return publish(place, "items", *(row("items", **values) for values in rows))


def drawn(place, table, number: int, count: int = 2) -> list[str]:
    at = place.step(number + 1)
    return [
        task["task_id"]
        for task in given_tasks(at, table, number=number, count=count, seed=3).rows()
    ]


def test_no_item_comes_twice_before_the_others_have_come(place):
    """Five items in draws of two: the third draw has the fifth item and the first of another
    order; after five draws each item has come twice."""
    table = items(place, "a", "b", "c", "d", "e")
    draws = [drawn(place, table, number) for number in range(5)]
    assert sorted({*draws[0], *draws[1], draws[2][0]}) == ["a", "b", "c", "d", "e"]
    assert all(len({*draw}) == 2 for draw in draws)
    assert sorted(name for draw in draws for name in draw) == sorted("abcde" * 2)


def test_what_ends_one_round_comes_last_in_the_next(place):
    """Of ten items the fourth draw of three takes the last one and two again; the fifth to seventh
    take the seven others, and that one ends the second round, in the seventh."""
    table = items(place, *"abcdefghij")
    draws = [drawn(place, table, number, count=3) for number in range(7)]
    last = (set("abcdefghij") - {name for draw in draws[:3] for name in draw}).pop()
    assert last in draws[3]
    assert last not in draws[4] and last not in draws[5]


def test_items_that_fill_whole_draws_come_in_a_new_order_each_time(place):
    table = items(place, *"abcdef")
    laps = [
        [name for number in numbers for name in drawn(place, table, number)]
        for numbers in (range(3), range(3, 6))
    ]
    assert [sorted(lap) for lap in laps] == [list("abcdef")] * 2
    assert laps[0] != laps[1]


def test_more_than_there_are_is_an_error(place):
    with pytest.raises(ValueError, match="has 2 items; 3 are drawn at once"):
        drawn(place, items(place, "a", "b"), 0, count=3)


def test_a_task_has_its_accepted_answers_and_its_rubric(place):
    table = items(place, "a")
    tasks = given_tasks(place, table, number=0, count=1, seed=0)
    (task,), rubric = tasks.rows(), given_rubrics(place, table, tasks=tasks).rows()
    assert (task["text"], task["reference"], task["accepted"]) == (
        "What of a?",
        "one",
        ["one", "two"],
    )
    assert task["rollout_id"] is None
    assert [(c["criterion_id"], c["criterion"], c["weight"]) for c in rubric] == [
        ("a-0", "Names the river.", 0.5), ("a-1", "Names the stone.", 1.0)
    ]  # fmt: skip


def test_an_item_without_criteria_is_no_task_by_rubric(place):
    table = publish(
        place, "items", row("items", task_id="a", text="What?", references=[], given="{}")
    )
    tasks = given_tasks(place, table, number=0, count=1, seed=0)
    with pytest.raises(ValueError, match="a has no criteria"):
        given_rubrics(place, table, tasks=tasks)


def test_a_rubric_of_pitfalls_alone_is_refused(place):
    given = json.dumps({"criteria": [{"text": "Lies.", "weight": -2.0}]})
    table = publish(
        place, "items", row("items", task_id="a", text="What?", references=[], given=given)
    )
    tasks = given_tasks(place, table, number=0, count=1, seed=0)
    with pytest.raises(ValueError, match="a: none of its criteria has a positive weight"):
        given_rubrics(place, table, tasks=tasks)


def test_a_rubric_may_have_pitfalls_beside_what_earns(place):
    criteria = [{"text": "Names it.", "weight": 1.0}, {"text": "Lies.", "weight": -2.0}]
    given = json.dumps({"criteria": criteria})
    table = publish(
        place, "items", row("items", task_id="a", text="What?", references=[], given=given)
    )
    tasks = given_tasks(place, table, number=0, count=1, seed=0)
    rubric = given_rubrics(place, table, tasks=tasks).rows()
    assert [criterion["weight"] for criterion in rubric] == [1.0, -2.0]


def test_tasks_come_all_before_any_comes_again_and_only_those_that_are_kept(place):
    tasks = publish(place, "tasks", *(row("tasks", task_id=str(i), text="?") for i in range(5)))
    how = {"size": 3, "seed": 0}
    order = [
        t["task_id"]
        for n in range(4)
        for t in draw_tasks(place, tasks, number=n, label=str(n), **how).rows()
    ]
    assert sorted(order[:5]) == sorted(order[5:10]) == list("01234") and order[:5] != order[5:10]
    assert len(set(order[3:6])) == 3, "none twice in a draw, although the second lap begins in it"
    chosen = publish(
        place, "selections", *(row("selections", task_id=str(i), kept=i > 1) for i in range(5))
    )
    drawn = draw_tasks(place.step(1), tasks, chosen=chosen, number=0, **how).rows()
    assert {task["task_id"] for task in drawn} == {"2", "3", "4"}


def test_no_task_is_twice_in_a_draw_and_fewer_tasks_are_all_drawn(place):
    tasks = publish(place, "tasks", *(row("tasks", task_id=str(i), text="?") for i in range(90)))
    for number in range(12):
        for size, expected in ((80, 80), (200, 90)):
            how = {"size": size, "seed": 0, "label": f"{size}-{number}"}
            drawn = draw_tasks(place, tasks, number=number, **how).rows()
            assert len({task["task_id"] for task in drawn}) == len(drawn) == expected


def test_nothing_to_draw_from_is_an_error(place):
    tasks = publish(place, "tasks", row("tasks", task_id="a", text="?"))
    chosen = publish(place, "selections", row("selections", task_id="a", kept=False))
    with pytest.raises(ValueError, match="has no task to draw"):
        draw_tasks(place.step(1), tasks, chosen=chosen, number=0, size=1, seed=0)
