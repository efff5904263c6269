"""The judge on trial: agreement, kappa, groupings, wrong verdicts and what was asked again."""

import pytest

from tasks.judges.trial import card, hold_trial
from tests.tasks.findings.given import RUN, at, rows
from warehouse.lake import Lake
from warehouse.query import query

# rollout, criterion, verdict, truth
VERDICTS = [
    ("a", "t-0", 1, 1),
    ("a", "t-1", 0, 1),  # a false fail
    ("b", "t-0", 1, 0),  # a false pass
    ("b", "t-1", None, 1),  # unreadable
    ("c", "t-0", 0, 0),
    ("c", "t-1", 1, 1),
]


def judged(store):
    place = at(store, 1, "solving")
    rows(
        place,
        "judgments",
        *(
            {
                "rollout_id": rollout,
                "task_id": "t",
                "criterion_id": criterion,
                "verdict": verdict,
                "oracle": truth,
                "judge_rollout_id": f"j-{rollout}-{criterion}",
                "malformed": "no mark" if verdict is None else None,
            }
            for rollout, criterion, verdict, truth in VERDICTS
        ),
        {
            "rollout_id": "canary-1-t-0",
            "task_id": "t",
            "criterion_id": "t-0",
            "verdict": 1,
            "expected": 1,
            "judge_rollout_id": "j-canary",
        },
    )
    rows(
        place,
        "rubrics",
        {"criterion_id": "t-0", "task_id": "t", "position": 0, "priority": "critical"},
        {"criterion_id": "t-1", "task_id": "t", "position": 1, "priority": "bonus"},
    )
    rows(
        place,
        "rollouts",
        *(
            {"rollout_id": f"j-{rollout}-{criterion}", "role": "judge"}
            for rollout, criterion, _, _ in VERDICTS
        ),
        *({"rollout_id": i, "role": "solver", "num_sampled_tokens": 10} for i in "abc"),
    )
    advantages = [("a", 0.5), ("b", -2.0), ("c", 1.0)]
    rows(place, "advantages", *({"rollout_id": i, "advantage": value} for i, value in advantages))
    rows(place, "batches", *({"rollout_id": i, "advantage": value} for i, value in advantages))
    answers = [("a", "same"), ("b", "same"), ("c", "other")]
    rows(place, "answers", *({"rollout_id": i, "answer": text} for i, text in answers))


def test_agreement_kappa_and_the_weight_of_right_verdicts(store):
    judged(store)
    canary, truth = hold_trial(Lake(store), RUN).overall
    assert (canary["standard"], canary["n"], canary["agreement"]) == ("canary", 1, 1.0)
    # 3 of 6 right; the truth says yes 4 of 6, the judge 3 of 6: by chance 1/3 + 1/6 = 1/2
    assert (truth["n"], truth["num_right"], truth["agreement"], truth["kappa"]) == (6, 3, 0.5, 0)
    counts = ("num_false_pass", "num_false_fail", "num_unread")
    assert [truth[name] for name in counts] == [1, 1, 1]
    # |advantage| of right verdicts: a once, c twice = 2.5 of (0.5 + 2 + 1) * 2 = 7
    assert truth["weighted"] == pytest.approx(2.5 / 7)


def test_verdicts_are_grouped_by_priority_place_role_and_length_and_canaries_are_apart(store):
    judged(store)
    by = hold_trial(Lake(store), RUN).by
    priorities = {
        row["part"]: row["num_right"] for row in by["criterion"] if row["standard"] == "truth"
    }
    assert priorities == {"critical": 2, "bonus": 1}
    places = [row["part"].strip() for row in by["position"] if row["standard"] == "truth"]
    assert places == ["1", "2"]
    assert {row["part"] for row in by["role"]} == {"judge"}
    assert {row["what"] for row in by["phase"]} == {"criterion", "canary"}
    assert {row["part"].split()[0] for row in by["place"]} == {"1"}
    assert sum(row["n"] for row in by["length"]) == 6  # a canary has no length


def test_wrong_verdicts_stand_in_the_order_of_their_weight(store):
    judged(store)
    trial = hold_trial(Lake(store), RUN)
    assert trial.num_wrong == 3
    wrong = [(row["rollout_id"], row["criterion_id"], row["advantage"]) for row in trial.wrong]
    assert wrong == [("b", "t-0", -2.0), ("b", "t-1", -2.0), ("a", "t-1", 0.5)]


def test_two_verdicts_on_answers_of_the_same_text_are_compared(store):
    judged(store)
    (again,) = hold_trial(Lake(store), RUN).asked_again
    # t-0 of a and b: 1 and 1; t-1: one of them is unreadable
    assert (again["num_things"], again["num_verdicts"], again["agreement"]) == (1, 2, 1.0)


