"""Given rows of runs that were sabotaged in one way each, what the rules say; and what they say of
the same rows without it: nothing."""

from typing import Any

import pytest

from tasks.reports.data import open_source
from tasks.reports.learning import held_out_tiles
from tasks.rollouts.replies import NOBODY
from tests.support.rows import publish, row
from tests.tasks.findings.given import RUN, at, found, rows, score, sentence
from warehouse.schemas import TABLES
from warehouse.store import Store


def spoken(store: Store, rule: str) -> str:
    said = sentence(store, rule)
    assert said is not None
    return said


# the difficulty filter


def candidates(
    store: Store, iteration: int, num_wrong: int, num_kept: int = 30, is_kept: bool = True
) -> None:
    """Kept tasks with a mean score of 0.75 by four verdicts; in the first `num_wrong` the one that
    failed is met in truth, so their true mean is 1 and outside the filter's bounds."""
    place = at(store, iteration, "pool")
    ids = [f"i{iteration}-{n}" for n in range(num_kept)]
    bounds = '{"low": 0.2, "high": 0.8}'
    rows(
        place,
        "selections",
        *(
            {"task_id": i, "kept": is_kept, "mean_score": 0.75, "num_judged": 4, "bounds": bounds}
            for i in ids
        ),
    )
    judgments: list[dict[str, Any]] = []
    for number, task in enumerate(ids):
        for criterion in range(4):
            failed = criterion == 3
            truth = 0 if failed and number >= num_wrong else 1
            judgments.append(
                {
                    "rollout_id": f"{task}-a",
                    "task_id": task,
                    "criterion_id": f"{task}-{criterion}",
                    "verdict": 0 if failed else 1,
                    "oracle": truth,
                }
            )
    rows(place, "judgments", *judgments)


def test_a_filter_that_selects_the_judges_errors_is_found_with_its_tasks(store):
    candidates(store, 1, num_wrong=0)
    candidates(store, 2, num_wrong=8)
    finding = found(store, "filter_keeps_judge_errors")
    assert finding is not None
    assert finding.sentence == (
        "27% of the tasks that iteration 2 kept (8 of 30) lie outside the filter's own bounds"
        " according to the truth: the judge's errors let them through (0 of 30 before)."
    )
    assert {kept["task_id"] for kept in finding.rows} == {f"i2-{n}" for n in range(8)}
    assert {kept["num_false_fails"] for kept in finding.rows} == {1}


def test_a_filter_that_lets_as_many_errors_through_as_before_is_found_in_its_first_iteration(store):
    candidates(store, 1, num_wrong=8)
    candidates(store, 2, num_wrong=9)
    finding = found(store, "filter_keeps_judge_errors")
    assert finding is not None
    assert (finding.iteration, finding.compared_with) == (1, None)


def test_errors_on_tasks_that_a_filter_dropped_are_not_its_own(store):
    candidates(store, 1, num_wrong=8, is_kept=False)
    assert sentence(store, "filter_keeps_judge_errors") is None


def test_two_kept_tasks_of_thirty_may_be_chance(store):
    candidates(store, 1, num_wrong=0)
    candidates(store, 2, num_wrong=2)
    assert sentence(store, "filter_keeps_judge_errors") is None


# advantages


def reinforced(store: Store, doubtful: set[int], verdict: int | None = 0) -> None:
    """A hundred groups of one reinforced and one weakened answer; the largest advantages first. In
    the groups in `doubtful` both answers are failed, or unreadable, though they are right."""
    judgments: list[dict[str, Any]] = []
    advantages: list[dict[str, Any]] = []
    for group in range(100):
        for sign in (1, -1):
            rollout = f"g{group:03d}-{sign}"
            advantages.append(
                {
                    "rollout_id": rollout,
                    "group_id": f"g{group}",
                    "advantage": sign * (3 - group / 50),
                }
            )
            judgments.append(
                {
                    "rollout_id": rollout,
                    "task_id": f"g{group}",
                    "criterion_id": f"g{group}-0",
                    "verdict": verdict if group in doubtful else 1,
                    "oracle": 1,
                }
            )
    rows(at(store, 1), "judgments", *judgments)
    rows(at(store, 1), "advantages", *advantages)
    batch = ({"rollout_id": a["rollout_id"], "advantage": a["advantage"]} for a in advantages)
    rows(at(store, 1), "batches", *batch)


