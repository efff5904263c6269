"""What an update trains on: which rollouts, cut into which datums, with which advantages."""

from types import SimpleNamespace

import pytest

from tasks.batch import batch, sampled_at
from tests.support.rows import publish, row, turn

LOGPROBS = pytest.approx([-0.5, 0.0, 0.0, -0.25, -0.125])


def rollout(name: str, *turns: dict, **given) -> dict:
    return row("rollouts", rollout_id=name, turns=list(turns), **given)


def reward(name: str, advantage: float) -> dict:
    return row("advantages", rollout_id=name, group_id="g", advantage=advantage)


def said(
    context: list[int], sampled: list[int], logprobs: list[float], continues: bool = False
) -> dict:
    about = {"context_token_ids": context, "sampled_token_ids": sampled, "logprobs": logprobs}
    return turn("x", **{**about, "continues": continues})


TALK = said([1, 2], [3], [-0.5]), said([4, 5], [6, 7], [-0.25, -0.125], continues=True)


def test_a_conversation_is_one_datum_and_only_what_was_sampled_is_trained_on(place):
    """The two tokens between its turns are read, not learned: their mask and log-probabilities
    are 0."""
    (found,) = batch(
        place,
        publish(place, "advantages", reward("a", 1.5)),
        publish(place, "rollouts", rollout("a", *TALK)),
    ).rows()
    assert found == {
        "rollout_id": "a",
        "datum": 0,
        "advantage": 1.5,
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3, 4, 5, 6, 7],
        "loss_mask": [1, 0, 0, 1, 1],
        "logprobs": LOGPROBS,
    }


def test_turns_with_prompts_of_their_own_are_datums_with_the_same_advantage(place):
    turns = said([1], [2], [-0.5]), said([1, 9], [3, 4], [-0.25, -0.5])
    rollouts = publish(place, "rollouts", rollout("a", *turns))
    found = batch(place, publish(place, "advantages", reward("a", -2.0)), rollouts).rows()
    assert [
        (r["datum"], r["advantage"], r["prompt_token_ids"], r["completion_token_ids"])
        for r in found
    ] == [
        (0, -2.0, [1], [2]),
        (1, -2.0, [1, 9], [3, 4]),
    ]
    assert [r["loss_mask"] for r in found] == [[1], [1, 1]]


def test_only_rewarded_rollouts_are_trained_on_those_without_advantage_too_and_each_with_its_own(
    place,
):
    rollouts = publish(
        place, "rollouts", *(rollout(n, said([1], [2], [-0.5])) for n in "abcd"), label="one"
    )
    more = publish(place, "rollouts", rollout("e", said([1], [5], [-0.5])), label="two")
    rewards = publish(place, "advantages", reward("c", 0.0), reward("a", 0.5), reward("e", -1.0))
    found = batch(place, rewards, [rollouts, more]).rows()
    assert [(r["rollout_id"], r["advantage"]) for r in found] == [
        ("a", 0.5),
        ("c", 0.0),
        ("e", -1.0),
    ]


def test_a_rollout_without_sampled_tokens_has_nothing_to_train_on(place):
    """This holds for a failed rollout and one from an API; a turn without tokens does not affect
    the other turns."""
    silent = rollout("a", said([1], [], []))
    failed = row("rollouts", rollout_id="b", turns=None)
    half = rollout("c", said([1], [], []), said([1], [2], [-0.5]))
    rewards = publish(place, "advantages", *(reward(n, 1.0) for n in "abc"))
    found = batch(place, rewards, publish(place, "rollouts", silent, failed, half)).rows()
    assert [(r["rollout_id"], r["datum"], r["completion_token_ids"]) for r in found] == [
        ("c", 0, [2])
    ]


def test_a_datum_over_the_limit_takes_its_whole_rollout_along_and_one_of_just_the_limit_stays(
    place,
):
    """Prompt + completion of the second are 2 + 2 tokens, of the first 1 + 1 and 3 + 2, of the
    third 3 + 2."""
    long = rollout("a", said([1], [2], [-0.5]), said([1, 2, 3], [4, 5], [-0.5, -0.5]))
    just = rollout("b", said([1, 2], [3, 4], [-0.5, -0.5]))
    joined = rollout("c", said([1, 2, 3], [4, 5], [-0.5, -0.5]))
    rewards = publish(place, "advantages", *(reward(n, 1.0) for n in "abc"))
    rollouts = publish(place, "rollouts", long, just, joined)
    assert [r["rollout_id"] for r in batch(place, rewards, rollouts, max_tokens=4).rows()] == ["b"]
    assert [r["rollout_id"] for r in batch(place, rewards, rollouts, label="all").rows()] == [
        "a",
        "a",
        "b",
        "c",
    ]


def test_tables_of_rewards_may_weigh_alike_whatever_their_tokens(place):
    """Of 4 tokens one role has 1 and the other 1 + 2 = 3: the mean over all tokens of 4 A and 4/3 A
    is the sum of both roles' means. A rollout that is too long does not count."""
    rollouts = publish(
        place,
        "rollouts",
        rollout("q", said([1], [2], [-0.5])),
        rollout("a", said([1], [2], [-0.5])),
        rollout("b", said([1], [2, 3], [-0.5, -0.5])),
        rollout("long", said([1] * 9, [2, 3], [-0.5, -0.5])),
    )
    asked = publish(place, "advantages", reward("q", 0.5), reward("long", 1.0), label="asked")
    answered = publish(
        place,
        "advantages",
        reward("a", 1.5),
        reward("b", 0.0),
        reward("gone", 1.0),
        label="answered",
    )
    plain = batch(place.step(9), [asked, answered], rollouts, max_tokens=9).rows()
    assert {r["rollout_id"]: r["advantage"] for r in plain} == {"q": 0.5, "a": 1.5, "b": 0.0}
    found = batch(place, [asked, answered], rollouts, max_tokens=9, equal_tables=True).rows()
    assert {r["rollout_id"]: r["advantage"] for r in found} == {
        "q": 2.0,
        "a": pytest.approx(2.0),
        "b": 0.0,
    }


def test_one_update_has_rollouts_of_one_temperature():
    one, other = (
        SimpleNamespace(recipe={"params": {"sampling": {"temperature": t}}}) for t in (0.7, 1.0)
    )
    assert sampled_at([one, one]) == 0.7  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"rollouts of temperatures \[0\.7, 1\.0\]"):
        sampled_at([one, other])  # type: ignore[list-item]


def test_datums_may_come_in_a_seeded_random_order(place):
    rollouts = publish(place, "rollouts", *(rollout(n, said([1], [2], [-0.5])) for n in "abcdefgh"))
    rewards = publish(place, "advantages", *(reward(n, 1.0) for n in "abcdefgh"))
    one, again, other = (
        [
            r["rollout_id"]
            for r in batch(place, rewards, rollouts, shuffle_seed=seed, label=label).rows()
        ]
        for seed, label in ((1, "one"), (1, "again"), (2, "other"))
    )
    assert one == again != other and sorted(one) == list("abcdefgh") != one
