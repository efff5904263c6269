"""Learnable information, section 3.2 of the paper: how much a task tells of its document, and a rubric beyond its task.

    I(q; d)          = E[log C(q|d) - log mean_d' C(q|d')]                           at most log n
    I(rubric; d | q) = E[log J(rubric|q,d) - log sum_d' w(d') J(rubric|q,d')],       w(d') = C(q|d') / sum C(q|d')

over the task's own document d and n - 1 others. C is the Challenger's probability of its last turn as it was sampled,
after its own conversation with d' in the opening prompt; J the rubric writer's of its reply, with d' in place of d and
the other evidence as it was. `learnable_information.sql` of the warehouse makes the sums, for the report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from flows.run import Player, Role
from flows.scope.config import InformationSettings
from flows.scope.steps import Pool, Scope
from tasks.ask import ask, readable
from tasks.engines.base import Policy
from tasks.likelihoods import likelihoods
from tasks.prompt import Row
from tasks.sample import sample
from tasks.stage import Tables
from warehouse.draft import hash_json
from warehouse.schemas import Criterion, Document, Sample, Selection, Task
from warehouse.store import Place


def measure_information(scope: Scope, place: Place, challenger: Player, pool: Pool) -> None:
    """How likely the pool's tasks and rubrics are under their own documents and under others."""
    run, cfg, roles = scope.run, scope.run.cfg, scope.roles
    if not cfg.information.num_tasks:
        return
    choose: dict[str, Any] = {"settings": cfg.information, "seed": cfg.seed}
    number = cfg.information.num_tasks * cfg.information.num_documents
    how = {"task_types": cfg.task_types, "search_turns": cfg.challenger.search_turns, "seed": cfg.seed}
    drawn = sample(place, scope.documents, num_samples=number, epoch=place.path, **how)
    about = {"selections": pool.selections, "tasks": pool.tasks, "documents": scope.documents, "drawn": drawn}
    proposing = replace(
        roles.challenger, name="task", about=partial(openings, propose=roles.challenger.about, **choose)
    )
    rollouts = [judged.rollouts for judged in pool.batches]
    _measure(scope, place, proposing, challenger.policy, rollouts, **about)
    marked = partial(mark_schemes, mark=roles.rubric_writer.about, **choose)
    marking = replace(roles.rubric_writer, name="rubric", about=marked)
    rollouts = [judged.rubrics.rollouts for judged in pool.batches]
    _measure(scope, place, marking, run.model("rubric_writer"), rollouts, rubrics=pool.rubrics, **about)


def _measure(scope: Scope, place: Place, role: Role, policy: Policy, rollouts: Tables, **about: Tables) -> None:
    likelihoods(
        place,
        ask(place, role.prompt, values=dict(role.values), label=role.name, **about),
        rollouts,
        about["tasks"],
        kind=role.name,
        policy=policy,
        dialogue=role.dialogue,
        fleet=scope.run.machines.serving(policy, role.judge),
        label=role.name,
    )


def openings(
    selections: list[Selection],
    tasks: list[Task],
    documents: list[Document],
    drawn: list[Sample],
    *,
    propose: Callable[..., Iterator[Row]],
    settings: InformationSettings,
    seed: int,
) -> Iterator[Row]:
    """The Challenger's opening prompt of every chosen task, with each of its documents."""
    shown = list(with_documents(selections, tasks, drawn, settings, seed))
    for task, about in zip(shown, propose(samples=shown, documents=documents), strict=True):
        yield {**about, "task_id": task["task_id"], "rollout_id": task["rollout_id"]}


def mark_schemes(
    selections: list[Selection],
    tasks: list[Task],
    documents: list[Document],
    drawn: list[Sample],
    rubrics: list[Criterion],
    *,
    mark: Callable[..., Iterator[Row]],
    settings: InformationSettings,
    seed: int,
) -> Iterator[Row]:
    """The rubric writer's prompt of every chosen task that has a rubric, with each document in the source's place."""
    written = {row["task_id"]: row["judge_rollout_id"] for row in rubrics if row["criterion"] is not None}
    shown = [t for t in with_documents(selections, tasks, drawn, settings, seed) if t["task_id"] in written]
    for task, about in zip(shown, mark(tasks=shown, documents=documents), strict=True):
        yield {**about, "document_id": task["document_id"], "rollout_id": written[task["task_id"]]}


def with_documents(
    selections: list[Selection], tasks: list[Task], drawn: list[Sample], settings: InformationSettings, seed: int
) -> Iterator[Row]:
    """Chosen tasks, kept ones first, each as often as it has documents: its own, then others of those `drawn`."""
    kept = {row["task_id"] for row in selections if row["kept"]}
    usable = list(dict.fromkeys(row["document_id"] for row in drawn))
    order = {task["task_id"]: hash_json([seed, task["task_id"]]) for task in tasks}
    ordered = sorted(readable(tasks), key=lambda task: (task["task_id"] not in kept, order[task["task_id"]]))
    for task in ordered[: settings.num_tasks]:
        some = random.Random(order[task["task_id"]]).sample(usable, min(settings.num_documents, len(usable)))
        others = [document_id for document_id in some if document_id != task["document_id"]]
        for document_id in (task["document_id"], *others[: settings.num_documents - 1]):
            evidence = [document_id, *(i for i in (task["evidence"] or [])[1:] if i != document_id)]
            yield {**task, "document_id": document_id, "evidence": evidence}