@pytest.mark.parametrize("verdict", [0, None])
def test_the_most_reinforced_answers_that_rest_on_wrong_or_unread_verdicts_are_found(
    store, verdict
):
    reinforced(store, {0, 1}, verdict)
    finding = found(store, "reinforced_by_doubtful_verdicts")
    assert finding is not None
    assert finding.sentence.startswith("The 2 largest advantages of the run (+3.00, +2.98) rest on")
    assert (finding.number, finding.compared_with) == (2, 0.02)
    assert [a["rollout_id"] for a in finding.rows] == ["g000-1", "g000--1", "g001-1", "g001--1"]


@pytest.mark.parametrize(("num_doubtful", "is_found"), [(1, True), (0, False)])
def test_an_answer_is_doubtful_if_half_of_its_group_is(store, num_doubtful, is_found):
    """Groups of two, in which the reinforced answer is judged rightly."""
    reinforced(store, set(range(100)), verdict=1)
    wrong = [f"g00{group}--1" for group in (0, 1)][: 2 * num_doubtful]
    judgments = (
        {"rollout_id": name, "criterion_id": "more", "verdict": 0, "oracle": 1} for name in wrong
    )
    rows(at(store, 1, step=2), "judgments", *judgments)
    assert (sentence(store, "reinforced_by_doubtful_verdicts") is not None) == is_found


@pytest.mark.parametrize(("opinion", "is_found"), [("bad", True), ("good", False)])
def test_a_verdict_that_people_call_bad_is_doubtful(store, opinion, is_found):
    reinforced(store, set())
    judgments = []
    for group in (0, 1):
        name = f"g00{group}-1"
        given = {"verdict": 1, "judge_rollout_id": f"j{group}", "criterion_id": "more"}
        judgments.append({"rollout_id": name, **given})
    rows(at(store, 1, step=2), "judgments", *judgments)
    labels = ({"subject": f"j{group}", "kind": "verdict", "opinion": opinion} for group in (0, 1))
    rows(store.run(RUN), "annotations", *labels)
    assert (sentence(store, "reinforced_by_doubtful_verdicts") is not None) == is_found


def test_a_canary_that_is_misjudged_makes_no_answer_doubtful(store):
    reinforced(store, set())
    planted = (
        {"rollout_id": f"g00{group}-1", "verdict": 0, "oracle": 1, "expected": 1}
        for group in (0, 1)
    )
    rows(at(store, 1, step=2), "judgments", *planted)
    assert sentence(store, "reinforced_by_doubtful_verdicts") is None


def test_doubtful_verdicts_below_the_largest_advantage_are_no_finding(store):
    reinforced(store, {1, 2})
    assert sentence(store, "reinforced_by_doubtful_verdicts") is None


def test_where_a_third_of_all_is_doubtful_two_at_the_top_are_chance(store):
    reinforced(store, {0, 1, *range(10, 41)})
    assert sentence(store, "reinforced_by_doubtful_verdicts") is None


def contrasts(store: Store, iteration: int, num_flat: int, num_groups: int = 40) -> None:
    rewarded = []
    for group in range(num_groups):
        for sign in (1, -1):
            advantage = 0 if group < num_flat else sign
            rewarded.append(
                {
                    "rollout_id": f"i{iteration}-{group}-{sign}",
                    "group_id": f"i{iteration}-{group}",
                    "reward": 1.0,
                    "advantage": advantage,
                }
            )
    rows(at(store, iteration), "advantages", *rewarded)


def test_groups_that_lose_their_contrast_are_found(store):
    contrasts(store, 1, num_flat=4)
    contrasts(store, 2, num_flat=30)
    assert spoken(store, "groups_without_contrast").startswith(
        "75% of the groups that iteration 2 rewarded in the training phase (30 of 40) have no"
    )


def test_flat_groups_that_were_as_many_from_the_first_are_no_finding(store):
    contrasts(store, 1, num_flat=26)
    contrasts(store, 2, num_flat=27)
    assert sentence(store, "groups_without_contrast") is None


