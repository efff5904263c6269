"""SCOPE, arXiv 2605.31433: two policies that co-evolve on open-ended tasks, and a frozen Judge.

It reads as Algorithm 1.

Departures from the paper
- A third gate screens tasks for harm, even in the ablation without quality gates. A profile may add
  gates by rule.
- The gate of source relevance sees the document cut to `dialogues.source_tokens`, as the Challenger
  does.
- Prompts are worded for this project. The set `paper` asks for what the paper's do; our set
  `english` asks the rubric writer for concrete facts of the documents, the Solver for a complete
  answer, and shows the gates examples of its own (the paper's are not printed).
- Gates and rubrics of a model that thinks are sampled at the grading temperature, since it repeats
  itself when greedy (`judge.screening_temperature`); the paper has 0.
- Documents of the Challenger's steps may be drawn again for the pool, which is rare in a large
  corpus.
- l.14 pays r_fmt, eq. 4 half of it: we follow eq. 4. An invalid rubric also forfeits format, and so
  does a rollout without a readable task (released code).
- g_bar is the mean over the answers that could be graded; the paper's is over all N.
- Searches are exact (as in the released code) up to 2 GiB of vectors; beyond, as for the 21 million
  passages of Wikipedia, an IVF index probes 64 of its lists, unless the corpus is prepared with
  `search.kind="exact"`.
- The grade of an answer above 4,096 tokens is 0 (released code); eq. 7 leaves it a twentieth. The
  grader sees the first 2,048 tokens of an answer. Both hold without the length penalty, too, so
  runaway lengths cannot pay as in figure 2.
- The 64 prompts of each of the Challenger's 20 steps are divided 4:3:2 between one, two and three
  search turns, by largest remainder; appendix F.1 has 2,000 to 3,000 prompts an iteration.
- A `<task>` without a `<question>` inside is read as the question, as the paper's own prompt writes
  it.
- The warm-up of 3% of an iteration's 20 updates is less than one, so there is none.
- A verdict lost to an engine failure or a full context is unscorable; an unreadable one counts as
  not met.
- `dialogues.response_tokens`, the paper's limit of a response, applies to each assistant turn.
- Open-ended benchmarks need a judge (`models.examiner`), so no profile names them. They are judged
  on the scales of the released code's validation, in prompts of our own; the paper's own script is
  not public. A reply of the judge that cannot be read has the lowest mark, theirs the middle.
- Monitors of the grader stop the run before an update. A short pool stops it or means fewer steps;
  it is never padded.
Where the paper is silent, we follow the released code: clip ranges (low, high) of 0.2, 0.2 and 0.2,
0.28, a dual clip of 3; 3 to 10 criteria; four searches in training, and repeated requests to answer
outside it; difficulty at temperature 0.7, top-p 0.9; for reasoning models, a datum per turn.
Where we differ from the released code
- One optimizer step per generation, as in table 9; theirs takes about one per turn of a reasoning
  model's rollout.
- For Qwen2.5 and OLMo their loss is a token mean over pairs of rollouts; ours is eq. 3. No weight
  decay (theirs 0.01).
- A candidate task is one rollout of a document (theirs: the first valid of four); the Solver
  screens it at temperature 1 (theirs 0.7) without their limit of 2,048 tokens a turn, and all
  grading is at 0.6 (theirs partly at 0).
- A search ends its turn in every syntax, and nothing inside a think block counts.
- F.1's tool share counts valid searches; theirs subtracts malformed ones. Gates run before the
  rubric is written.
- The rubric writer sees up to `judge.evidence_document_tokens` of each document; theirs sees what
  the Challenger saw.
- An unreadable verdict is requested again by the same prompt; theirs shows the model its reply and
  complains.
"""

from __future__ import annotations

import math

from flows.method import method
from flows.run import Player, Run
from flows.scope import monitor
from flows.scope.config import Config
from flows.scope.held_out import replay, score_held_out
from flows.scope.information import measure_information
from flows.scope.steps import (
    Pool,
    Scope,
    batches_before,
    given_pool,
    keep_moderate,
    learn,
    player_of,
    propose_tasks,
    sample_documents,
    solve_batch,
)
from tasks.monitors.monitor import check_pool
from tasks.sample import batches_needed
from warehouse.store import Place

SHORT_POOL = "Raise pool.max_batches, widen pool.window, or set pool.short_pool=fewer_steps."


