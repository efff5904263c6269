"""Given rows, what the rules about judges say, or that they are silent."""

from tests.tasks.findings.given import at, found, rows, sentence


def judged(store, iteration: int, wrong: set[int], num_tasks: int = 20, advantage: float = 1.0):
    """Tasks of two criteria with two answers each; the first criterion of the tasks in `wrong` is
    failed in both answers though met."""
    place = at(store, iteration)
    judgments = []
    batch = []
    for task in range(num_tasks):
        for answer in range(2):
            rollout = f"i{iteration}-t{task}-a{answer}"
            batch.append({"rollout_id": rollout, "advantage": advantage * (1 - 2 * answer)})
            for criterion in range(2):
                is_wrong = task in wrong and criterion == 0
                judgments.append(
                    {
                        "rollout_id": rollout,
                        "task_id": f"i{iteration}-t{task}",
                        "criterion_id": f"i{iteration}-t{task}-{criterion}",
                        "judge_rollout_id": f"j-{rollout}-{criterion}",
                        "verdict": 0 if is_wrong else 1,
                        "oracle": 1,
                    }
                )
    rows(place, "judgments", *judgments)
    rows(place, "batches", *batch)


def test_a_judge_that_errs_more_on_what_is_trained_on_is_found_with_its_verdicts(store):
    judged(store, 1, wrong=set())
    judged(store, 2, wrong=set(range(8)))
    finding = found(store, "judge_errs_in_training")
    assert finding is not None
    # 8 of 20 tasks, one of two criteria, both answers: 16 of 80 verdicts
    assert finding.sentence == (
        "The judge is wrong on 20% of the verdicts that iteration 2's training updates trained"
        " on (0% before): 16 of 80, in 8 tasks; 20% weighted by |advantage|."
    )
    assert (finding.number, finding.compared_with) == (0.2, 0.0)
    assert (finding.severity, finding.page, finding.iteration) == ("serious", "judge", 2)
    assert {row["rollout_id"] for row in finding.rows} == {
        f"i2-t{task}-a{answer}" for task in range(8) for answer in range(2)
    }


def test_one_wrong_criterion_of_forty_is_no_finding(store):
    judged(store, 1, wrong=set())
    judged(store, 2, wrong={0})
    assert sentence(store, "judge_errs_in_training") is None


def test_a_judge_that_errs_hardly_more_than_before_is_found_in_the_first_iteration(store):
    judged(store, 1, wrong={0, 1, 2, 3, 4})
    judged(store, 2, wrong={0, 1, 2, 3, 4, 5})
    finding = found(store, "judge_errs_in_training")
    assert finding is not None
    assert (finding.iteration, finding.compared_with) == (1, None)