def test_a_group_of_one_reply_and_replies_without_a_reward_have_no_contrast_to_lose(store):
    alone = [
        {"rollout_id": f"alone{n}", "group_id": f"alone{n}", "reward": 1.0, "advantage": 0.0}
        for n in range(100)
    ]
    unscorable = [
        {"rollout_id": f"lost{n}", "group_id": f"lost{n // 2}", "reward": None, "advantage": 0.0}
        for n in range(200)
    ]
    contrasts(store, 1, num_flat=1, num_groups=10)
    rows(at(store, 1, step=2), "advantages", *alone, *unscorable)
    assert sentence(store, "groups_without_contrast") is None


# scores


def scored(store: Store, *scores: float) -> None:
    for iteration, value in enumerate(scores):
        place = store.run(RUN).iteration(iteration)
        score(place, "world", "score", n=400, score=value, standard_error=0.02)
        if iteration:
            reward = {"rollout_id": f"a{iteration}", "group_id": "g", "reward": float(iteration)}
            rows(at(store, iteration), "advantages", reward)
            rows(at(store, iteration), "answers", {"rollout_id": f"a{iteration}"})


def test_the_score_of_a_probe_that_falls_is_no_held_out_score(store):
    """Questions for a fixed opponent get harder: SPICE's figure 3."""
    scored(store, 0.4, 0.6, 0.7)
    for iteration, value in enumerate((0.55, 0.45, 0.35)):
        for phase in ("probe_fixed_reasoner", "replay"):
            place = store.run(RUN).iteration(iteration).phase(phase)
            score(place, "fixed Reasoner", "score", n=512, score=value, standard_error=0.022)
        place = store.run(RUN).iteration(iteration).phase("evaluation")
        score(place, "course monitor", "score", n=512, score=value, standard_error=0.022)
    assert sentence(store, "score_falls") is None
    with open_source(store, RUN, 2) as source:
        tiles = held_out_tiles(source.rows("evaluations"))
    assert [name for name, _, _ in tiles] == ["held-out score, world"]


def test_a_benchmark_in_the_phase_of_evaluations_that_falls_is_found(store):
    for iteration, value in enumerate((0.6, 0.4)):
        place = store.run(RUN).iteration(iteration).phase("evaluation")
        score(place, "exam", "score", n=400, score=value, standard_error=0.02)
    assert (sentence(store, "score_falls") or "").startswith("The score on exam fell from 0.600")


def test_a_score_that_falls_while_rewards_rise_is_found(store):
    scored(store, 0.4, 0.6, 0.45)
    # the fall of 0.15 is 5.3 of its standard errors, sqrt(2) * 0.02
    assert sentence(store, "score_falls") == (
        "The score on world fell from 0.600 ± 0.020 in iteration 1 to 0.450 ± 0.020 in iteration 2,"
        " while the mean reward of training answers rose from 1.00 to 2.00."
    )


def test_a_policy_that_learns_to_say_one_thing_is_found(store):
    """The first step has labels of their own, the second four in five alike but for a colon."""
    for step, num_alike in ((1, 0), (2, 16)):
        texts = [
            ("The answer is:" if n % 2 else "the answer is") if n < num_alike else f"answer {n}"
            for n in range(20)
        ]
        labels = [{"task_id": str(n), "answer": text} for n, text in enumerate(texts)]
        rows(at(store, 1, step=step), "labels", *labels)
        asked = [{"task_id": str(n), "text": f"question {n}"} for n in range(20)]
        rows(at(store, 1, step=step), "tasks", *asked)
    said = sentence(store, "labels_alike") or ""
    assert said.startswith("In iteration 1, '")
    assert said.endswith(
        "' is the label of 80% of a step's questions (16 of 20); in the first step the most"
        " frequent label had 5.0%: the policy is rewarded for one answer, whatever the question."
    )


def test_a_fall_within_two_standard_errors_is_no_finding(store):
    scored(store, 0.4, 0.6, 0.55)
    assert sentence(store, "score_falls") is None


# truth


def test_a_hackable_judge_whose_verdicts_leave_the_truth_is_found(store):
    metric = "judge_minus_oracle"
    for iteration, surplus in ((1, 0.01), (2, 0.2)):
        at_step = at(store, iteration)
        score(at_step, "judge monitor", metric, n=400, score=surplus, standard_error=0.02)
    assert sentence(store, "rewards_leave_the_truth") == (
        "Answers of iteration 2 are scored 0.20 above the truth on average (judge_minus_oracle, 400"
        " cases); in the first iteration 0.01."
    )


