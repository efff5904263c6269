"""SCOPE's held-out scores."""

from statistics import fmean

import pytest

from flows.run import Run
from flows.scope.config import Config
from flows.scope.held_out import last_turn_of, measure
from flows.scope.roles import Roles
from flows.scope.steps import player_of
from flows.settings import profile
from tasks.rollouts.rollout import roll_out
from tests.flows.test_run import Bench
from tests.support.rows import row
from tests.support.scripted import POLICY, ScriptedEngine
from warehouse.store import Store


def scores(answers: list[dict], judgments: list[dict]) -> dict[str, list[float]]:
    tasks = [row("tasks", task_id=answer["task_id"], difficulty=2) for answer in answers]
    rubrics = [
        row(
            "rubrics",
            task_id=task["task_id"],
            criterion_id=f"{task['task_id']}-0",
            position=0,
            criterion="Names the moon.",
            weight=1.0,
        )
        for task in tasks
    ]
    found: dict[str, list[float]] = {}
    for metric, value in measure(tasks, answers, rubrics, judgments, min_coverage=0.5):  # type: ignore[arg-type]
        found.setdefault(metric, []).append(value)
    return found


def answer(task_id: str, **values: object) -> dict:
    form = {"total": 1.0}
    return row("answers", task_id=task_id, rollout_id=f"of-{task_id}", format=form, **values)


def judgment(task_id: str, **values: object) -> dict:
    return row("judgments", rollout_id=f"of-{task_id}", criterion_id=f"{task_id}-0", **values)


def test_a_reply_that_the_engine_never_gave_enters_no_score() -> None:
    found = scores(
        [answer("t", answer="x"), answer("u", answer=None, malformed="engine error")],
        [judgment("t", verdict=1, oracle=1)],
    )
    assert found["score"] == found["judged"] == [1.0]
    assert fmean(found["not_sampled"]) == 0.5 and found["unanswered"] == [0.0]


def test_an_answer_that_the_judge_could_not_grade_enters_no_grade_of_the_judge() -> None:
    lost = judgment("t", verdict=None, malformed="engine error", oracle=1)
    found = scores([answer("t", answer="x")], [lost])
    assert found["score"] == [1.0]
    assert "judged" not in found and "not_sampled" not in found


def test_a_replayed_answerer_that_would_search_again_is_told_to_answer() -> None:
    """As it is in the evaluation itself, where it has searches left."""

    def say(_: object, text: str) -> str:
        return "<answer> moon </answer>" if " now " in text else "<search> c </search>"

    class Nothing:
        def search(self, queries: list[str], _: int) -> list[list[object]]:
            return [[] for _ in queries]

    cfg = profile.load(Config, "micro", {"dialogues.prompts": "english"})
    evaluated = Roles(cfg).evaluated
    searched = [
        {"role": "user", "content": "Why ?"},
        {"role": "assistant", "content": "<search>a</search>"},
        {"role": "user", "content": "<information> b </information> Searches left: 3."},
    ]
    prompt = row("prompts", prompt_id="p", task_id="t", role="solver", messages=searched)
    role = last_turn_of(evaluated)
    engine = ScriptedEngine(say, max_model_len=4000)
    (rollout,) = roll_out(
        engine, [prompt], POLICY, role.sampling, role.dialogue, Nothing(), 1, seed=0
    )
    (read,) = role.reader.rows(role.into, rollout, prompt)
    assert (read["answer"], rollout["num_searches"]) == ("moon", 0)


def test_an_iteration_before_the_branch_left_its_players_in_the_other_run(store: Store) -> None:
    other = Bench(store, "other")
    solver = other.run.player("solver")
    solver = other.learn(other.run.place.iteration(1).phase("solver").step(1), solver, 1.0)

    def branched(iteration: int) -> Run[Config]:
        branch = {"branch": {"run": "other", "iteration": iteration}, "iterations": 9}
        cfg = profile.load(Config, "micro", branch)
        return Run(cfg, store.run("branched"), other.run.models, other.run.machines)

    run = branched(1)
    assert player_of(run, "solver", 1) == solver != run.player_after("solver", 1)
    with pytest.raises(ValueError, match="run 'other' has reached iteration 1: there is no solver"):
        player_of(branched(5), "solver", 5)