def test_a_verdict_that_people_call_bad_is_held_to_be_the_other_one(store):
    judged(store)
    opinions = [("j-a-t-0", "bad"), ("j-a-t-1", "bad"), ("j-b-t-0", "good"), ("j-c-t-0", "unsure")]
    rows(
        store.run(RUN),
        "annotations",
        *(
            {"kind": "verdict", "subject": i, "labeller": "me", "opinion": what}
            for i, what in opinions
        ),
    )
    labelled = query(
        store.root,
        "select judge_rollout_id, truth from verdicts where standard = 'label' order by all",
    )
    assert [(row["judge_rollout_id"], row["truth"]) for row in labelled] == [
        ("j-a-t-0", 0),
        ("j-a-t-1", 1),
        ("j-b-t-0", 1),
    ]


def test_people_who_are_divided_evenly_are_no_standard(store):
    judged(store)
    opinions = {"j-a-t-0": ("good", "bad"), "j-b-t-0": ("good", "bad", "good")}
    rows(
        store.run(RUN),
        "annotations",
        *(
            {"kind": "verdict", "subject": i, "labeller": f"person {n}", "opinion": opinion}
            for i, said in opinions.items()
            for n, opinion in enumerate(said)
        ),
    )
    labelled = query(
        store.root, "select judge_rollout_id, verdict, truth from verdicts where standard = 'label'"
    )
    assert [tuple(row.values()) for row in labelled] == [("j-b-t-0", 1, 1)]


def test_the_card_has_every_grouping_and_one_row_for_each_wrong_verdict(store):
    judged(store)
    text = card(hold_trial(Lake(store), RUN))
    assert "# The judge of r" in text and "## By position" in text
    assert text.partition("## Wrong verdicts")[2].count("\n| 1 | solving |") == 3


def test_a_run_without_verdicts_has_an_empty_trial_and_a_card_that_says_so(store):
    rows(at(store, 1), "answers", {"rollout_id": "a", "answer": "x"})
    trial = hold_trial(Lake(store), RUN)
    assert trial.overall == [] and trial.wrong == [] and trial.marks == []
    assert "No verdict of this run can be held against a standard" in card(trial)


def test_votes_are_held_against_the_rule_and_gates_against_the_auditor(store):
    place = at(store, 1)
    rows(
        place,
        "votes",
        {"judge_rollout_id": "v1", "rollout_id": "a", "task_id": "t", "vote": 1},
        {"judge_rollout_id": "v2", "rollout_id": "a", "task_id": "t", "vote": 0},
    )
    rows(place, "matches", {"rollout_id": "a", "task_id": "t", "matched": True})
    gate = {"task_id": "t", "kind": "model"}
    rows(
        place,
        "gates",
        {**gate, "gate": "source", "passed": True, "judge_rollout_id": "g"},
        {**gate, "gate": "auditor", "passed": False, "judge_rollout_id": "h"},
    )
    trial = hold_trial(Lake(store), RUN)
    found = {(row["what"], row["standard"]): row["agreement"] for row in trial.overall}
    assert found == {("gate source", "auditor"): 0.0, ("vote", "rule"): 0.5}
    assert [row["num_disputed"] for row in trial.asked_again] == [1]


def test_what_the_auditor_says_is_no_verdict_and_what_a_gate_refused_was_not_audited(store):
    """People agree with the auditor's reply, which no standard is held against."""
    gate = {"task_id": "t", "kind": "model"}
    rows(
        at(store, 1),
        "gates",
        {**gate, "gate": "passed it", "passed": True, "judge_rollout_id": "g"},
        {**gate, "gate": "refused it", "passed": False, "judge_rollout_id": "f"},
        {**gate, "gate": "auditor", "passed": True, "judge_rollout_id": "h"},
    )
    label = {"kind": "verdict", "subject": "h", "labeller": "me", "opinion": "good"}
    rows(store.run(RUN), "annotations", label)
    held = query(store.root, "select what, standard, truth from verdicts order by all")
    assert [tuple(verdict.values()) for verdict in held] == [("gate passed it", "auditor", 1)]


def test_a_task_is_sound_only_if_every_audit_says_so(store):
    gate = {"task_id": "t", "kind": "model"}
    rows(
        at(store, 1),
        "gates",
        {**gate, "gate": "source", "passed": True, "judge_rollout_id": "g"},
        {**gate, "gate": "auditor", "passed": True, "judge_rollout_id": "h"},
    )
    again = {**gate, "gate": "auditor", "passed": False, "judge_rollout_id": "i"}
    rows(at(store, 2), "gates", again)
    held = query(store.root, "select standard, truth from verdicts")
    assert [tuple(verdict.values()) for verdict in held] == [("auditor", 0)]