def test_a_score_of_an_iteration_is_the_mean_over_all_its_questions(store):
    """0.62 of 1,000 questions and 0.2 of 10 are 0.616, as before."""
    scored(store, 0.6, 0.62)
    few = store.run(RUN).iteration(1).phase("evaluation")
    score(few, "world", "score", n=10, score=0.1, standard_error=0.02)
    assert sentence(store, "score_falls") is None


def test_a_surplus_that_was_small_at_first_has_to_rise_by_more_than_its_error(store):
    """From 0.04 to 0.15, each with a standard error of 0.02: four of the rise's are 0.113."""
    for iteration, surplus in ((1, 0.04), (2, 0.15)):
        place = at(store, iteration)
        given = {"n": 400, "score": surplus, "standard_error": 0.02}
        score(place, "judge monitor", "judge_minus_oracle", **given)
    assert sentence(store, "rewards_leave_the_truth") is None


def test_the_error_of_a_surplus_falls_with_the_number_of_its_steps(store):
    """Four steps of 0.1, each with a standard error of 0.02: that of their mean is 0.01."""
    for step in (1, 2, 3, 4):
        place = at(store, 1, step=step)
        given = {"n": 100, "score": 0.1, "standard_error": 0.02}
        score(place, "judge monitor", "judge_minus_oracle", **given)
    assert spoken(store, "rewards_leave_the_truth").startswith(
        "Answers of iteration 1 are scored 0.10 above the truth"
    )


def test_a_surplus_within_its_error_is_no_finding(store):
    for iteration in (1, 2):
        score(
            at(store, iteration),
            "judge monitor",
            "judge_minus_oracle",
            n=100,
            score=0.1,
            standard_error=0.03,
        )
    assert sentence(store, "rewards_leave_the_truth") is None


@pytest.mark.parametrize(
    "metric, what, source",
    [
        ("gate_leak of truth", "tasks that passed every gate", "the truth"),
        ("reference_error", "reference answers", "the truth"),
        ("label_error", "majority labels", "the truth"),
        ("gate_leak of auditor", "tasks that passed every gate", "the auditor"),
    ],
)
def test_a_leaking_gate_and_wrong_references_are_found(store, metric, what, source):
    score(at(store, 1), "gate monitor", metric, n=100, score=0.05)
    score(at(store, 2), "gate monitor", metric, n=100, score=0.4)
    assert sentence(store, "wrong_references") == (
        f"40% of iteration 2's {what} are wrong according to {source} (100 checked);"
        " 5.0% in iteration 1."
    )


def test_rewards_that_err_as_often_upwards_as_downwards_are_found(store):
    for metric, share in (("reward_error", 0.7), ("verdict_error", 0.6)):
        score(at(store, 1), "judge monitor", metric, n=100, score=0.1)
        score(at(store, 2), "judge monitor", metric, n=100, score=share)
    assert sentence(store, "rewards_at_chance") == (
        "In iteration 2, rewards are wrong on 70% of the 100 answers checked against the truth;"
        " 10% in iteration 1; chance would be 50%."
    )


def test_half_of_the_answers_of_a_pilot_are_enough_to_tell(store):
    score(at(store, 1), "judge monitor", "reward_error", n=80, score=0.55)
    assert sentence(store, "rewards_at_chance") is not None


def test_rewards_of_few_answers_count_little(store):
    """All ten of one step are wrong, and 350 of the thousand of another: 36%."""
    score(at(store, 1, step=1), "judge monitor", "reward_error", n=10, score=1.0)
    score(at(store, 1, step=2), "judge monitor", "reward_error", n=1000, score=0.35)
    assert sentence(store, "rewards_at_chance") is None


def test_rewards_wrong_on_two_fifths_are_no_finding(store):
    score(at(store, 1), "judge monitor", "reward_error", n=1000, score=0.4)
    assert sentence(store, "rewards_at_chance") is None


def test_three_wrong_references_of_ten_are_too_few_to_tell(store):
    score(at(store, 1), "gate monitor", "reference_error", n=10, score=0.3)
    assert sentence(store, "wrong_references") is None


