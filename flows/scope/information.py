"""Learnable information, section 3.2 of the paper: how much a task tells of its document, and a rubric beyond its task.

    I(q; d)          = E[log C(q|d) - log mean_d' C(q|d')]                           at most log n
    I(rubric; d | q) = E[log J(rubric|q,d) - log sum_d' w(d') J(rubric|q,d')],       w(d') = C(q|d') / sum C(q|d')

over the task's own document d and n - 1 others. C is the Challenger's probability of its last turn as it was sampled,
after its own conversation with d' in the opening prompt; J the rubric writer's of its reply, with d' in place of d and
the other evidence as it was. `learnable_information.sql` of the warehouse makes the sums, for the report.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from flows.scope.config import InformationSettings
from flows.scope.roles import readable
from flows.scope.steps import Player, Pool, Scope
from flows.scope.talks import hints
from tasks.ask import ask
from tasks.likelihoods import likelihoods
from tasks.prompt import Prompt, Row
from tasks.sample import sample
from warehouse.draft import hash_json
from warehouse.store import Place


def measure_information(scope: Scope, place: Place, challenger: Player, pool: Pool) -> None:
    """How likely the pool's tasks and rubrics are under their own documents and under others."""
    cfg, roles, talks, bench = scope.cfg, scope.roles, scope.talks, scope.bench
    if not cfg.information.num_tasks:
        return
    choose: dict[str, Any] = {"settings": cfg.information, "seed": cfg.seed}
    number = cfg.information.num_tasks * cfg.information.num_documents
    how = {"task_types": cfg.task_types, "search_turns": cfg.challenger.search_turns, "seed": cfg.seed}
    drawn = sample(place, scope.documents, num_samples=number, epoch=place.path, **how)
    about = pool.selections, pool.tasks, scope.documents, drawn
    proposing = Prompt("challenger", roles.challenger.templates, partial(openings, roles.challenger, **choose))
    likelihoods(
        place,
        ask(place, proposing, *about, values=hints(cfg), label="task"),
        [judged.rollouts for judged in pool.batches],
        pool.tasks,
        kind="task",
        policy=challenger.policy,
        dialogue=talks.propose.dialogue,
        fleet=bench.fleet,
        label="task",
    )
    marking = Prompt("judge", roles.rubric_writer.templates, partial(mark_schemes, roles.rubric_writer, **choose))
    likelihoods(
        place,
        ask(place, marking, *about, pool.rubrics, label="rubric"),
        [judged.rubric_rollouts for judged in pool.batches],
        pool.tasks,
        kind="rubric",
        policy=scope.judge("rubric_writer"),
        dialogue=talks.write_rubric.dialogue,
        fleet=bench.judge_fleet,
        label="rubric",
    )


def openings(
    challenger: Prompt,
    selections: list[Row],
    tasks: list[Row],
    documents: list[Row],
    drawn: list[Row],
    *,
    settings: InformationSettings,
    seed: int,
) -> Iterator[Row]:
    """The Challenger's opening prompt of every chosen task, with each of its documents."""
    shown = list(with_documents(selections, tasks, drawn, settings, seed))
    for task, about in zip(shown, challenger.about(shown, documents), strict=True):
        yield {**about, "task_id": task["task_id"], "rollout_id": task["rollout_id"]}


def mark_schemes(
    rubric_writer: Prompt,
    selections: list[Row],
    tasks: list[Row],
    documents: list[Row],
    drawn: list[Row],
    rubrics: list[Row],
    *,
    settings: InformationSettings,
    seed: int,
) -> Iterator[Row]:
    """The rubric writer's prompt of every chosen task that has a rubric, with each document in the source's place."""
    written = {row["task_id"]: row["judge_rollout_id"] for row in rubrics if row["criterion"] is not None}
    shown = [t for t in with_documents(selections, tasks, drawn, settings, seed) if t["task_id"] in written]
    for task, about in zip(shown, rubric_writer.about(shown, documents), strict=True):
        yield {**about, "document_id": task["document_id"], "rollout_id": written[task["task_id"]]}


def with_documents(
    selections: list[Row], tasks: list[Row], drawn: list[Row], settings: InformationSettings, seed: int
) -> Iterator[Row]:
    """Chosen tasks, kept ones first, each as often as it has documents: its own, then others of those `drawn`."""
    kept = {row["task_id"] for row in selections if row["kept"]}
    usable = list(dict.fromkeys(row["document_id"] for row in drawn))
    order = {task["task_id"]: hash_json([seed, task["task_id"]]) for task in tasks}
    ordered = sorted(readable(tasks), key=lambda task: (task["task_id"] not in kept, order[task["task_id"]]))
    for task in ordered[: settings.num_tasks]:
        drawn = random.Random(order[task["task_id"]]).sample(usable, min(settings.num_documents, len(usable)))
        others = [document_id for document_id in drawn if document_id != task["document_id"]]
        for document_id in (task["document_id"], *others[: settings.num_documents - 1]):
            evidence = [document_id, *(i for i in task["evidence"][1:] if i != document_id)]
            yield {**task, "document_id": document_id, "evidence": evidence}
