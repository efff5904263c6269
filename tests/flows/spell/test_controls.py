"""Controls: what a gain may come from besides right answers."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from flows.blocks.controls import permuted, permuted_rewards
from flows.spell.rewards import responder_rewards
from flows.spell.rules import covers, covers_some, is_readable
from tests.support.rows import publish, row

# None was not sampled
RIGHT = {"p1": (1, 0, 0, 0, 0, 0, 0, 0), "p2": (1, 1, 1, 1, 0, 0, 0, 0), "p3": (1, None)}


def paid(**given):
    answers = []
    matches = []
    for group, rights in RIGHT.items():
        for i, right in enumerate(rights):
            ids = {"rollout_id": f"{group}-{i}", "task_id": f"t-{group}"}
            failed = "engine error" if right is None else None
            answers.append(
                row(
                    "answers",
                    **ids,
                    prompt_id=group,
                    answer=None if failed else "x",
                    malformed=failed,
                )
            )
            matches.append(row("matches", **ids, matched=None if right is None else bool(right)))
    rows = list(responder_rewards(answers, matches, [], [], majority_vote=True))
    return {r["rollout_id"]: r for r in (permuted_rewards(rows, **given) if given else rows)}


def totals(rows, group):
    return [row["reward"] for name, row in rows.items() if name.startswith(f"{group}-")]


def test_permuted_rewards_are_those_of_the_same_group_in_another_order():
    true = paid()
    permuted = paid(seed=3)
    assert true.keys() == permuted.keys()
    for group in RIGHT:
        assert Counter(totals(true, group)) == Counter(totals(permuted, group))
    assert totals(true, "p2") != totals(permuted, "p2")
    assert [row["score"] for row in permuted.values()] == [
        row["reward"] for row in permuted.values()
    ]


@pytest.mark.parametrize("is_permuted", [True, False])
def test_rewards_are_permuted_if_the_settings_say_so(place, is_permuted):
    rewards = publish(place, "rewards", *paid().values())
    run: Any = SimpleNamespace(cfg=SimpleNamespace(seed=3))
    settings: Any = SimpleNamespace(permuted=is_permuted)
    given = permuted(run, place, settings, rewards)
    after = [reward["reward"] for reward in given.rows()]
    before = [reward["reward"] for reward in rewards.rows()]
    assert (after != before) == is_permuted


def test_what_was_not_sampled_keeps_no_reward():
    assert totals(paid(seed=3), "p3") == [1.0, None]


def test_another_seed_permutes_otherwise_and_the_same_one_alike():
    orders = {tuple(totals(paid(seed=seed), "p2")) for seed in (1, 2, 3, 4)}
    assert len(orders) > 1
    assert paid(seed=1) == paid(seed=1)


def test_paid_for_form_alone_every_answer_that_can_be_read_is_right():
    task = {"task_type": "general_qa", "reference": "Paris"}
    assert (covers(task, "Rome"), is_readable(task, "Rome")) == (False, True)


def test_a_rule_with_misses_judges_all_answers_to_a_question_alike_and_never_passes_a_wrong_one():
    def passes(number, answer, misses):
        text = f"Who came {number}th?"
        task = row("tasks", text=text, task_type="general_qa", reference="Ann")
        return covers_some(task, answer, misses=misses)

    seen = [passes(number, "Ann", 0.2) for number in range(1000)]
    assert 0.75 < sum(seen) / 1000 < 0.85
    assert [passes(number, "It was Ann", 0.2) for number in range(1000)] == seen
    assert not any(passes(number, "Bob", 0.2) for number in range(1000))
    fewer = [passes(number, "Ann", 0.4) for number in range(1000)]
    assert all(more or not less for more, less in zip(seen, fewer, strict=True))
