"""SCOPE, arXiv 2605.31433: two policies that co-evolve on open-ended tasks, and a frozen Judge. It reads as
Algorithm 1.

Departures
- The two halves of the Judge may be two models (`models.rubric_writer`, `models.grader`); by default both are M0.
- A third gate screens tasks for harm (`judge.gates`); the paper names the lack of one a limitation.
- The ablation without quality gates (`judge.quality_gates=false`) leaves that third gate on.
- The gate of source relevance sees the document as the Challenger does, cut to `dialogues.source_tokens`.
- `dialogues.response_tokens`, the paper's limit of a response, holds for each assistant turn.
- Profiles of real models name no benchmark, so their runs have no held-out score. `evaluation.benchmark=micro` is the
only one built in; the paper's are for a harness of your own, over the weights of each iteration's last update.
- Rule gates stand beside the model's quality gates where a profile names them; they can only reject.
- A watch on the grader (canary answers of known verdict; the oracle, where there is one) stops the run before an
update.
- A pool short of tasks is an error or, by `pool.short_pool`, fewer Solver steps; it is never padded.
"""

from __future__ import annotations

import functools
from typing import Any

from prefect import flow

from flows import run as workbench
from flows.request import Redo, Request, default_run
from flows.run import Workbench, open_run
from flows.scope import monitor
from flows.scope.config import ScopeConfig, load_profile
from flows.scope.held_out import HeldOut, open_corpus, score_held_out
from flows.scope.information import measure_information
from flows.scope.replay import replay
from flows.scope.steps import (
    Player,
    Pool,
    Scope,
    judge_tasks,
    keep_moderate,
    learn,
    player_of,
    sample_documents,
    solve_batch,
    starting_players,
)
from tasks.report import report
from warehouse.store import Place


@flow(name="scope-iteration", persist_result=False)
def scope_iteration(
    profile: str = "micro",
    run: str | None = None,
    overrides: dict[str, Any] | None = None,
    corpus: str | None = None,
    redo: Redo | None = None,
    force: bool = False,
) -> str:
    """Train Challenger and Solver for T iterations; returns the run's name. The same call again goes on where it
    stopped.

    `redo` names stages to make again; `force` lets a run go on with another configuration than it began with.
    """
    run = run or default_run("scope-iteration", profile)
    asked = Request(flow="scope-iteration", profile=profile, run=run, overrides=overrides, corpus=corpus)
    cfg = load_profile(profile, asked.settings)
    with open_run(asked, cfg, redo, force) as bench:
        self_play(cfg, bench)
    return asked.run


def self_play(cfg: ScopeConfig, bench: Workbench) -> tuple[Player, Player]:
    """Algorithm 1."""
    documents, oracle = open_corpus(bench.place, cfg)
    scope = Scope.prepare(cfg, bench, documents, oracle)
    held_out = HeldOut.prepare(scope)
    first, challenger, solver = starting_players(scope)  # l.2
    score_held_out(held_out, bench.place.iteration(first - 1), solver)
    for t in range(first, cfg.iterations + 1):  # l.3
        iteration = bench.place.iteration(t)
        if cfg.challenger.frozen_after is None or t <= cfg.challenger.frozen_after:
            challenger = train_challenger(scope, iteration, challenger, solver)  # l.4-17
        tasks = collect_tasks(scope, iteration, challenger, solver)  # l.19-27
        solver = train_solver(scope, iteration, solver, tasks)  # l.28-33
        score_held_out(held_out, iteration, solver)
        measure_information(scope, iteration.phase("information"), challenger, tasks)
        report(bench.place, iteration=t)
    for searcher, answerer in cfg.evaluation.replay:
        replay(held_out, bench.place, searcher, answerer, player_of(scope, bench.place.path, answerer, "solver"))
    return challenger, solver  # l.35


def train_challenger(scope: Scope, iteration: Place, challenger: Player, solver: Player) -> Player:
    """Stage 1: a task is worth most when the Solver of the last iteration does half of it."""
    cfg = scope.cfg.challenger
    for b in range(cfg.steps):  # l.5
        step = iteration.phase("challenger").step(b + 1)
        samples = sample_documents(scope, step, cfg.prompts_per_step, b, cfg.steps)  # l.6
        judged = judge_tasks(  # l.7-15
            scope,
            step,
            challenger,
            solver,
            samples,
            num_tasks=cfg.group_size,
            num_answers=cfg.solver_rollouts,
            talk=scope.talks.estimate,
        )
        challenger = learn(scope, step, "challenger", challenger, judged)  # l.17
    return challenger


def collect_tasks(scope: Scope, iteration: Place, challenger: Player, solver: Player) -> Pool:
    """Candidates over fresh documents, in batches, until enough of moderate difficulty are kept."""
    cfg, target = scope.cfg.pool, scope.cfg.solver.steps * scope.cfg.solver.prompts_per_step
    pool = Pool()  # l.19
    while pool.num_kept < target and len(pool) < cfg.max_batches:  # l.20
        step = iteration.phase("pool").step(len(pool) + 1)
        samples = sample_documents(scope, step, cfg.candidates_per_batch, len(pool), cfg.max_batches)
        judged = judge_tasks(  # l.21-23
            scope,
            step,
            challenger,
            solver,
            samples,
            num_tasks=1,
            num_answers=cfg.solver_rollouts,
            talk=scope.talks.filter,
        )
        pool += judged, keep_moderate(scope, step, judged, pool, target)  # l.24-26
    monitor.check_pool(cfg, pool.num_kept, target)
    return pool


def train_solver(scope: Scope, iteration: Place, solver: Player, pool: Pool) -> Player:
    """Stage 2: the kept tasks, each used once."""
    monitor.watch_canaries(scope, iteration.phase("monitor"), pool)
    for b in range(pool.num_kept // scope.cfg.solver.prompts_per_step):  # l.28
        step = iteration.phase("solver").step(b + 1)
        solved = solve_batch(scope, step, solver, pool, b)  # l.29-31
        monitor.watch_gap(scope, step, solved.judgments)
        solver = learn(scope, step, "solver", solver, solved)  # l.33
    return solver


inquire = functools.partial(workbench.inquire, play=self_play)  # what `selfplay why` asks
