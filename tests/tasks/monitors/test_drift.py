"""A run's course: training data compared with the first, survivors, repeats, and held-out scores
that fall."""

from functools import partial

import pytest

from flows.runtime.drift import Drift, held_out_series
from tasks.monitors.drift import (
    components_share,
    held_out_course,
    repeated,
    survivors,
    trained_on,
)
from tasks.monitors.limits import Limits
from tasks.monitors.monitor import BATCH, Alarm, watch
from tests.support.rows import publish, row
from warehouse.query import query
from warehouse.store import Table


def values(measured) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for metric, value in measured:
        found.setdefault(metric, []).append(value)
    return found


REWARDS = [("a", 1.0, 0.5), ("b", 0.0, -0.5), ("c", 0.25, 0.0), ("d", None, 0.0)]
LENGTHS = [
    ("a", "solver", 10),
    ("b", "solver", 30),
    ("c", "asker", 8),
    ("d", "asker", 4),
    ("e", "asker", 999),
]


def rewards():
    return [
        row("advantages", rollout_id=i, group_id="g", reward=total, advantage=a)
        for i, total, a in REWARDS
    ]


def lengths():
    return [
        row("rollouts", rollout_id=i, role=role, num_sampled_tokens=number)
        for i, role, number in LENGTHS
    ]


def test_what_is_trained_on_is_measured_by_role():
    """The rollout `e` has no reward, so it is not trained on."""
    assert values(trained_on(rewards(), lengths(), first={})) == {
        "unscorable": [0, 0, 0, 1],
        "reward": [1.0, 0.0, 0.25],
        "flat_group": [0],
        "reward of solver": [1.0, 0.0],
        "reply_tokens of solver": [10, 30],
        "reward of asker": [0.25],
        "reply_tokens of asker": [8, 4],
    }


def test_replies_twice_as_long_as_the_first_have_a_ratio_of_two():
    found = values(
        trained_on(
            rewards(),
            lengths(),
            first={"reply_tokens of solver": 10.0, "reply_tokens of judge": 3.0},
        )
    )
    assert found["reply_ratio of solver"] == [2.0]
    assert "reply_ratio of asker" not in found


def test_the_limit_of_a_metric_holds_for_every_role(place):
    given = {
        "advantages": publish(place, "advantages", *rewards()),
        "rollouts": publish(place, "rollouts", *lengths()),
    }

    def measure(advantages, rollouts):
        yield from trained_on(advantages, rollouts, first={"reply_tokens of asker": 1.0})

    with pytest.raises(
        Alarm,
        match=r"reply_ratio of asker is 6, the limit is 3\..* change monitor\.max_reply_ratio",
    ):
        watch(place, measure, limits=Limits(), policy="p", benchmark=BATCH, **given)
    watch(place, measure, limits=Limits(max_reply_ratio=6), policy="p", benchmark=BATCH, **given)


def test_survivors_are_those_kept_and_those_that_were_not_needed():
    reasons = [None, "target already met", "too easy", "too hard"]
    chosen = [row("selections", kept=why is None, reason=why) for why in reasons]
    assert values(survivors(chosen)) == {"kept": [1, 0, 0, 0]}
    found = values(survivors(chosen, passed=("target already met",), first=0.8))
    assert found == {"kept": [1, 1, 0, 0], "kept_ratio": [0.625]}
    assert values(survivors([], first=0.8)) == {}


def test_repeats_are_equal_word_for_word_to_a_task_of_an_earlier_iteration():
    earlier = [row("tasks", text=text) for text in ("who  is\nit ?", None)]
    tasks = [
        row("tasks", text=text)
        for text in ("who is it ?", "who is it", "who was it ?", None, " who is it ? ")
    ]
    assert values(repeated(tasks, earlier)) == {"repeat_of_earlier": [1, 0, 0, 1]}


