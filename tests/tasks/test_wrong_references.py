"""Wrong references on purpose: how many, which, and that they are plausible."""

import json

import pytest

from tasks.given import GivenTasks
from tasks.wrong_references import wrong_items, wrong_tasks
from tests.support.rows import publish, row


def questions(place, count: int):
    rows = (
        row(
            "tasks",
            task_id=f"q{i}",
            task_type="numbers" if i % 2 else "names",
            reference=f"{'number' if i % 2 else 'name'} {i}",
            accepted=[f"accepted {i}"],
        )
        for i in range(count)
    )
    return publish(place, "tasks", *rows)


def changed(place, tasks, share: float, seed: int = 0, **more) -> dict[str, str]:
    """The new references of the tasks that have another one than before."""
    at = place.phase(f"{share} {seed} {sorted(more)}")
    before = {r["task_id"]: r["reference"] for r in tasks.rows()}
    after = wrong_tasks(at, tasks, share=share, seed=seed, **more).rows()
    assert [r["task_id"] for r in after] == list(before)
    return {r["task_id"]: r["reference"] for r in after if r["reference"] != before[r["task_id"]]}


def test_the_share_that_is_asked_for_is_wrong_and_of_the_same_type(place):
    tasks = questions(place, 40)
    wrong = changed(place, tasks, 0.25)
    assert len(wrong) == 10
    for task_id, reference in wrong.items():
        is_number = int(task_id.removeprefix("q")) % 2
        assert reference.startswith("number" if is_number else "name")


def test_nothing_else_is_accepted_of_a_wrong_task(place):
    tasks = questions(place, 8)
    rows = wrong_tasks(place.phase("all"), tasks, share=1.0, seed=0).rows()
    assert {r["accepted"] for r in rows} == {None}


def test_a_larger_share_adds_to_a_smaller_one(place):
    tasks = questions(place, 40)
    few, many = changed(place, tasks, 0.1), changed(place, tasks, 0.3)
    assert few.keys() < many.keys()
    assert few.keys() != changed(place, tasks, 0.1, seed=1).keys()


def test_the_share_is_one_of_the_chosen_tasks(place):
    tasks = questions(place, 40)
    rows = [row("selections", task_id=f"q{i}", kept=i < 20) for i in range(40)]
    chosen = publish(place, "selections", *rows)
    wrong = changed(place, tasks, 0.5, chosen=chosen)
    assert len(wrong) == 10
    assert all(int(task_id.removeprefix("q")) < 20 for task_id in wrong)


def test_a_wrong_choice_is_another_letter(place):
    choice = row("tasks", task_id="q", reference="B", options=["one", "two", "three"])
    tasks = publish(place, "tasks", choice)
    found = {changed(place, tasks, 1.0, seed=seed)["q"] for seed in range(20)}
    assert found == {"A", "C"}


def test_a_choice_of_one_option_or_without_an_answer_stays_as_it_is(place):
    alone = row("tasks", task_id="q", reference="A", options=["one"])
    assert changed(place, publish(place, "tasks", alone), 1.0) == {}
    unanswered = row("items", task_id="q", references=[], options=["one", "two"], given="{}")
    items = publish(place, "items", unanswered)
    (kept,) = wrong_items(place, items, share=1.0, seed=0, label="wrong").rows()
    assert kept["references"] == []


def test_a_task_without_a_rival_stays_as_it_is(place):
    tasks = publish(place, "tasks", row("tasks", task_id="q", reference="one"))
    assert changed(place, tasks, 1.0) == {}


def test_an_item_gets_answer_rubric_and_workings_of_one_other(place):
    rows = (
        row("items", task_id=f"q{i}", references=[f"r{i}"], given=json.dumps({"solution": i}))
        for i in range(20)
    )
    items = publish(place, "items", *rows)
    wrong = wrong_items(place, items, share=0.5, seed=0, label="wrong").rows()
    different = [r for r in wrong if r["references"] != [f"r{r['task_id'].removeprefix('q')}"]]
    assert len(different) == 10
    for r in different:
        assert r["references"] == [f"r{json.loads(r['given'])['solution']}"]


def test_given_tasks_are_wrong_as_their_settings_say(store, tmp_path):
    file = tmp_path / "tasks.jsonl"
    lines = (
        json.dumps({"task": f"Write of {i}.", "criteria": [{"criterion": f"{i}", "weight": 1}]})
        for i in range(10)
    )
    file.write_text("\n".join(lines))
    place = store.run("r")
    given = GivenTasks(file=str(file), wrong=0.3)
    asked = {r["task_id"]: r["text"] for r in given.items(place, seed=0).rows()}
    criteria = {
        r["task_id"]: json.loads(r["given"])["criteria"][0]["text"]
        for r in given.items(place, seed=0).rows()
    }
    wrong = [name for name in asked if criteria[name] not in asked[name]]
    assert len(wrong) == 3


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(ValueError, match="wrong"):
        GivenTasks(file="f", wrong=share)
