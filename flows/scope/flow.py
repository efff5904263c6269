"""SCOPE, arXiv 2605.31433: two policies that co-evolve on open-ended tasks, and a frozen Judge.

It reads as Algorithm 1.

Departures from the paper
- A third gate screens tasks for harm, even in the ablation without quality gates. A profile may add
  gates by rule.
- The source-relevance gate sees the document truncated to `dialogues.source_tokens`, as the
  Challenger does.
- Prompts are worded for this project. The set `paper` makes the same requests as the paper's
  prompts. Our set `english` asks the rubric writer for concrete facts from the documents and the
  Solver for a complete answer, and shows the gates our own examples (the paper does not print its
  examples).
- A reasoning model writes gate verdicts and rubrics at the grading temperature, because it repeats
  itself under greedy decoding (`judge.screening_temperature`); the paper uses 0.
- A document used in a Challenger step may be drawn again for the pool; this is rare in a large
  corpus.
- l.14 pays all of r_fmt, eq. 4 half of it; we follow eq. 4. A rollout without a readable task, or
  with an invalid rubric, also loses its format reward (released code).
- g_bar is the mean over the answers that could be graded; the paper averages over all N.
- Search is exact (as in the released code) up to 2 GiB of vectors. Beyond that, as for the 21
  million passages of Wikipedia, an IVF index probes 64 of its lists, unless the corpus is prepared
  with `search.kind="exact"`.
- An answer of more than 4,096 tokens gets a grade of 0 (released code); eq. 7 leaves a twentieth of
  it. The grader sees the first 2,048 tokens of an answer. Both rules also apply without the length
  penalty, so runaway lengths cannot pay off as in figure 2.
- Each of the Challenger's 20 steps has 64 prompts, split 4:3:2 between one, two and three search
  turns by largest remainder; appendix F.1 has 2,000 to 3,000 prompts per iteration.
- A `<task>` without an inner `<question>` is itself read as the question, which is how the paper's
  own prompt writes it.
- A warm-up over 3% of an iteration's 20 updates is less than one update, so there is none.
- A verdict lost to an engine failure or a full context is unscorable; an unreadable one counts as
  not met.
- `dialogues.response_tokens`, the paper's limit on a response, applies to each assistant turn.
- Open-ended benchmarks need a judge (`models.examiner`), so no profile names them. They are judged
  on the scales of the released code's validation, with our own prompts; the paper's evaluation
  script is not public. An unreadable reply of the judge gets the lowest mark; in the released code
  it gets the middle one.
- Monitors of the grader can stop the run before an update. A short pool stops the run or leads to
  fewer or smaller steps; it is never padded.

Where the paper is silent, we follow the released code: clip ranges (low, high) of (0.2, 0.2) for
the Challenger and (0.2, 0.28) for the Solver, and a dual clip of 3; 3 to 10 criteria; four searches
in training, and repeated requests to answer outside training; difficulty at temperature 0.7 and
top-p 0.9; for reasoning models, one datum per turn.
Where we differ from the released code
- One optimizer step per generation, as in table 9; theirs takes about one per turn of a reasoning
  model's rollout.
- For Qwen2.5 and OLMo, their loss is a token mean over pairs of rollouts; ours is eq. 3. We use no
  weight decay (theirs: 0.01).
- A candidate task is one rollout for a document (theirs: the first valid one of four). The Solver
  screens it at temperature 1 (theirs: 0.7) without their limit of 2,048 tokens per turn, and all
  grading is at 0.6 (theirs: partly at 0).
- A search ends its turn in every syntax, and nothing inside a think block counts.
- F.1's tool share counts valid searches; their code also subtracts malformed ones. Gates run before
  the rubric is written.
- The rubric writer sees up to `judge.evidence_document_tokens` of each document; theirs sees what
  the Challenger saw.
- An unreadable verdict is requested again with the same prompt; their code shows the model its
  reply and points out the error.
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
    """l.2: C_0 = S_0 = M0, or both players as another run left them after one of its iterations."""
    start = run.cfg.first_iteration - 1
    return player_of(run, "challenger", start), player_of(run, "solver", start)


def train_challenger(scope: Scope, iteration: Place, challenger: Player, solver: Player) -> Player:
    """Stage 1: a task earns most if last iteration's Solver meets half of its rubric."""
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
    """Draw batches of candidates until enough tasks of moderate difficulty are kept; or take given
    tasks. The documents follow those of the `num_batches_before` batches of earlier iterations."""
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
    """The number of batches for `num_tasks` tasks, and the size of each except perhaps the last.

    There are as few batches as possible, of nearly equal size and with at most `most` tasks each.

    >>> batches_of(5120, 256), batches_of(26, 16), batches_of(5, 16), batches_of(0, 16)
    ((20, 256), (2, 13), (1, 5), (0, 0))
    """
    if num_tasks == 0:
        return 0, 0
    num_batches = math.ceil(num_tasks / most)
    return num_batches, math.ceil(num_tasks / num_batches)