def test_a_part_of_a_reward_has_the_share_of_its_weighted_variance():
    """Variances .25 and .0625 at weights 1 and 2 are equal shares; without its weight the second
    would have a fifth."""
    parts = [
        {"g": 1.0, "form": 1.0},
        {"g": 0.0, "form": 0.5},
        {"g": 0.0, "form": 0.5},
        {"g": 1.0, "form": 1.0},
    ]
    rows = [row("advantages", reward=1.0, components=p) for p in parts]
    rows.append(row("advantages", reward=None, components={"g": 9.0, "form": 9.0}))
    even = values(components_share(rows, parts={"g": 1.0, "form": 2.0}))
    assert even == {"part of g": [0.5], "part of form": [0.5], "largest_part": [0.5]}
    assert values(components_share(rows, parts={"g": 1.0, "form": -1.0}))["largest_part"] == [
        pytest.approx(0.8)
    ]
    assert values(components_share(rows[:1], parts={"g": 1.0})) == {}


SURE = 0.03  # two of these are .0424 apart by chance; twice that is .0849


def series(*means, error=SURE):
    return {"micro": [[mean, error] for mean in means]}


@pytest.mark.parametrize(
    "scores, falls",
    [
        ((0.5, 0.6, 0.7, 0.8), 0),
        ((0.5, 0.3), 1),  # below the base model
        ((0.5, 0.6, 0.4, 0.3), 2),
        ((0.5, 0.6, 0.4, 0.58), 1),  # the third score is as good as the best
        ((0.5, 0.6, 0.55, 0.5, 0.45), 1),  # slowly, until the last is below the best
        ((0.5, None, 0.3), 1),
        ((None, 0.5, 0.6), 0),
        ((), 0),
    ],
)
def test_a_held_out_score_falls_below_its_best_earlier_one(scores, falls):
    assert values(held_out_course(held_out=series(*scores), passes={})) == {
        "falls of micro": [falls]
    }


def test_the_best_of_several_answers_falls_while_the_score_rises():
    held_out = series(0.3, 0.4, 0.5, 0.45)
    passes = series(0.9, 0.8, 0.7, 0.6)
    found = values(held_out_course(held_out=held_out, passes=passes))
    assert found == {"falls of micro": [0], "narrowings of micro": [2]}


@pytest.mark.parametrize(
    "scores, several, narrowings",
    [
        ((0.3, 0.4, 0.35, 0.2), (0.9, 0.8, 0.7, 0.6), 1),  # the score rose once
        ((0.3, 0.4, 0.5, 0.6), (0.9, 0.8, 0.7), 2),  # the last iteration has a single score
        ((0.3, 0.4), (0.9, 0.8, 0.7), 1),
        ((0.5, 0.5), (0.9, 0.8), 0),  # equal is not higher
    ],
)
def test_a_narrowing_is_an_iteration_in_which_one_rises_and_the_other_falls(
    scores, several, narrowings
):
    found = values(held_out_course(held_out=series(*scores), passes=series(*several)))
    assert found["narrowings of micro"] == [narrowings]


def test_a_part_that_a_reward_lacks_is_0_there():
    """Both parts are 1 and 0, so their shares are equal."""
    rows = [
        row("advantages", reward=1.0, components=parts)
        for parts in ({"g": 1.0, "form": 1.0}, {"g": 0.0})
    ]
    assert values(components_share(rows, parts={"g": 1.0, "form": 1.0}))["largest_part"] == [0.5]
    assert values(components_share([], parts={"g": 1.0})) == {}


@pytest.mark.parametrize("now, falls", [(0.125, 0), (0.1249, 1)])
def test_a_fall_is_one_of_more_than_three_standard_errors(now, falls):
    """Three errors of .125 are .375, and the best score before was .5."""
    scores = {"micro": [[0.2, 0.0], [0.5, 0.125], [now, 0.0]]}
    found = values(held_out_course(held_out=scores, passes={}))
    assert found["falls of micro"] == [falls]


def test_a_score_without_a_standard_error_falls_by_any_amount():
    found = values(held_out_course(held_out=series(0.5, 0.6, 0.59, error=None), passes={}))
    assert found == {"falls of micro": [1]}