@pytest.mark.parametrize("num_wrong", [2, 20])
def test_a_judge_that_fails_on_canaries_is_found(store, num_wrong):
    canaries = (
        {
            "rollout_id": f"canary-1-{n}",
            "criterion_id": str(n),
            "verdict": int(n >= num_wrong),
            "expected": 1,
        }
        for n in range(100)
    )
    rows(at(store, 1), "judgments", *canaries)
    said = sentence(store, "canaries_misjudged")
    if num_wrong == 2:
        assert said is None
    else:
        expected = "The judge is wrong on 20% of the canaries of iteration 1 (20 of 100)."
        assert said == expected


# updates


@pytest.mark.parametrize("kl", [0.001, 0.08])
def test_a_sampler_at_another_temperature_than_the_trainer_is_found(store, kl):
    for step in (1, 2, 3):
        metrics = {"sampler_kl": kl if step == 2 else 0.0, "mean_ratio": 1.0}
        update = {"role": "solver", "policy": f"p{step}", "metrics": metrics}
        rows(at(store, 1, step=step), "updates", update)
    said = sentence(store, "sampler_and_trainer_disagree")
    if kl < 0.005:
        assert said is None
    else:
        assert said is not None and said.startswith(
            "Before the update of the solver in iteration 1, step 2, the trainer's policy was"
            " 0.0800 nats per token from the sampler's; 1 of 3 updates exceed 0.005."
        )


def test_later_steps_of_an_update_may_leave_the_sampler(store):
    steps = [
        {
            "role": "solver",
            "policy": "p",
            "optimizer_step": step,
            "metrics": {"sampler_kl": 0.08 * step, "mean_ratio": 1.0},
        }
        for step in (0, 1)
    ]
    rows(at(store, 1), "updates", *steps)
    assert sentence(store, "sampler_and_trainer_disagree") is None


@pytest.mark.parametrize("player", ["solver", "policy"])
@pytest.mark.parametrize("sampled_by", ["p1", "p0"])
def test_updates_on_rollouts_of_an_earlier_policy_are_found(store, sampled_by, player):
    """Also of a player that speaks in a role of another name, as in SPICE."""
    for name in ("p0", "p1"):
        publish(
            store.run(RUN).phase(name),
            "policies",
            row("policies", policy=name, role=player, policy_hash=f"hash of {name}"),
        )
    place = at(store, 1)
    rollout = {"rollout_id": "a", "role": "solver", "policy": sampled_by}
    rows(place, "rollouts", {**rollout, "policy_hash": f"hash of {sampled_by}"})
    rows(place, "batches", {"rollout_id": "a", "advantage": 1.0})
    rows(place, "updates", {"role": player, "policy": "p2", "parent": "p1"})
    finding = found(store, "stale_policy")
    if sampled_by == "p1":
        assert finding is None
    else:
        assert finding is not None
        assert finding.sentence.startswith("100% of the rollouts that the updates of iteration 1")
        assert [stale["rollout_id"] for stale in finding.rows] == ["a"]


def test_given_replies_that_nobody_sampled_are_not_stale(store):
    policy = {"policy": "p1", "role": "solver", "policy_hash": "hash of p1"}
    rows(store.run(RUN), "policies", policy)
    place = at(store, 1)
    given = {"role": "solver", "policy": NOBODY.id, "policy_hash": NOBODY.content_hash}
    rows(place, "rollouts", {**given, "rollout_id": "a"})
    rows(place, "batches", {"rollout_id": "a", "advantage": 1.0})
    rows(place, "updates", {"role": "solver", "policy": "p2", "parent": "p1"})
    assert found(store, "stale_policy") is None


def test_each_step_is_compared_with_the_policy_that_it_updates(store):
    """Two steps, each on a rollout of its own policy."""
    for name in ("p1", "p2"):
        policy = {"policy": name, "role": "solver", "policy_hash": f"hash of {name}"}
        rows(store.run(RUN).phase(name), "policies", policy)
    for step in (1, 2):
        place = at(store, 1, step=step)
        rollout = {"rollout_id": f"a{step}", "role": "solver", "policy": f"p{step}"}
        rows(place, "rollouts", {**rollout, "policy_hash": f"hash of p{step}"})
        rows(place, "batches", {"rollout_id": f"a{step}", "advantage": 1.0})
        updated = {"role": "solver", "policy": f"p{step + 1}", "parent": f"p{step}"}
        rows(place, "updates", updated)
    assert found(store, "stale_policy") is None


