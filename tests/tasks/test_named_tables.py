"""Stages take tables and settings by name, and name the ones that they need."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.ask import ask
from tasks.evaluate import evaluate
from tasks.keep import Query, choose, keep
from tasks.prompt import Prompt, Template
from tasks.score import score, scored
from tasks.stage import check_tables
from tests.support.rows import publish, row
from warehouse.schemas import Answer, Task


@pytest.fixture
def tables(place) -> dict[str, Any]:
    return {
        "tasks": publish(
            place,
            "tasks",
            row("tasks", task_id="t", text="Why?"),
            row("tasks", task_id="u", text="How?"),
        ),
        "answers": publish(
            place, "answers", row("answers", rollout_id="a", task_id="t", answer="so")
        ),
    }


def pay(
    answers: list, tasks: list, gates: tuple | list = (), *, weight: float = 1.0
) -> Iterator[dict]:
    """Pay `weight` for each answer and for each gate."""
    for answer in answers:
        yield scored(answer, weight * (1 + len(gates)), {"n": float(len(tasks))})


def measure(tasks: list, *, offset: float = 0.0) -> Iterator[tuple[str, float]]:
    for i, _ in enumerate(tasks):
        yield "position", i + offset


def shown(tasks: list, *, count: int = 9) -> Iterator[dict]:
    return ({"task_id": t["task_id"], "text": t["text"]} for t in tasks[:count])


def prompt(about: Any = shown) -> Prompt:
    return Prompt("solver", (Template("solve", "{{ text }}"),), about)


def test_a_reward_gets_the_rows_of_its_tables_and_its_settings_by_name(place, tables):
    (plain,) = score(place, pay, tasks=tables["tasks"], answers=tables["answers"]).rows()
    assert (plain["reward"], plain["components"]) == (1.0, {"n": 2.0})
    (more,) = score(
        place, pay, **tables, gates=publish(place, "gates", row("gates")), weight=0.5
    ).rows()
    assert more["reward"] == 1.0


def test_tables_of_one_kind_are_passed_together(place, tables):
    other = publish(place, "tasks", row("tasks", task_id="v"), label="other")
    found = score(place, pay, answers=tables["answers"], tasks=(tables["tasks"], other)).rows()
    assert found[0]["components"] == {"n": 3.0}
    assert score(place, pay, answers=(), tasks=tables["tasks"]).rows() == []


def test_a_setting_is_part_of_the_recipe_and_a_table_of_its_inputs(place, tables):
    recipe = score(place, pay, **tables, weight=0.5).recipe
    assert recipe["params"]["arguments"]["weight"] == 0.5
    assert {recipe["params"]["arguments"][name]["content_hash"] for name in tables} == {
        table.content_hash for table in tables.values()
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("answers",), "reward pay needs answers, tasks, gates; got answers"),
        ((), "reward pay needs answers, tasks, gates; got no table"),
        (
            ("answers", "tasks", "rubrics"),
            "reward pay needs answers, tasks, gates; got answers, tasks, rubrics",
        ),
    ],
)
def test_a_reward_without_its_tables_or_with_others_says_which_it_needs(place, tables, given, says):
    passed = {name: tables.get(name, tables["tasks"]) for name in given}
    with pytest.raises(TypeError) as refused:
        score(place, pay, **passed)
    assert str(refused.value) == says
    assert place.store.find(place.address("rewards")) is None


def test_a_setting_is_no_table_and_a_table_no_setting(place, tables):
    with pytest.raises(
        TypeError, match="reward pay needs answers, tasks, gates; got tasks, answers, weight"
    ):
        score(place, pay, **tables, weight=tables["tasks"])
    with pytest.raises(TypeError, match=r"reward pay takes tasks as a table, but .* keyword-only"):
        score(place, pay, answers=tables["answers"], tasks=3)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'colour'"):
        score(place, pay, **tables, colour=3)


def test_settings_that_are_bound_beforehand_name_the_function_all_the_same(place, tables):
    with pytest.raises(TypeError, match="reward pay needs answers, tasks, gates; got tasks"):
        score(place, functools.partial(functools.partial(pay, weight=2.0)), tasks=tables["tasks"])
    (found,) = score(place, functools.partial(pay, weight=2.0), **tables).rows()
    assert found["reward"] == 2.0


def test_a_type_that_does_not_exist_at_run_time_is_named_with_the_reward(place, tables):
    def reward(answers: list[Missing]) -> Iterator[dict]:  # type: ignore  # noqa: F821
        yield from answers

    with pytest.raises(TypeError, match=r"reward in .*test_named_tables.py .*'Missing' is not def"):
        score(place, reward, answers=tables["answers"])


def test_a_measure_gets_tables_and_settings_by_name_or_says_which_it_needs(place, tables):
    about = {"policy": "p", "benchmark": "b"}
    (found,) = evaluate(place, measure, **about, tasks=tables["tasks"], offset=1.0).rows()
    assert (found["metric"], found["n"], found["score"], found["standard_error"]) == (
        "position",
        2,
        1.5,
        0.5,
    )
    with pytest.raises(TypeError, match="measure measure needs tasks; got answers"):
        evaluate(place, measure, **about, answers=tables["answers"])


def test_a_prompt_gets_tables_by_name_or_says_which_it_needs(place, tables):
    assert [r["task_id"] for r in ask(place, prompt(), tasks=tables["tasks"]).rows()] == ["t", "u"]
    one = prompt(functools.partial(shown, count=1))
    assert [r["task_id"] for r in ask(place, one, tasks=tables["tasks"]).rows()] == ["t"]
    with pytest.raises(TypeError, match="the prompt of solver needs tasks; got tasks, answers"):
        ask(place, prompt(), **tables)


def pay_readable(
    answers: list[Answer], others: Sequence[Task] = (), untyped: Any = ()
) -> Iterator[dict]:
    yield from ()


def test_a_table_of_other_rows_than_were_asked_for_is_refused_by_its_address(place, tables):
    typed = functools.partial(pay_readable)
    score(place, typed, answers=(), others=(), untyped=tables["answers"])
    with pytest.raises(TypeError) as refused:
        score(place, typed, answers=tables["answers"], others=[tables["tasks"], tables["answers"]])
    assert (
        str(refused.value) == "reward pay_readable needs others with rows of Task; got the table"
        " r/iter-001/solver/step-002/answers"
    )
    with pytest.raises(
        TypeError, match=r"needs answers with rows of Answer; got the table .*/tasks"
    ):
        score(place, typed, answers=tables["tasks"])


def test_what_has_a_default_need_not_be_given():
    check_tables("x", pay, {"answers": (), "tasks": ()})
    with pytest.raises(TypeError, match="x needs answers, tasks, gates; got answers, gates"):
        check_tables("x", pay, {"answers": (), "gates": ()})


# ---- queries ----

LONG = """
-- $unused is no bound: it stands in a comment
select task_id, document_id, length(text) > $least as kept, case when length(text) <= $least then 'short' end as reason,
    0 as num_correct, 0 as num_judged, 0 as num_rollouts, null as mean_score
