"""Scores on tasks that are never trained on, and metrics of the model's own proposals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flows.azr.config import Config, TaskType
from flows.azr.roles import Roles
from flows.azr.steps import Proposals, judge
from flows.blocks.evaluation import score_benchmarks
from flows.blocks.joint_update import RoleRollouts
from flows.blocks.questions import Describe, as_evaluated, measure, open_held_out
from flows.run import Player, Run
from tasks.evaluate import evaluate
from warehouse.schemas import Reward, Task
from warehouse.store import Place

PROPOSED = "tasks proposed"


def score_held_out(run: Run[Config], roles: Roles, iteration: Place, model: Player) -> None:
    """Evaluate on the real benchmarks that the configuration names, and on the held-out tasks of
    the built-in world if it names them: each is answered once, by the Solver of its type.

    Raises ValueError if the configuration names a world's held-out tasks but no world that has
    tasks about programs.
    """
    score_benchmarks(run, iteration, model)
    held_out = open_held_out(run)
    if held_out is None:
        return
    tasks = held_out.tasks
    if not {task["task_type"] for task in tasks.rows(Task)} <= roles.solver.keys():
        raise ValueError(f"world {held_out.world.name!r} has no held-out tasks about programs")
    place = iteration.phase("evaluation")
    answers = []
    matches = []
    for task_type, role in roles.solver.items():
        label = f"solve_{task_type}"
        replies = run.ask(place, as_evaluated(run, role), model.policy, label=label, tasks=tasks)
        answers.append(replies.rows)
        matches.append(judge(run, place, task_type, replies, tasks, label=label))
    evaluate(
        place,
        measure,
        policy=model.policy.id,
        benchmark=run.cfg.evaluation.benchmark,
        tasks=tasks,
        answers=answers,
        matches=matches,
    )


def describe_tasks(
    run: Run[Config],
    step: Place,
    model: Player,
    proposals: Mapping[TaskType, Proposals],
    proposed: Mapping[TaskType, RoleRollouts],
) -> None:
    """Store metrics of a step's proposals, and how often the Solver succeeded on them."""
    evaluate(
        step,
        measure_proposals,
        policy=model.policy.id,
        benchmark=PROPOSED,
        label="proposed",
        tasks=[of_type.tasks for of_type in proposals.values()],
        rewards=[of_type.rewards for of_type in proposed.values()],
        describe=run.world and run.world.describe,
    )


def measure_proposals(
    tasks: list[Task], rewards: list[Reward], *, describe: Describe | None
) -> Iterator[tuple[str, float]]:
    """Yield metrics of proposals: `valid` for every one, `pass_rate` for those that were tried.

    `describe` gives further metrics of a task in a built-in world, such as the number of steps.
    """
    rates = {row["task_id"]: row["score"] for row in rewards}
    for task in tasks:
        valid = float(task["text"] is not None)
        yield "valid", valid
        yield f"valid_{task['task_type']}", valid
        if task["text"] is None:
            continue
        if describe is not None:
            yield from describe(task)
        rate = rates.get(task["task_id"])
        if rate is not None:
            yield "pass_rate", rate
            yield f"pass_rate_{task['task_type']}", rate
