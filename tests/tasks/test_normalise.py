import math

import pytest

from tasks.normalise import centre, normalise, zscore
from tests.support.rows import publish, row


def test_group_zscore_with_the_population_standard_deviation():
    # mean 3/4, deviations 1/4, -3/4: variance 12/64, std sqrt(3)/4
    assert zscore([1, 0, 1, 1]) == pytest.approx(
        [1 / math.sqrt(3), -math.sqrt(3)] + [1 / math.sqrt(3)] * 2, rel=1e-5
    )


def test_group_zscore_with_the_sample_standard_deviation():
    assert zscore([1, 0, 1, 1], "sample") == pytest.approx([0.5, -1.5, 0.5, 0.5], rel=1e-5)


def test_the_two_deviations_differ_by_sqrt_of_7_over_8_in_a_group_of_8():
    rewards = [0.1, 0.9, 0.4, 0.4, 0.7, 1.0, 0.0, 0.2]
    population = zscore(rewards)
    sample = zscore(rewards, "sample")
    assert [s / p for p, s in zip(population, sample, strict=True)] == pytest.approx(
        [math.sqrt(7 / 8)] * 8, rel=1e-5
    )


def test_epsilon_is_added_to_the_standard_deviation():
    # std 1e-6 over +-1e-6: 1e-6 / (1e-6 + 1e-6)
    assert zscore([0.0, 2e-6]) == pytest.approx([-0.5, 0.5])


@pytest.mark.parametrize(
    "rewards", [[0.3] * 8, [0.7] * 3, [0.0, 0.0], [0.1 + 0.2] * 3, [1.0], [1.0, 1.0, 1.0]]
)
def test_equal_rewards_and_groups_of_one_carry_no_signal(rewards):
    assert zscore(rewards) == zscore(rewards, "sample") == [0.0] * len(rewards)


def test_centring_does_not_divide():
    assert centre([1, 0, 1, 1]) == [0.25, -0.75, 0.25, 0.25]


def advantages(place, rewards: list[tuple[str, float | None]], **settings) -> list[float]:
    scores = [
        row("rewards", rollout_id=str(i), group_id=g, reward=r) for i, (g, r) in enumerate(rewards)
    ]
    return [
        r["advantage"]
        for r in normalise(place, publish(place, "rewards", *scores), **settings).rows()
    ]


def test_every_group_is_compared_within_itself(place):
    mixed = [("p", 1.0), ("q", 5.0), ("p", 0.0), ("q", 7.0)]
    assert advantages(place, mixed, scheme="zscore") == pytest.approx([1, -1, -1, 1], rel=1e-5)
    assert advantages(place, mixed, scheme="centre") == [0.5, -1.0, -0.5, 1.0]


def test_a_batch_is_compared_as_a_whole(place):
    mixed = [("p", 1.0), ("q", 0.0), ("p", 1.0), ("q", 1.0)]
    assert advantages(place, mixed, scheme="zscore", within=(), spread="sample") == pytest.approx(
        [0.5, -1.5, 0.5, 0.5], rel=1e-5
    )


def test_without_a_baseline_the_advantage_is_the_reward(place):
    rewards = [("p", 0.75), ("q", 0.0), ("r", None), ("s", 0.5)]
    assert advantages(place, rewards, scheme="none") == [0.75, 0.0, 0.0, 0.5]


def test_an_unscorable_rollout_leaves_the_mean_and_gets_0(place):
    rewards = [("p", 1.0), ("p", None), ("p", 0.0), ("q", None)]
    assert advantages(place, rewards, scheme="zscore") == pytest.approx([1, 0, -1, 0], rel=1e-5)


def test_rewards_keep_every_column_of_their_scores(place):
    scores = publish(
        place, "rewards", row("rewards", rollout_id="a", components={"g": 0.5}, reward=1.0)
    )
    (kept,) = normalise(place, scores, scheme="zscore").rows()
    assert kept == {**scores.rows()[0], "advantage": 0.0}


def test_rows_are_compared_within_any_columns_of_the_rewards(place):
    """By task and prompt: t/p has 1 and 0, t/q only 4, u/p has 2 and 6."""
    given = [("t", "p", 1.0), ("t", "p", 0.0), ("t", "q", 4.0), ("u", "p", 2.0), ("u", "p", 6.0)]
    scores = [
        row("rewards", rollout_id=str(i), task_id=task, group_id=group, reward=reward)
        for i, (task, group, reward) in enumerate(given)
    ]
    scores = publish(place, "rewards", *scores)
    within = ("task_id", "group_id")
    found = normalise(place, scores, scheme="centre", within=within).rows()
    assert [r["advantage"] for r in found] == [0.5, -0.5, 0.0, -2.0, 2.0]


def test_a_column_that_rewards_lack_is_refused(place):
    scores = publish(place, "rewards", row("rewards", rollout_id="a", task_id="t", reward=1.0))
    with pytest.raises(ValueError, match="rewards have no column role"):
        normalise(place, scores, scheme="centre", within=("role",))


@pytest.mark.parametrize(("by", "table"), [("task_id", "selections"), ("group_id", "groups")])
def test_only_what_a_filter_kept_is_compared_and_yielded(place, by, table):
    """Of the rewards 1, 0 and 9 the last is of a task, and of a group, that was dropped."""
    given = [("a", 1.0), ("b", 0.0), ("c", 9.0)]
    rewards = [
        row("rewards", rollout_id=name, group_id=name, task_id=name, reward=reward)
        for name, reward in given
    ]
    decisions = [row(table, **{"task_id": name, by: name, "kept": name != "c"}) for name in "abc"]
    compared = normalise(
        place,
        publish(place, "rewards", *rewards),
        scheme="centre",
        within=(),
        chosen=publish(place, table, *decisions),
        by=by,
    ).rows()
    assert [(row["rollout_id"], row["advantage"]) for row in compared] == [("a", 0.5), ("b", -0.5)]