from tasks order by task_id
"""  # noqa: E501


@pytest.fixture
def query(tmp_path: Path) -> Query:
    (tmp_path / "long.sql").write_text(LONG)
    return Query(tmp_path / "long.sql")


def test_a_filter_sees_tables_and_bounds_by_name_and_keeps_the_bounds_beside_its_rows(
    place, tables, query
):
    assert query.bounds == {"least"}
    found = keep(place, query, tasks=tables["tasks"], least=4)
    assert [(r["task_id"], r["kept"], r["reason"], r["bounds"]) for r in found.rows()] == [
        ("t", False, "short", '{"least": 4}'),
        ("u", False, "short", '{"least": 4}'),
    ]
    assert [r["kept"] for r in keep(place, query, tasks=tables["tasks"], least=3).rows()] == [
        True,
        True,
    ]


@pytest.mark.parametrize("stage", [keep, choose])
@pytest.mark.parametrize(
    ("bounds", "got"),
    [({}, "[]"), ({"most": 1}, "['most']"), ({"least": 1, "unused": 2}, "['least', 'unused']")],
)
def test_a_filter_says_which_bounds_it_needs(place, tables, query, stage, bounds, got):
    with pytest.raises(TypeError) as refused:
        stage(place, query, tasks=tables["tasks"], **bounds)
    assert str(refused.value) == f"long.sql needs bounds ['least']; got {got}"