def test_a_share_of_stale_rollouts_is_compared_with_that_of_the_first_iteration(store):
    """None of the first iteration's rollouts is stale, all of the second's are."""
    for name in ("p0", "p1"):
        policy = {"policy": name, "role": "solver", "policy_hash": f"hash of {name}"}
        rows(store.run(RUN).phase(name), "policies", policy)
    for iteration in (1, 2):
        place = at(store, iteration)
        rollout = {"rollout_id": f"a{iteration}", "role": "solver", "policy": "p0"}
        rows(place, "rollouts", {**rollout, "policy_hash": "hash of p0"})
        rows(place, "batches", {"rollout_id": f"a{iteration}", "advantage": 1.0})
        updated = {"role": "solver", "policy": f"p{iteration}", "parent": f"p{iteration - 1}"}
        rows(place, "updates", updated)
    finding = found(store, "stale_policy")
    assert finding is not None
    assert (finding.iteration, finding.number, finding.compared_with) == (2, 1.0, 0.0)


# replies


def replied(
    store: Store,
    iteration: int,
    length: int,
    pays: bool = False,
    num_paying: int = 10,
    malformed: str | None = None,
) -> None:
    """Ten groups of four answers around a length; with `pays` the longest earn most in
    `num_paying` groups, and the shortest in the others."""
    sampled: list[dict[str, Any]] = []
    paid: list[dict[str, Any]] = []
    for group in range(10):
        for sample in range(4):
            name = f"i{iteration}-{group}-{sample}"
            longer = sample - 1.5
            sampled.append(
                {
                    "rollout_id": name,
                    "role": "solver",
                    "finish_reason": "final",
                    "num_sampled_tokens": length + int(4 * longer),
                }
            )
            # without `pays`, half of the groups prefer the short ones
            prefers_long = group < num_paying if pays else group % 2 == 1
            sign = 1 if prefers_long else -1
            paid.append(
                {
                    "rollout_id": name,
                    "group_id": f"i{iteration}-{group}",
                    "reward": 1.0,
                    "advantage": sign * longer,
                }
            )
    place = at(store, iteration)
    rows(place, "rollouts", *sampled)
    answers = ({"rollout_id": a["rollout_id"], "answer": "x", "malformed": malformed} for a in paid)
    rows(place, "answers", *answers)
    rows(place, "advantages", *paid)
    rows(place, "updates", {"role": "solver", "policy": f"p{iteration}"})


def test_a_reward_that_pays_for_length_is_found_once_replies_grow(store):
    replied(store, 1, length=30, pays=True)
    replied(store, 2, length=60, pays=True)
    assert spoken(store, "length_is_rewarded").startswith(
        "Longer replies of the solver earn more, and replies are growing: in iteration 2 the"
        " correlation between length and advantage within groups is 1.00 (40 replies;"
    )
    assert spoken(store, "replies_grow").startswith(
        "Replies of the solver grew from 30 to 60 tokens"
    )


def test_replies_that_keep_their_length_or_pay_that_ignores_it_are_no_finding(store):
    replied(store, 1, length=30, pays=True)
    replied(store, 2, length=33, pays=True)
    assert sentence(store, "length_is_rewarded") is None
    assert sentence(store, "replies_grow") is None
    replied(store, 3, length=60)
    assert sentence(store, "length_is_rewarded") is None


@pytest.mark.parametrize(("num_paying", "is_found"), [(9, True), (8, False)])
def test_length_is_rewarded_if_nearly_all_groups_reward_it(store, num_paying, is_found):
    """Correlations of 0.8 and 0.6 in 40 replies are at least 0.54 and 0.20, three errors below."""
    replied(store, 1, length=30, pays=True, num_paying=num_paying)
    replied(store, 2, length=60, pays=True, num_paying=num_paying)
    assert (sentence(store, "length_is_rewarded") is not None) == is_found


def test_replies_that_cannot_be_read_do_not_tell_whether_length_is_rewarded(store):
    for iteration, length in ((1, 30), (2, 60)):
        replied(store, iteration, length, pays=True, malformed="no tag")
    assert sentence(store, "length_is_rewarded") is None


def sampled(
    store: Store, iteration: int, *lengths: int, role: str = "solver", ends: str = "final"
) -> None:
    """Replies of these lengths."""
    given = {"role": role, "finish_reason": ends}
    replies = (
        {"rollout_id": f"i{iteration}-{n}", "num_sampled_tokens": length, **given}
        for n, length in enumerate(lengths)
    )
    rows(at(store, iteration), "rollouts", *replies)


