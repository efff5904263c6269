"""Learnable information, section 3.2 of the paper: how much a task reveals about its document, and
how much more its rubric does.

    I(q; d)          = E[log C(q|d) - log mean_d' C(q|d')]                           at most log n
    I(rubric; d | q) = E[log J(rubric|q,d) - log sum_d' w(d') J(rubric|q,d')]
    w(d')            = C(q|d') / sum_d'' C(q|d'')

The sums and means run over the task's own document d and n - 1 other documents that could have led
to the task: those that the Challenger retrieved, those nearest to the task's text, and some drawn
at random. C is the Challenger's probability of the task's text, and J is the rubric writer's
probability of the rubric's text. Both are computed without preceding thoughts or searches
(`tasks.likelihoods`), with d' in place of d in the opening prompt; J's prompt keeps the other
evidence. The warehouse's `learnable_information.sql` computes I for the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from flows.run import Player, Role
from flows.scope.steps import Pool, Scope
from tasks.ask import ask
from tasks.likelihoods import choose, likelihoods, with_documents
from tasks.models.engine import Policy
from tasks.prompt import Row
from tasks.sample import nearest, sample
from tasks.stage import Tables, rows_of
from warehouse.schemas import Criterion, Document, Sample, Selection, Task
from warehouse.store import Place

ELEMENT = {"task": "task", "rubric": "rubrics"}  # the element of a reply that is scored, by role


def measure_information(scope: Scope, place: Place, challenger: Player, pool: Pool) -> None:
    """Store how likely the pool's tasks and rubrics are given their own documents and given
    others."""
    run = scope.run
    cfg = scope.run.cfg
    roles = scope.roles
    if not cfg.information.num_tasks:
        return
    chosen = choose(
        rows_of(pool.selections, Selection),
        rows_of(pool.tasks, Task),
        cfg.information.num_tasks,
        cfg.seed,
    )
    n = cfg.information.num_documents
    near = nearest(place, scope.documents, pool.tasks, chosen=chosen, most=n // 2, label="near")
    drawn = sample(place, scope.documents, num_samples=n, seed=cfg.seed, epoch=place.path)
    with_each = partial(with_documents, chosen=chosen, most=n)
    proposing = replace(
        roles.challenger,
        name="task",
        variables=partial(openings, ask=roles.challenger.variables, with_each=with_each),
    )
    _measure(
        scope,
        place,
        proposing,
        challenger.policy,
        [candidates.rollouts for candidates in pool.scored],
        tasks=pool.tasks,
        documents=scope.documents,
        near=near,
        drawn=drawn,
    )
    writing = replace(
        roles.rubric_writer,
        name="rubric",
        variables=partial(rubric_prompts, ask=roles.rubric_writer.variables, with_each=with_each),
    )
    _measure(
        scope,
        place,
        writing,
        run.model("rubric_writer"),
        [candidates.rubrics.rollouts for candidates in pool.scored],
        tasks=pool.tasks,
        documents=scope.documents,
        near=near,
        drawn=drawn,
        rubrics=pool.rubrics,
    )


def _measure(
    scope: Scope,
    place: Place,
    role: Role,
    policy: Policy,
    rollouts: Tables,
    *,
    tasks: Tables,
    **others: Tables,
) -> None:
    """Store the likelihood, under `policy`, of the element that `role` writes. `others`: tables
    that its prompts read besides the tasks."""
    prompts = ask(
        place, role.prompt, values=dict(role.values), label=role.name, tasks=tasks, **others
    )
    likelihoods(
        place,
        prompts,
        rollouts,
        tasks,
        kind=role.name,
        element=ELEMENT[role.name],
        policy=policy,
        dialogue=role.dialogue,
        fleet=scope.run.machines.serving(policy, role.on_judge_engine),
        label=role.name,
    )


DocumentRows = Callable[[list[Task], list[Sample], list[Sample]], Iterator[Row]]


def openings(
    tasks: list[Task],
    documents: list[Document],
    near: list[Sample],
    drawn: list[Sample],
    *,
    ask: Callable[..., Iterator[Row]],
    with_each: DocumentRows,
) -> Iterator[Row]:
    """Yield the Challenger's opening prompt for every chosen task with each of its documents."""
    rows = list(with_each(tasks, near, drawn))
    for task, values in zip(rows, ask(rows, documents), strict=True):
        yield {
            **values,
            "task_id": task["task_id"],
            "document_id": task["document_id"],
            "rollout_id": task["rollout_id"],
        }


def rubric_prompts(
    tasks: list[Task],
    documents: list[Document],
    near: list[Sample],
    drawn: list[Sample],
    rubrics: list[Criterion],
    *,
    ask: Callable[..., Iterator[Row]],
    with_each: DocumentRows,
) -> Iterator[Row]:
    """Yield the rubric writer's prompt for every chosen task that has a rubric, with each document
    in place of the source."""
    written = {
        row["task_id"]: row["judge_rollout_id"] for row in rubrics if row["criterion"] is not None
    }
    with_rubric: list[Any] = [
        {**t, "rollout_id": written[t["task_id"]]} for t in tasks if t["task_id"] in written
    ]
    return openings(with_rubric, documents, near, drawn, ask=ask, with_each=with_each)