@method(Config)
def scope_iteration(run: Run[Config]) -> tuple[Player, Player]:
    """Algorithm 1."""
    scope = Scope.prepare(run)
    # l.2
    first = run.cfg.first_iteration
    challenger, solver = starting_players(run)
    score_held_out(scope, run.place.iteration(first - 1), solver)
    num_drawn = batches_before(scope)
    for t, iteration in run.iterations(first):  # l.3
        if not run.cfg.challenger.is_frozen(t):
            challenger = train_challenger(scope, iteration, challenger, solver)  # l.4-17
        tasks = collect_tasks(scope, iteration, challenger, solver, num_drawn)  # l.19-27
        num_drawn += tasks.num_batches
        solver = train_solver(scope, iteration, solver, tasks)  # l.28-33
        score_held_out(scope, iteration, solver)
        measure_information(scope, iteration.phase("information"), challenger, tasks)
    replay(scope)
    return challenger, solver  # l.35


def starting_players(run: Run[Config]) -> tuple[Player, Player]:
    """l.2: C_0 = S_0 = M0; or both as another run left them after one of its iterations."""
    start = run.cfg.first_iteration - 1
    return player_of(run, "challenger", start), player_of(run, "solver", start)


def train_challenger(scope: Scope, iteration: Place, challenger: Player, solver: Player) -> Player:
    """Stage 1: a task is worth most when the Solver of the last iteration does half of it."""
    cfg = scope.run.cfg.challenger
    for b in range(cfg.steps):  # l.5
        step = iteration.phase("challenger").step(b + 1)
        skip = ((iteration.at.iteration or 1) - 1) * cfg.steps + b
        samples = sample_documents(scope, step, cfg.prompts_per_step, skip)  # l.6
        candidates = propose_tasks(  # l.7-15
            scope,
            step,
            challenger,
            solver,
            samples,
            answering=scope.roles.estimator,
            group_size=cfg.group_size,
            num_answers=cfg.solver_rollouts,
        )
        if b == 0:
            monitor.watch_canaries(scope, step, candidates.tasks, candidates.rubrics.rows)
        challenger = learn(scope, step, challenger, cfg, candidates)  # l.17
    return challenger


def collect_tasks(
    scope: Scope, iteration: Place, challenger: Player, solver: Player, num_batches_before: int
) -> Pool:
    """Draw batches of candidates, on documents behind those of earlier iterations' batches, until
    enough of moderate difficulty are kept; or given tasks."""
    cfg = scope.run.cfg.pool
    target = scope.run.cfg.solver.steps * scope.run.cfg.solver.prompts_per_step
    if cfg.given:
        number = (iteration.at.iteration or 1) - 1
        return given_pool(scope.run, iteration.phase("pool"), cfg.given, number, target)
    pool = Pool()  # l.19
    while pool.num_kept < target and pool.num_batches < cfg.max_batches:  # l.20
        step = iteration.phase("pool").step(len(pool.scored) + 1)
        most = min(cfg.batches_at_once, cfg.max_batches - pool.num_batches)
        num_batches = batches_needed(target - pool.num_kept, cfg.candidates_per_batch, most)
        skip = num_batches_before + pool.num_batches
        samples = sample_documents(scope, step, cfg.candidates_per_batch, skip, num_batches)
        candidates = propose_tasks(  # l.21-23
            scope,
            step,
            challenger,
            solver,
            samples,
            answering=scope.roles.screener,
            group_size=1,
            num_answers=cfg.solver_rollouts,
        )
        selections = keep_moderate(scope, step, candidates, pool, target)  # l.24-26
        pool = pool.with_draw(num_batches, candidates, selections)
    check_pool(pool.selections, target, allow_short=cfg.short_pool != "error", way_out=SHORT_POOL)
    monitor.watch_tasks(scope, iteration, challenger, pool)
    return pool


def train_solver(scope: Scope, iteration: Place, solver: Player, pool: Pool) -> Player:
    """Stage 2: the kept tasks, each used once. A short pool makes fewer or smaller batches."""
    cfg = scope.run.cfg.solver
    monitor.watch_canaries(scope, iteration.phase("monitor"), pool.tasks, pool.rubrics)
    num_steps, size = batches_of(pool.num_kept, cfg.prompts_per_step)
    for b in range(num_steps):  # l.28
        step = iteration.phase("solver").step(b + 1)
        answers = solve_batch(scope, step, solver, pool, b, size)  # l.29-31
        monitor.watch_gap(scope, step, answers.judgments)
        solver = learn(scope, step, solver, cfg, answers)  # l.33
    return solver


def batches_of(num_tasks: int, most: int) -> tuple[int, int]:
    """The number of batches for a number of tasks, and the size of each but perhaps the last: as
    few as possible with at most `most` tasks, and of nearly equal size.

    >>> batches_of(5120, 256), batches_of(26, 16), batches_of(5, 16), batches_of(0, 16)
    ((20, 256), (2, 13), (1, 5), (0, 0))
    """
    if num_tasks == 0:
        return 0, 0
    num_batches = math.ceil(num_tasks / most)
    return num_batches, math.ceil(num_tasks / num_batches)