@pytest.mark.parametrize(
    ("first", "then", "changed", "is_found"),
    [
        ([10] * 30, [20] * 30, {}, True),
        ([10] * 29, [20] * 30, {}, False),  # too few
        # a mean of 20 with a standard error of 6.6
        ([10] * 30, [2] * 27 + [182] * 3, {}, False),
        ([10] * 30, [20] * 30, {"role": "judge"}, False),  # it is not trained
        ([10] * 30, [20] * 30, {"ends": "error"}, False),
    ],
)
def test_replies_grow_if_many_of_a_trained_role_are_longer(store, first, then, changed, is_found):
    rows(at(store, 1), "updates", {"role": "solver", "policy": "p1"})
    sampled(store, 1, *first, **changed)
    sampled(store, 2, *then, **changed)
    assert (sentence(store, "replies_grow") is not None) == is_found


def wrote(store: Store, iteration: int, num_repeats: int, num_tasks: int = 40) -> None:
    texts = ("the same" if n < num_repeats else f"task {iteration} {n}" for n in range(num_tasks))
    written = (
        {
            "task_id": f"i{iteration}-{n}",
            "rollout_id": f"i{iteration}-{n}",
            "prompt_id": f"p{iteration}-{n}",
            "text": text,
        }
        for n, text in enumerate(texts)
    )
    rows(at(store, iteration, "pool"), "tasks", *written)


def test_a_policy_that_repeats_its_tasks_is_found(store):
    wrote(store, 1, num_repeats=1)
    wrote(store, 2, num_repeats=20)
    # all 20 repeat the one of the first iteration
    assert sentence(store, "tasks_repeat") == (
        "50% of the tasks that iteration 2 wrote (20 of 40) repeat an earlier task word for word;"
        " in the first iteration 0%."
    )


def test_attempts_at_one_document_that_are_alike_do_not_repeat_each_other(store):
    """Six attempts at each of ten documents, each on a prompt of its own, ask the same."""
    for step in (1, 2):
        rows(
            at(store, 1, step=step),
            "tasks",
            *(
                {
                    "task_id": f"s{step}-{n}",
                    "rollout_id": f"s{step}-{n}",
                    "prompt_id": f"s{step}-{n}",
                    "document_id": f"s{step}-d{n // 6}",
                    "text": f"about s{step}-d{n // 6}",
                }
                for n in range(60)
            ),
        )
    assert sentence(store, "tasks_repeat") is None


def test_a_document_that_is_asked_about_again_in_the_same_words_is_found(store):
    for iteration in (1, 2):
        rows(
            at(store, iteration),
            "tasks",
            *(
                {
                    "task_id": f"i{iteration}-{n}",
                    "rollout_id": f"i{iteration}-{n}",
                    "document_id": f"d{n}",
                    "text": f"about d{n}",
                }
                for n in range(40)
            ),
        )
    assert sentence(store, "tasks_repeat") == (
        "100% of the tasks that iteration 2 wrote (40 of 40) repeat an earlier task word for word;"
        " in the first iteration 0%."
    )


def test_given_tasks_may_come_again(store):
    """Nobody wrote them: they have no rollout."""
    for iteration in (1, 2):
        given = ({"task_id": f"i{iteration}-{n}", "text": f"task {n}"} for n in range(40))
        rows(at(store, iteration), "tasks", *given)
    assert sentence(store, "tasks_repeat") is None


def test_a_few_repeated_tasks_are_no_finding(store):
    wrote(store, 1, num_repeats=1)
    wrote(store, 2, num_repeats=5)
    assert sentence(store, "tasks_repeat") is None


def read(store: Store, iteration: int, num_malformed: int) -> None:
    """A hundred replies; those that cannot be read were cut off, at 50 tokens instead of 10."""
    place = at(store, iteration)
    is_cut = [n < num_malformed for n in range(100)]
    rows(
        place,
        "rollouts",
        *(
            {
                "rollout_id": f"i{iteration}-{n}",
                "role": "solver",
                "finish_reason": "length" if cut else "final",
                "num_sampled_tokens": 50 if cut else 10,
            }
            for n, cut in enumerate(is_cut)
        ),
    )
    rows(
        place,
        "answers",
        *(
            {"rollout_id": f"i{iteration}-{n}", "malformed": "no tag" if cut else None}
            for n, cut in enumerate(is_cut)
        ),
    )