def test_a_run_whose_score_fell_stops_before_its_next_iteration(store):
    """The message has the scores, which the number of falls does not tell."""
    run = store.run("r")
    for iteration, score in enumerate((0.5, 0.6, 0.3)):
        place = run.iteration(iteration).phase("evaluation")
        one = row("evaluations", benchmark="exam", metric="score", score=score, standard_error=0.02)
        publish(place, "evaluations", one)
    stopping = partial(watch, limits=Limits())
    Drift().before_iteration(stopping, run, 2, "p")
    told = r"falls of exam is 1, the limit is 0\. Held-out scores.*: exam 0\.500, 0\.600, 0\.300\. "
    with pytest.raises(Alarm, match=told):
        Drift().before_iteration(stopping, run, 3, "p")
    Drift().before_iteration(partial(watch, limits=Limits(max_falls=1)), run, 3, "p")


def measured(store, iteration: int, phase: str = "evaluation", **scores: float) -> None:
    """Scores on a benchmark `exam` by metric, each with a standard error of 0.01."""
    rows = (
        row("evaluations", benchmark="exam", metric=metric, score=score, standard_error=0.01)
        for metric, score in scores.items()
    )
    publish(store.run("r").iteration(iteration).phase(phase), "evaluations", *rows)


def test_held_out_scores_are_compared_with_the_best_of_most_answers(store):
    """Each iteration scores the best of one, two and four answers; the four are the most."""
    measured(store, 0, score=0.4, pass_at_4=0.7, pass_at_2=0.6, pass_at_1=0.4)
    measured(store, 1, score=0.5, pass_at_1=0.5, pass_at_2=0.55, pass_at_4=0.6)
    measured(store, 1, phase="monitor", score=0.9, pass_at_8=0.9)
    measured(store, 2, score=0.6, pass_at_4=0.5)
    series = held_out_series(store, "r", before=2)
    assert series.scores == {"exam": [[0.4, 0.01], [0.5, 0.01]]}
    assert series.passes == {"exam": [[0.7, 0.01], [0.6, 0.01]]}


def test_a_benchmark_that_an_iteration_did_not_score_is_left_out(store):
    measured(store, 0, score=0.4, pass_at_4=0.7)
    measured(store, 1, score=0.5)
    series = held_out_series(store, "r", before=2)
    assert (list(series.scores), list(series.passes)) == (["exam"], [])


def written(store, iteration: int, phase: str) -> Table:
    place = store.run("r").iteration(iteration).phase(phase)
    return publish(place, "tasks", row("tasks", task_id=place.path, text="who is it ?"))


def test_tasks_are_repeats_of_those_that_earlier_iterations_trained_on(store):
    """Neither held-out tasks nor those of the base model are trained on."""
    drift = Drift()
    tables = [written(store, 0, "solver"), written(store, 1, "evaluation")]
    tables += [written(store, 1, "solver"), written(store, 2, "solver")]
    for table in tables:
        drift.after_writing(table, table.at)
    assert [table.address for table in drift.earlier_tasks(3)] == [
        "r/iter-001/solver/tasks",
        "r/iter-002/solver/tasks",
    ]
    assert [table.address for table in drift.earlier_tasks(2)] == ["r/iter-001/solver/tasks"]


def test_repeats_are_measured_from_the_second_iteration_on(store):
    drift = Drift()
    stopping = partial(watch, limits=Limits(max_repeat_of_earlier=0.5))

    def filtered(iteration: int) -> None:
        table = written(store, iteration, "solver")
        drift.after_writing(table, table.at)
        place = store.run("r").iteration(iteration)
        chosen = publish(place, "selections", row("selections", task_id="t", kept=True))
        drift.after_filter(stopping, place, "p", chosen, ())

    filtered(1)
    with pytest.raises(Alarm, match=r"repeat_of_earlier is 1, the limit is 0\.5"):
        filtered(2)
    measures = query(store.root, "select iteration, metric from evaluations order by all")
    assert [tuple(measure.values()) for measure in measures] == [
        (1, "kept"),
        (2, "kept"),
        (2, "kept_ratio"),
        (2, "repeat_of_earlier"),
    ]
