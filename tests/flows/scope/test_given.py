"""The baseline GRPO_data, once, over a scripted engine: given tasks with rubrics train the
Solver; no role asks."""

from __future__ import annotations

import json

import pytest

from flows.scope.config import Config
from flows.scope.flow import scope_iteration
from flows.settings import profile
from tests.support.scripted_play import Asked, Script, any_text_model, perform
from warehouse.query import query
from warehouse.store import Store

SETTINGS = {
    "iterations": 2,
    "models.grader": None,
    "engine.max_model_len": 4096,
    "dialogues.prompts": "english",
    "dialogues.insist_times": 0,
    "dialogues.response_tokens": 256,
    "solver.steps": 1,
    "solver.prompts_per_step": 2,
    "solver.group_size": 2,
    "solver.reward": {},
    "judge.canaries": 0,
    "monitor.max_sampler_kl": None,  # a script samples nothing
    "evaluation.benchmark": "none",
}


def say(asked: Asked) -> str:
    """The first answer to a task meets its criterion, the second does not."""
    if asked.template == "solver":
        return (
            f"<think>So.</think><answer>{'A river.' if asked.sample == 0 else 'Nothing.'}</answer>"
        )
    assert asked.template == "grade", asked.template
    return f"<think>So.</think><score>{int('A river.' in asked.text)}</score>"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("given")
    rows = [
        {"task": f"Write of town {n}.", "criteria": [{"criterion": "Names a river.", "weight": 2}]}
        for n in "abcd"
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = str(any_text_model(folder / "model"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(folder / "store"))
        perform(Script(say), patch)
        own = {
            "models.base": model,
            "engine.model": model,
            "pool.given.file": str(folder / "tasks.jsonl"),
        }
        scope_iteration("micro-grpo-data", "r", {**SETTINGS, **own})
    return Store(folder / "store")


def test_each_task_is_used_once_with_its_own_rubric(store):
    used = query(store.root, "select iteration, task_id from selections where kept order by all")
    assert [row["iteration"] for row in used] == [1, 1, 2, 2]
    assert {row["task_id"] for row in used} == {"given-0", "given-1", "given-2", "given-3"}
    rubrics = query(store.root, "select distinct criterion, weight, judge_rollout_id from rubrics")
    assert [tuple(row.values()) for row in rubrics] == [("Names a river.", 2.0, None)]


def test_only_the_solver_is_asked_and_trained(store):
    assert {row["role"] for row in query(store.root, "select distinct role from updates")} == {
        "solver"
    }
    advantages = query(
        store.root, "select advantage, count(*) as n from advantages group by all order by 1"
    )
    assert [(round(row["advantage"], 3), row["n"]) for row in advantages] == [(-1.0, 4), (1.0, 4)]


def test_a_challenger_with_nothing_to_do_is_refused():
    with pytest.raises(ValueError, match=r"pool.given needs challenger.frozen_after=0"):
        profile.load(Config, "micro", {"pool.given.file": "data/micro/tasks.jsonl"})