def test_replies_that_become_unreadable_are_found_and_so_are_their_tokens(store):
    read(store, 1, num_malformed=2)
    read(store, 2, num_malformed=30)
    assert spoken(store, "replies_unreadable").startswith(
        "30% of the solver's replies in iteration 2 (30 of 100, training phase) could not be read"
        " (in the first iteration 2.0%). Most frequent reason: no tag."
    )
    # 1,500 of 2,200 tokens
    assert spoken(store, "tokens_cut_off").startswith(
        "68% of the tokens that the solver sampled in iteration 2 went into 30 replies (30%)"
    )


def test_replies_that_fill_the_context_are_cut_off_too(store):
    sampled(store, 1, *[10] * 100, ends="context")
    assert spoken(store, "tokens_cut_off").startswith("100% of the tokens that the solver sampled")


def test_nearly_all_replies_of_a_first_iteration_that_cannot_be_read_are_found(store):
    read(store, 1, num_malformed=90)
    assert spoken(store, "replies_unreadable").startswith(
        "90% of the solver's replies in iteration 1 (90 of 100, training phase) could not be read."
    )


def test_a_small_model_that_has_yet_to_learn_the_form_is_no_finding(store):
    read(store, 1, num_malformed=75)
    assert sentence(store, "replies_unreadable") is None


def test_a_few_unreadable_replies_are_no_finding(store):
    read(store, 1, num_malformed=2)
    read(store, 2, num_malformed=9)
    assert sentence(store, "replies_unreadable") is None
    assert sentence(store, "tokens_cut_off") is None


# held-out questions


@pytest.mark.parametrize("num_shared", [0, 10])
def test_held_out_questions_in_training_are_found(store, num_shared):
    held_out = ({"task_id": f"h{n}", "text": f"Question {n} ?"} for n in range(100))
    rows(store.run(RUN).iteration(0).phase("benchmark"), "tasks", *held_out)
    # the case and the spaces differ
    training = ({"task_id": f"t{n}", "text": f"question  {n} ?"} for n in range(num_shared))
    rows(at(store, 1), "tasks", *training, {"task_id": "own", "text": "another"})
    finding = found(store, "held_out_in_training")
    if not num_shared:
        assert finding is None
    else:
        assert finding is not None
        assert finding.sentence.startswith("10 of 100 held-out questions (10%) occur word")
        assert finding.rows[0]["held_out_task_id"] == "h0"
        assert finding.page == "sql"  # no page of the viewer shows both


def test_questions_that_are_asked_before_training_are_no_training_tasks(store):
    questions = [{"task_id": f"h{n}", "text": f"Question {n} ?"} for n in range(40)]
    base = store.run(RUN).iteration(0)
    rows(base.phase("benchmark"), "tasks", *questions)
    rows(base.phase("evaluation"), "tasks", *questions)
    assert found(store, "held_out_in_training") is None


def test_a_file_of_questions_to_train_on_is_not_held_out(store):
    questions = [{"task_id": f"q{n}", "text": f"Question {n} ?"} for n in range(40)]
    rows(store.run(RUN).iteration(0).phase("questions"), "items", *questions)
    rows(at(store, 1), "tasks", *questions)
    assert found(store, "held_out_in_training") is None
    rows(store.run(RUN).iteration(0).phase("benchmark"), "items", questions[0])
    finding = found(store, "held_out_in_training")
    assert finding is not None
    assert finding.sentence.startswith("1 of 1 held-out questions (100%)")


# time


@pytest.mark.parametrize("seconds", [600, 6000])
def test_a_stage_that_takes_most_of_the_time_is_found_if_it_takes_long(store, seconds):
    for table, stage, took in (("rollouts", "generate", 1000), ("matches", "match", seconds)):
        recipe = {"key": table, "stage": f"tasks.{stage}", "started_at": 0.0, "counts": {}}
        with store.draft(TABLES[table]) as draft:
            draft.write([row(table)])
            store.publish(draft, at(store, 1).address(table), {**recipe, "seconds": float(took)})
    said = sentence(store, "time_elsewhere")
    if seconds == 600:
        assert said is None
    else:
        assert said == (
            "86% of the stages' time (1.7 h) was spent in match, which neither samples nor updates."
        )
