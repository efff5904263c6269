"""Every rule is silent up to its bound and speaks beyond it.

Shares count by Wilson's lower bound at two standard errors: for 16 of 200 it is 0.0494, for 17 of
200 it is 0.0532, so that a rule with the bound 0.05 speaks from 17 on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.rows import row
from tests.tasks.findings.given import RUN, at, rows, score, sentence
from tests.tasks.findings.test_judge_rules import judged
from tests.tasks.findings.test_sabotaged_runs import (
    candidates,
    contrasts,
    read,
    reinforced,
    replied,
    scored,
    wrote,
)
from tests.tasks.findings.test_training_rules import trained
from warehouse.schemas import TABLES
from warehouse.store import Store

Lay = Callable[[Store, Any], object]


def canaries(store: Store, num_wrong: int, wrong: int | None = 0) -> None:
    shown = [
        {"criterion_id": str(n), "verdict": wrong if n < num_wrong else 1, "expected": 1}
        for n in range(200)
    ]
    rows(at(store, 1), "judgments", *shown)


def rising_contrast(store: Store, num_flat: int) -> None:
    contrasts(store, 1, num_flat=0)
    contrasts(store, 2, num_flat=num_flat)


def held_out(store: Store, num_shared: int) -> None:
    texts = [{"task_id": f"h{n}", "text": f"question {n} ?"} for n in range(200)]
    rows(store.run(RUN).iteration(0).phase("benchmark"), "tasks", *texts)
    rows(at(store, 1), "tasks", *texts[:num_shared], {"task_id": "own", "text": "another"})


def labelled_alike(store: Store, num_alike: int) -> None:
    texts = ["The answer is:" if n < num_alike else f"{n}" for n in range(200)]
    labels = [{"task_id": str(n), "answer": text} for n, text in enumerate(texts)]
    rows(at(store, 1), "labels", *labels)


def measured(store: Store, metric: str, share: float, n: int) -> None:
    score(at(store, 1), "judge monitor", metric, n=n, score=share)


def surplus(store: Store, value: float) -> None:
    for iteration, mean in ((1, 0.0), (2, value)):
        given = {"n": 400, "score": mean, "standard_error": 0.02}
        score(at(store, iteration), "judge monitor", "judge_minus_oracle", **given)


def repeated_later(store: Store, num_repeats: int) -> None:
    wrote(store, 1, num_repeats=1, num_tasks=100)
    wrote(store, 2, num_repeats=num_repeats, num_tasks=100)


def unread_later(store: Store, first: int, then: int) -> None:
    read(store, 1, num_malformed=first)
    read(store, 2, num_malformed=then)


def cut_off(store: Store, num_cut: int) -> None:
    """A hundred replies of ten tokens."""
    sampled = [
        {
            "rollout_id": str(n),
            "role": "solver",
            "finish_reason": "length" if n < num_cut else "final",
            "num_sampled_tokens": 10,
        }
        for n in range(100)
    ]
    rows(at(store, 1), "rollouts", *sampled)


def grown(store: Store, length: int) -> None:
    replied(store, 1, length=30, pays=True)
    replied(store, 2, length=length, pays=True)


def sampler(store: Store, kl: float) -> None:
    update = {"role": "solver", "policy": "p1", "metrics": {"sampler_kl": kl, "mean_ratio": 1.0}}
    rows(at(store, 1), "updates", update)


def stale(store: Store, num_stale: int) -> None:
    """An update of the policy p1 on twenty rollouts, some of p0."""
    for name in ("p0", "p1"):
        policy = {"policy": name, "role": "solver", "policy_hash": f"hash of {name}"}
        rows(store.run(RUN).phase(name), "policies", policy)
    policies = ["p0" if n < num_stale else "p1" for n in range(20)]
    sampled = [
        {"rollout_id": str(n), "role": "solver", "policy": name, "policy_hash": f"hash of {name}"}
        for n, name in enumerate(policies)
    ]
    rows(at(store, 1), "rollouts", *sampled)
    batch = ({"rollout_id": str(n), "advantage": 1.0} for n in range(20))
    rows(at(store, 1), "batches", *batch)
    rows(at(store, 1), "updates", {"role": "solver", "policy": "p2", "parent": "p1"})


def took(store: Store, generate_s: float, match_s: float) -> None:
    for table, stage, seconds in (
        ("rollouts", "generate", generate_s),
        ("matches", "match", match_s),
    ):
        recipe = {"key": table, "stage": f"tasks.{stage}", "started_at": 0.0, "counts": {}}
        with store.draft(TABLES[table]) as draft:
            draft.write([row(table)])
            store.publish(draft, at(store, 1).address(table), {**recipe, "seconds": seconds})


def shrunk(store: Store, num_kept: int, num_updates: int) -> None:
    trained(store, 1, num_kept=90, num_updates=8)
    trained(store, 2, num_kept=num_kept, num_updates=num_updates)


BOUNDS: list[tuple[str, Lay, Any, Any]] = [
    ("canaries_misjudged", canaries, 16, 17),
    ("canaries_misjudged", lambda s, k: canaries(s, k, wrong=None), 16, 17),
    ("filter_keeps_judge_errors", lambda s, k: candidates(s, 1, num_wrong=k, num_kept=100), 9, 10),
    ("groups_without_contrast", lambda s, k: contrasts(s, 1, num_flat=k), 37, 38),
    ("groups_without_contrast", rising_contrast, 26, 27),
    ("held_out_in_training", held_out, 4, 5),
    # of 40 criteria; every wrong one has two wrong verdicts
    ("judge_errs_in_training", lambda s, k: judged(s, 1, wrong=set(range(k))), 2, 3),
    ("labels_alike", labelled_alike, 114, 115),
    ("length_is_rewarded", grown, 45, 46),
    ("pool_shrinks", lambda s, k: shrunk(s, k, num_updates=4), 46, 45),
    ("pool_shrinks", lambda s, k: shrunk(s, 45, num_updates=k), 5, 4),
    # all k of k largest advantages, where k + 1 of 100 are doubtful: 0.04 ** 2 and 0.03 ** 2
    (
        "reinforced_by_doubtful_verdicts",
        lambda s, k: reinforced(s, {0, 1, *range(10, 10 + k)}),
        2,
        1,
    ),
    ("replies_grow", grown, 54, 55),
    ("replies_unreadable", lambda s, k: read(s, 1, num_malformed=k), 88, 89),
    ("replies_unreadable", lambda s, k: unread_later(s, first=60, then=k), 60, 61),
    ("replies_unreadable", lambda s, k: unread_later(s, first=0, then=k), 16, 17),
    ("rewards_at_chance", lambda s, share: measured(s, "reward_error", share, 1000), 0.451, 0.452),
    ("rewards_leave_the_truth", surplus, 0.129, 0.131),
    ("sampler_and_trainer_disagree", sampler, 0.005, 0.0051),
    # three standard errors of the difference are 0.0849
    ("score_falls", lambda s, fall: scored(s, 0.6, 0.6 - fall), 0.084, 0.086),
    ("stale_policy", stale, 1, 2),
    # of the k equal texts of one iteration, k - 1 repeat the first
    ("tasks_repeat", lambda s, k: wrote(s, 1, num_repeats=k, num_tasks=100), 61, 62),
    ("tasks_repeat", repeated_later, 22, 23),
    ("time_elsewhere", lambda s, match_s: took(s, 1000.0, match_s), 1800.0, 1801.0),
    ("time_elsewhere", lambda s, generate_s: took(s, generate_s, 2000.0), 3720.0, 3700.0),
    # at 50 tokens for each reply that is cut off and 10 for the others
    ("tokens_cut_off", lambda s, k: read(s, 1, num_malformed=k), 16, 17),
    ("tokens_cut_off", cut_off, 30, 31),
    ("wrong_references", lambda s, share: measured(s, "label_error", share, 200), 0.2, 0.205),
]


@pytest.mark.parametrize(
    ("rule", "lay", "value"), [(rule, lay, value) for rule, lay, value, _ in BOUNDS]
)
def test_a_rule_is_silent_up_to_its_bound(store: Store, rule: str, lay: Lay, value: float) -> None:
    lay(store, value)
    assert sentence(store, rule) is None


@pytest.mark.parametrize(
    ("rule", "lay", "value"), [(rule, lay, value) for rule, lay, _, value in BOUNDS]
)
def test_a_rule_speaks_beyond_its_bound(store: Store, rule: str, lay: Lay, value: float) -> None:
    lay(store, value)
    assert sentence(store, rule) is not None
