"""Pairs of replies from labels and rewards, the rows that are trained on, and what is measured."""

from __future__ import annotations

from typing import Any

import pytest

from tasks.preferences import pairs, preference_batch, preference_measure
from tests.support.rows import publish, row, turn


def reply(name: str, prompt: str, words: list[int], sample: int = 0) -> dict:
    ids = {
        "context_token_ids": [7, 7],
        "sampled_token_ids": words,
        "logprobs": [-0.5] * len(words),
    }
    return row(
        "rollouts", rollout_id=name, prompt_id=prompt, sample=sample, turns=[turn("x", **ids)]
    )


def label(subject: str, opinion: str | None, kind: str = "rollout", who: str = "ann") -> dict:
    return row("annotations", kind=kind, subject=subject, opinion=opinion, labeller=who)


def prompt(name: str, task: str | None = None) -> dict:
    return row("prompts", prompt_id=name, task_id=task)


def find(place, rollouts: list[dict], prompts: list[dict] | None = None, **given) -> list[dict]:
    """The rows of `pairs`; tables of opinions are given as rows."""
    settings = {"pairs_per_prompt": 4, "held_out": 0.0, "seed": 0}
    opinions = {}
    for name, value in given.items():
        if name in ("annotations", "rewards"):
            opinions[name] = publish(place, name, *value)
        elif name == "votes":
            opinions["verdicts"] = [publish(place, "votes", *value)]
        else:
            settings[name] = value
    found = pairs(
        place,
        publish(place, "rollouts", *rollouts),
        publish(place, "prompts", *(prompts or [prompt("p"), prompt("q")])),
        **opinions,
        **settings,
    )
    return found.rows()


def chosen_and_rejected(rows: list[dict]) -> list[tuple[str, str]]:
    return [(row["chosen"], row["rejected"]) for row in rows if row["kept"]]


def test_the_best_reply_is_paired_with_the_worst_and_no_reply_is_in_two_pairs(place):
    replies = [reply(name, "p", [i], sample=i) for i, name in enumerate("abcde")]
    rewards = [
        row("rewards", rollout_id=name, reward=value)
        for name, value in zip("abcde", (0.2, 1.0, 0.5, 0.0, None), strict=True)
    ]
    found = find(place, replies, rewards=rewards)
    assert chosen_and_rejected(found) == [("b", "d"), ("c", "a")]
    assert found[0]["why"] == "chosen: reward 1; rejected: reward 0"
    assert (found[1]["chosen_worth"], found[1]["rejected_worth"]) == (0.5, 0.2)


def test_labels_of_people_decide_and_each_pair_says_whose(place):
    replies = [reply("a", "p", [1]), reply("b", "p", [2], 1), reply("c", "p", [3], 2)]
    labels = [
        label("a", "bad"),
        label("a", "hack", who="ben"),
        label("b", "good", who="ben"),
        label("b", None),  # a note
        label("c", "unsure"),
    ]
    [found] = find(place, replies, annotations=labels)
    assert (found["chosen"], found["rejected"]) == ("b", "a")
    assert found["why"] == "chosen: good (ben); rejected: bad (ann), hack (ben)"


@pytest.mark.parametrize("opinion", ["unsure", None])
def test_who_is_not_sure_of_a_verdict_says_nothing(place, opinion):
    replies = [reply(f"v{i}", "p", [i], sample=i) for i in range(2)]
    votes = [row("votes", judge_rollout_id=f"v{i}", vote=i) for i in range(2)]
    found = find(place, replies, votes=votes, annotations=[label("v0", opinion, "verdict")])
    assert chosen_and_rejected(found) == []


def test_a_label_of_one_verdict_tells_which_of_all_verdicts_on_the_prompt_are_right(place):
    replies = [reply(f"v{i}", "p", [i], sample=i) for i in range(4)]
    votes = [
        row("votes", judge_rollout_id=f"v{i}", vote=vote) for i, vote in enumerate([1, 0, 1, None])
    ]
    found = find(place, replies, votes=votes, annotations=[label("v0", "bad", "verdict")])
    assert chosen_and_rejected(found) == [("v1", "v2")] or chosen_and_rejected(found) == [
        ("v1", "v0")
    ]
    assert found[0]["why"] == "chosen: verdict 0 is right (ann); rejected: verdict 1 is wrong (ann)"