def test_criteria_are_not_compared_with_a_rule(store):
    """A task may have a reference and criteria: the rule is about the answer as a whole."""
    place = at(store, 1)
    given = {"rollout_id": "a", "task_id": "t", "criterion_id": "t-0", "judge_rollout_id": "j"}
    rows(place, "judgments", {**given, "verdict": 0})
    rows(place, "matches", {"rollout_id": "a", "task_id": "t", "matched": True})
    assert query(store.root, "select * from verdicts") == []


def test_a_false_pass_is_a_yes_where_the_truth_is_no(store):
    """Two verdicts pass wrongly and one fails wrongly."""
    verdicts = [(1, 0), (1, 0), (0, 1), (1, 1)]
    judgments = (
        {"rollout_id": "a", "criterion_id": str(n), "verdict": verdict, "oracle": truth}
        for n, (verdict, truth) in enumerate(verdicts)
    )
    rows(at(store, 1), "judgments", *judgments)
    [overall] = hold_trial(Lake(store), RUN, parts=()).overall
    assert (overall["num_right"], overall["num_false_pass"], overall["num_false_fail"]) == (1, 2, 1)


def test_verdicts_that_are_asked_again_are_compared_in_pairs_and_with_chance(store):
    """Of 1, 1 and 0 one pair in three agrees, of 1, 1 and 1 all do: 2/3. Five of six verdicts are
    yes, so two drawn from all of them agree in 25/36 + 1/36. Verdicts of another iteration are not
    compared with these."""
    texts = [{"rollout_id": name, "answer": "same"} for name in "abcd"]
    rows(at(store, 1), "answers", *texts)
    verdicts = {"t-0": (1, 1, 0), "t-1": (1, 1, 1)}
    judgments = (
        {"rollout_id": name, "criterion_id": criterion, "verdict": verdict}
        for criterion, of_answers in verdicts.items()
        for name, verdict in zip("abc", of_answers, strict=True)
    )
    rows(at(store, 1), "judgments", *judgments)
    rows(at(store, 2), "judgments", {"rollout_id": "d", "criterion_id": "t-0", "verdict": 0})
    [again] = hold_trial(Lake(store), RUN, parts=()).asked_again
    counts = [again[name] for name in ("num_things", "num_verdicts", "num_disputed")]
    assert counts == [2, 6, 1]
    assert (again["agreement"], again["chance"]) == pytest.approx((2 / 3, 26 / 36))


def judged_alike(store, num_answers: int, **given) -> None:
    """A criterion that each of some answers meets, though one of them should not."""
    judgments = (
        {
            "rollout_id": f"a{number}",
            "task_id": "t",
            "criterion_id": "t-0",
            "verdict": 1,
            "oracle": int(number > 0),
            **given,
        }
        for number in range(num_answers)
    )
    rows(at(store, 1), "judgments", *judgments)


@pytest.mark.parametrize(("num_answers", "num_all"), [(4, [1]), (3, [])])
def test_a_criterion_that_everybody_meets_is_counted_if_it_was_judged_often(
    store, num_answers, num_all
):
    judged_alike(store, num_answers)
    trial = hold_trial(Lake(store), RUN, parts=())
    assert [row["num_all"] for row in trial.criteria] == num_all
    assert [row["num_all_wrong"] for row in trial.criteria] == num_all
    assert [row["met_by"] for row in trial.one_sided] == ["everybody"] * len(num_all)


def test_canaries_are_no_answers_that_everybody_gives(store):
    judged_alike(store, 4, expected=1)
    trial = hold_trial(Lake(store), RUN, parts=())
    assert (trial.criteria, trial.one_sided) == ([], [])


def test_marks_are_compared_by_their_place_among_the_answers_shown(store):
    """At the first place 1, 0.5 and an unreadable one, at the second 1 and 1."""
    marks = [(0, 1.0), (0, 0.5), (0, None), (1, 1.0), (1, 1.0)]
    given = (
        {"judge_rollout_id": f"j{number}", "position": position, "mark": mark}
        for number, (position, mark) in enumerate(marks)
    )
    rows(at(store, 1), "marks", *given)
    columns = ("position", "n", "num_read", "mean", "top")
    placed = hold_trial(Lake(store), RUN, parts=()).marks
    assert [tuple(row[name] for name in columns) for row in placed] == [
        (0, 3, 2, 0.75, 0.5),
        (1, 2, 2, 1.0, 1.0),
    ]
    assert placed[0]["standard_error"] == pytest.approx(0.25)  # 0.354 / sqrt(2)
