"""The corpus a run learns from, and the score on tasks it never learns from."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from flows.micro.worlds import encyclopaedia as world
from flows.prepared import open_documents
from flows.scope.config import ScopeConfig
from flows.scope.roles import criteria_of
from flows.scope.scoring import grades
from flows.scope.steps import Player, Scope, answer, grade
from tasks.corpus.documents import store_documents
from tasks.evaluate import evaluate
from tasks.judge import Oracle
from tasks.prompt import Row
from tasks.stage import Rows, stage
from warehouse.schemas import RUBRICS, TASKS
from warehouse.store import Place, Table

MICRO = "micro"
BENCHMARK_DOCUMENTS = 200


def open_corpus(place: Place, cfg: ScopeConfig) -> tuple[Table, Oracle | None]:
    """Documents with their index, and an oracle of true facts where the corpus is a world that knows them."""
    if cfg.corpus != MICRO:
        return open_documents(place, cfg.corpus, cfg.embedding), None
    return _world(place, cfg, cfg.world_seed, cfg.corpus_documents)


def _world(place: Place, cfg: ScopeConfig, seed: int, num_documents: int) -> tuple[Table, Oracle]:
    documents = world.corpus(seed, num_documents)
    table = store_documents(place, documents, source=f"micro-world, seed {seed}", embedding=cfg.embedding)
    return table, functools.partial(micro_oracle, seed=seed, num_documents=num_documents)


def micro_oracle(criterion: str, answer: str, *, seed: int, num_documents: int) -> bool | None:
    return world.oracle(criterion, answer, _made_world(seed, num_documents))


@functools.cache
def _made_world(seed: int, num_documents: int) -> world.World:
    return world.World(seed, num_documents)


@dataclass(frozen=True)
class HeldOut:
    """Benchmark tasks and true rubrics over a world that is in no training corpus; None where a run has no
    benchmark."""

    scope: Scope | None
    tasks: Table | None = None
    rubrics: Table | None = None

    @classmethod
    def prepare(cls, scope: Scope) -> HeldOut:
        cfg = scope.cfg.evaluation
        if cfg.benchmark == "none":
            return cls(None)
        place = scope.bench.place.iteration(0).phase("benchmark")
        documents, oracle = _world(place, scope.cfg, cfg.seed, BENCHMARK_DOCUMENTS)
        tasks = benchmark_tasks(place, seed=cfg.seed, num_tasks=cfg.num_tasks)
        rubrics = benchmark_rubrics(place, seed=cfg.seed, num_tasks=cfg.num_tasks)
        return cls(replace(scope, documents=documents, oracle=oracle), tasks, rubrics)


def score_held_out(held_out: HeldOut, iteration: Place, solver: Player) -> None:
    """Answer every benchmark task once and grade it by the Judge and by the oracle."""
    scope, tasks, rubrics = held_out.scope, held_out.tasks, held_out.rubrics
    if scope is None or tasks is None or rubrics is None:
        return
    place = iteration.phase("evaluation")
    talk = scope.talks.evaluate
    answers, _ = answer(scope, place, solver, scope.roles.solver, tasks, rubrics, num_answers=1, talk=talk)
    judgments = grade(scope, place, answers, rubrics, tasks)
    evaluate(
        place,
        measure,
        tasks,
        answers,
        rubrics,
        judgments,
        policy=solver.policy.id,
        benchmark=scope.cfg.evaluation.benchmark,
    )


def measure(
    tasks: list[Row], answers: list[Row], rubrics: list[Row], judgments: list[Row]
) -> Iterator[tuple[str, float]]:
    """`score` is the oracle's: share of criteria truly met; unanswered is 0. `judged` is the same by the Judge."""
    answer_of = {row["task_id"]: row for row in answers}
    truth = {(j["rollout_id"], j["criterion_id"]): j["oracle"] for j in judgments}
    criteria, judged = criteria_of(rubrics), grades(answers, rubrics, judgments, min_coverage=0.5)
    for task in tasks:
        found = answer_of[task["task_id"]]
        met = [truth.get((found["rollout_id"], c["criterion_id"])) or 0 for c in criteria[task["task_id"]]]
        score = sum(met) / len(met)
        yield "score", score
        yield f"score_{task['difficulty']}_hops", score
        yield "judged", judged[found["rollout_id"]].g or 0.0
        yield "answer_tokens", float(found["answer_tokens"])
        yield "searches", float(found["num_searches"])
        yield "unanswered", float(found["answer"] is None)


@stage(TASKS)
def benchmark_tasks(*, seed: int, num_tasks: int) -> Rows:
    """Yield the tasks of the held-out world; their difficulty is the number of hops from the first document."""
    for task in world.held_out_tasks(seed, num_tasks, BENCHMARK_DOCUMENTS):
        about = {"task_id": task.task_id, "task_type": task.task_type, "difficulty": task.hops}
        yield {**about, "text": task.text}


@stage(RUBRICS)
def benchmark_rubrics(*, seed: int, num_tasks: int) -> Rows:
    """Yield the true criteria of these tasks."""
    for task in world.held_out_tasks(seed, num_tasks, BENCHMARK_DOCUMENTS):
        for i, criterion in enumerate(task.criteria):
            yield {
                "criterion_id": f"{task.task_id}-{i}",
                "task_id": task.task_id,
                "position": i,
                "criterion": criterion,
                "priority": "critical",
                "weight": 1.0,
            }