def test_divided_labels_of_verdicts_are_no_opinion(place):
    replies = [reply("v0", "p", [1]), reply("v1", "p", [2], 1)]
    votes = [row("votes", judge_rollout_id=f"v{i}", vote=i) for i in range(2)]
    labels = [label("v0", "good", "verdict"), label("v0", "bad", "verdict", "ben")]
    assert find(place, replies, votes=votes, annotations=labels) == []


@pytest.mark.parametrize(
    ("replies", "labels", "reason"),
    [
        ([reply("a", "p", [1])], [label("a", "good")], "only one reply has an opinion"),
        (
            [reply("a", "p", [1]), reply("b", "p", [2], 1)],
            [label("a", "good"), label("b", "good")],
            "all opinions are equal",
        ),
        (
            [reply("a", "p", [1, 2]), reply("b", "p", [1, 2], 1)],
            [label("a", "good"), label("b", "bad")],
            "both replies say the same",
        ),
        (
            [reply("a", "p", [1]), reply("b", "p", [2] * 9, 1)],
            [label("a", "good"), label("b", "bad")],
            "a reply with its prompt has more than 10 tokens",
        ),
    ],
)
def test_a_prompt_without_a_usable_pair_has_a_row_with_the_reason(place, replies, labels, reason):
    [found] = find(place, replies, annotations=labels, max_tokens=10)
    assert (found["kept"], found["reason"]) == (False, reason)


def test_the_same_two_replies_are_one_pair(place):
    replies = [reply(f"r{i}", "p", [i % 2], sample=i) for i in range(4)]
    labels = [label(f"r{i}", "good" if i % 2 else "bad") for i in range(4)]
    found = find(place, replies, annotations=labels)
    assert [row["reason"] for row in found] == [None, "another pair of the prompt says the same"]


def test_prompts_of_one_task_are_held_out_together(place):
    prompts = [prompt(f"p{i}", task=f"t{i // 2}") for i in range(80)]
    replies = []
    labels = []
    for i in range(80):
        replies += [reply(f"a{i}", f"p{i}", [1]), reply(f"b{i}", f"p{i}", [2], 1)]
        labels += [label(f"a{i}", "good"), label(f"b{i}", "bad")]
    found = find(place, replies, prompts, annotations=labels, held_out=0.5)
    held_out = {row["prompt_id"]: row["held_out"] for row in found}
    assert all(held_out[f"p{i}"] == held_out[f"p{i + 1}"] for i in range(0, 80, 2))
    assert 20 < sum(held_out.values()) < 60


def test_a_batch_has_the_kept_pairs_side_by_side_with_advantages_1_and_minus_1(place):
    rollouts = publish(
        place,
        "rollouts",
        *(reply(name, "p", [i + 1, 9]) for i, name in enumerate(["a", "b", "c", "d", "e"])),
    )
    compared = publish(
        place,
        "pairs",
        row("pairs", pair_id="p-0", chosen="c", rejected="a", kept=True),
        row("pairs", pair_id="p-1", chosen="b", rejected="a", kept=False, reason="no"),
        row("pairs", pair_id="q-0", chosen="d", rejected="e", kept=True, held_out=True),
    )
    found = preference_batch(place, rollouts, compared, held_out=False).rows()
    assert [(d["rollout_id"], d["advantage"]) for d in found] == [("c", 1.0), ("a", -1.0)]
    assert found[0]["completion_token_ids"] == [3, 9]


def test_the_measure_counts_sampled_tokens_only():
    batch: list[Any] = [{"loss_mask": [1, 0, 1], "rollout_id": name} for name in "ab"]

    def scores(a: float, b: float) -> list[Any]:
        return [
            {"rollout_id": "a", "datum": 0, "logprobs": [a, -50.0, -1.0]},
            {"rollout_id": "b", "datum": 0, "logprobs": [b, 0.0, -1.0]},
        ]

    found = dict(preference_measure(batch, scores(-1.0, -2.0), scores(-3.0, -2.0)))
    assert found == {"prefers_chosen": 1.0, "log_odds": 1.0, "margin": 2.0}
