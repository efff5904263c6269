"""The steps shared by SCOPE's two stages, each a line or two of Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from flows.blocks.corpora import open_documents, world_of_corpus
from flows.blocks.erring import no_truth
from flows.run import Player, Replies, Role, Run
from flows.scope.config import ChallengerSettings, Config, SolverSettings
from flows.scope.rewards import challenger_rewards, solver_rewards
from flows.scope.roles import Roles
from flows.worlds.world import World
from tasks.ask import kept_tasks
from tasks.check import asks_nothing_twice, check
from tasks.erring import read_erring_judgments
from tasks.given import GivenTasks, given_rubrics, given_tasks
from tasks.judge import Oracle, read_judgments
from tasks.keep import Limit, Query, keep
from tasks.monitors.audit import Sound
from tasks.noise import VerdictErrors
from tasks.normalise import normalise
from tasks.sample import sample
from tasks.score import score
from tasks.stage import Tables
from warehouse.schemas import SAMPLES
from warehouse.store import Place, Table

NO_ERRORS = VerdictErrors()
DIFFICULTY_WINDOW = Query.beside(__file__, "difficulty_window")
EVERY_TASK = Query.beside(__file__, "every_task")
# why a moderate task is not kept
NOT_NEEDED = ("another task of its document is kept", "target already met")
# rules for `judge.rule_gates`, which may also name gates of the run's world
RULES: dict[str, Callable[[str], bool]] = {"repeats": asks_nothing_twice}


@dataclass(frozen=True)
class Scope:
    """A run, its roles, and its corpus with the index. In the built-in world, also an oracle for
    verdicts and one that knows which tasks are sound."""

    run: Run[Config]
    roles: Roles
    documents: Table
    oracle: Oracle | None
    sound: Sound | None = None

    @classmethod
    def prepare(cls, run: Run[Config]) -> Scope:
        """A run's roles over the corpus that its configuration names: documents of the built-in
        world, with its oracles, or real ones.

        Raises ValueError if there is no such corpus, if the built-in world has no tasks with
        rubrics, or if verdicts are to err but nobody knows the truth.
        """
        cfg = run.cfg
        world = world_of_corpus(run, cfg.corpus)
        if world is not None:
            return cls.over_world(run, world, run.place, cfg.world_seed, cfg.corpus_documents)
        if cfg.errors.shape != "none":
            raise no_truth(cfg.errors)
        return cls(run, Roles(cfg), open_documents(run.place, cfg.corpus, cfg.embedding), None)

    @classmethod
    def over_world(
        cls, run: Run[Config], world: World, at: Place, seed: int, num_documents: int
    ) -> Scope:
        """The same roles over documents of a built-in world, with its oracles.

        Raises ValueError for a world without tasks with rubrics.
        """
        if world.documents is None or world.rubric_truth is None:
            raise ValueError(f"the world of {world.name} has no tasks with rubrics")
        documents = world.documents(at, embedding=run.cfg.embedding, seed=seed, size=num_documents)
        truth = world.rubric_truth(seed, num_documents)
        return cls(run, Roles(run.cfg), documents, truth.oracle, truth.sound)


@dataclass(frozen=True)
class ScoredTasks:
    """Candidate tasks, their rollouts and rubrics, and the Challenger's rewards for them."""

    tasks: Table
    rollouts: Table
    rubrics: Replies
    rewards: Table


@dataclass(frozen=True)
class ScoredAnswers:
    """Answers to a batch of tasks: their rollouts, the verdicts, and the Solver's rewards."""

    rollouts: Table
    judgments: Table
    rewards: Table


@dataclass(frozen=True)
class Pool:
    """The tasks of one iteration: candidates with their rubrics, and which of them are kept."""

    tasks: tuple[Table, ...] = ()
    rubrics: tuple[Table, ...] = ()
    selections: tuple[Table, ...] = ()
    scored: tuple[ScoredTasks, ...] = ()  # one per draw; none if tasks are given
    num_batches: int = 0  # a draw may be several batches

    def with_draw(self, num_batches: int, candidates: ScoredTasks, selections: Table) -> Pool:
        """The pool after one more draw of candidates."""
        return Pool(
            tasks=(*self.tasks, candidates.tasks),
            rubrics=(*self.rubrics, candidates.rubrics.rows),
            selections=(*self.selections, selections),
            scored=(*self.scored, candidates),
            num_batches=self.num_batches + num_batches,
        )

    @property
    def num_kept(self) -> int:
        return sum(row["kept"] for table in self.selections for row in table.rows())


def player_of(run: Run[Config], name: str, iteration: int) -> Player:
    """A player as an iteration left it, in this run or in the one that it branches from."""
    branch = run.cfg.branch
    if branch is not None and iteration < run.cfg.first_iteration:
        return run.player_after(name, iteration, branch.run)
    return run.player_after(name, iteration)


def batches_before(scope: Scope) -> int:
    """How many batches of documents were drawn for the pools of the run that this run branches
    from, up to the branching point."""
    branch = scope.run.cfg.branch
    if branch is None:
        return 0
    num_drawn = sum(
        table.num_rows
        for table in scope.run.place.store.tables(branch.run, SAMPLES)
        if table.at.phase == "pool" and (table.at.iteration or 0) <= branch.iteration
    )
    return math.ceil(num_drawn / scope.run.cfg.pool.candidates_per_batch)


def sample_documents(
    scope: Scope, step: Place, size: int, skip: int, num_batches: int = 1
) -> Table:
    """l.6 and l.20: batches of `size` documents after the first `skip` batches of the phase. Each
    document gets a task type and a number of search turns.

    No document is drawn twice, in this iteration or a later one, until the corpus is used up.
    """
    cfg = scope.run.cfg
    return sample(
        step,
        scope.documents,
        num_samples=num_batches * size,
        task_types=cfg.task_types,
        search_turns=cfg.challenger.search_turns,
        seed=cfg.seed,
        epoch=step.at.phase or "",
        skip=skip * size,
    )


def propose_tasks(
    scope: Scope,
    step: Place,
    challenger: Player,
    solver: Player,
    samples: Table,
    *,
    answering: Role,
    group_size: int,
    num_answers: int,
) -> ScoredTasks:
    """l.7-15 and l.21-23: propose tasks, gate them, write their rubrics, and test the Solver on
    them.

    There are `group_size` tasks per sample and `num_answers` answers per task; the Solver gives
    them in the role `answering`.
    """
    run = scope.run
    roles = scope.roles
    cfg = scope.run.cfg
    proposed = run.ask(  # l.7
        step,
        roles.challenger,
        challenger.policy,
        group_size=group_size,
        index=scope.documents,
        samples=samples,
        documents=scope.documents,
    )
    gates = gate(scope, step, proposed.rows)  # l.8
    rubrics = run.ask(  # l.9
        step,
        roles.rubric_writer,
        run.model("rubric_writer"),
        tasks=proposed.rows,
        documents=scope.documents,
        gates=gates,
    )
    answers = run.ask(  # l.10
        step,
        answering,
        solver.policy,
        group_size=num_answers,
        index=scope.documents,
        tasks=proposed.rows,
        rubrics=rubrics.rows,
    )
    judgments = grade(  # l.11
        scope,
        step,
        answers=answers.rows,
        rubrics=rubrics.rows,
        tasks=proposed.rows,
        errors=cfg.errors,
    )
    rewards = score(  # l.12-15, eq. 4
        step,
        challenger_rewards,
        tasks=proposed.rows,
        gates=gates,
        rubrics=rubrics.rows,
        answers=answers.rows,
        judgments=judgments,
        settings=cfg.challenger.reward,
        min_coverage=cfg.judge.min_coverage,
    )
    return ScoredTasks(proposed.rows, proposed.rollouts, rubrics, rewards)


def gate(scope: Scope, step: Place, tasks: Table) -> tuple[Table, ...]:
    """l.8: quality gates QG, by the Judge and by a profile's rules: up to two tables of `gates`.

    The ablation keeps only the safety gate, if it is listed; without any gate there is no table.
    Raises ValueError for a rule of a world other than the run's.
    """
    run = scope.run
    judge = scope.run.cfg.judge
    tables: list[Table] = []
    if judge.applied_gates:
        verdicts = run.ask(
            step, scope.roles.gates, run.model("base"), tasks=tasks, documents=scope.documents
        )
        tables.append(verdicts.rows)
    if judge.rule_gates and judge.quality_gates:
        rules = rules_named(judge.rule_gates, run.world)
        tables.append(check(step, tasks, rules=rules, label="rule"))
    return tuple(tables)


def rules_named(names: Sequence[str], world: World | None) -> dict[str, Callable[[str], bool]]:
    """The rules that `judge.rule_gates` names. Raises ValueError for one that the world lacks."""
    rules = dict(RULES)
    if world is not None:
        rules.update(world.gates)
    for name in names:
        if name not in rules:
            raise ValueError(
                f"judge.rule_gates names {name!r}, a rule of a built-in world that the run does"
                f" not live in; there are {', '.join(rules)}"
            )
    return {name: rules[name] for name in names}


def grade(
    scope: Scope,
    step: Place,
    *,
    answers: Table,
    rubrics: Tables,
    tasks: Tables,
    errors: VerdictErrors = NO_ERRORS,
) -> Table:
    """l.11: one verdict per criterion and answer; an unreadable verdict is requested once more.

    `errors` are deliberate ones, for studies; they need an oracle.
    """
    role = scope.roles.grader
    prompts, rollouts = scope.run.sample(
        step, role, scope.run.model("grader"), answers=answers, rubrics=rubrics, tasks=tasks
    )
    return _judgments(
        scope, step, role, prompts, rollouts, rubrics=rubrics, answers=answers, errors=errors
    )


def grade_canaries(
    scope: Scope, step: Place, role: Role, *, rubrics: Tables, tasks: Tables
) -> Table:
    """Verdicts on answers that `role` makes from the rubrics and whose truth is therefore known."""
    prompts, rollouts = scope.run.sample(
        step, role, scope.run.model("grader"), rubrics=rubrics, tasks=tasks
    )
    return _judgments(scope, step, role, prompts, rollouts, rubrics=rubrics, answers=())


def _judgments(
    scope: Scope,
    step: Place,
    role: Role,
    prompts: Table,
    rollouts: Table,
    *,
    rubrics: Tables,
    answers: Tables,
    errors: VerdictErrors = NO_ERRORS,
) -> Table:
    """The verdicts read from the rollouts of a grader's role."""
    read: Callable[..., Table] = read_judgments
    if errors.shape != "none":
        assert scope.oracle is not None, "a corpus without the truth is refused at the start"
        read = partial(read_erring_judgments, errors=errors, seed=scope.run.cfg.seed)
    return read(
        step,
        rollouts,
        prompts,
        rubrics,
        answers,
        read=scope.roles.read_verdict,
        oracle=scope.oracle,
        label=role.name,
    )


def keep_moderate(
    scope: Scope, step: Place, candidates: ScoredTasks, pool: Pool, target: int
) -> Table:
    """l.24-26: the difficulty window, and one task per document."""
    cfg = scope.run.cfg.pool
    low, high = cfg.window
    return keep(
        step,
        DIFFICULTY_WINDOW,
        limits=(
            Limit(cfg.tasks_per_document, NOT_NEEDED[0], per="document_id"),
            Limit(target, NOT_NEEDED[1]),
        ),
        earlier=pool.selections,
        tasks=candidates.tasks,
        rewards=candidates.rewards,
        low=low,
        high=high,
        min_rollouts=cfg.min_graded_rollouts,
        seed=scope.run.cfg.seed,
    )


def given_pool(run: Run[Config], place: Place, given: GivenTasks, number: int, count: int) -> Pool:
    """The baseline GRPO_data: the `number`-th draw of human-written tasks with their rubrics, all
    of them kept."""
    items = given.items(run.place.iteration(0).phase("given"), run.cfg.seed)
    tasks = given_tasks(place, items, number=number, count=count, seed=run.cfg.seed)
    return Pool(
        tasks=(tasks,),
        rubrics=(given_rubrics(place, items, tasks=tasks),),
        selections=(keep(place, EVERY_TASK, tasks=tasks),),
    )


def solve_batch(
    scope: Scope, step: Place, solver: Player, pool: Pool, b: int, size: int
) -> ScoredAnswers:
    """l.29-31: answers to the b-th batch of kept tasks, and their rewards (eq. 6)."""
    cfg = scope.run.cfg.solver
    batch = partial(kept_tasks, first=b * size, count=size)  # l.29
    answers = scope.run.ask(  # l.30
        step,
        replace(scope.roles.solver, variables=batch),
        solver.policy,
        group_size=cfg.group_size,
        index=scope.documents,
        selections=pool.selections,
        tasks=pool.tasks,
    )
    judgments = grade(  # l.31
        scope,
        step,
        answers=answers.rows,
        rubrics=pool.rubrics,
        tasks=pool.tasks,
        errors=scope.run.cfg.errors,
    )
    rewards = score(  # l.31, eq. 6
        step,
        solver_rewards,
        answers=answers.rows,
        rubrics=pool.rubrics,
        judgments=judgments,
        settings=cfg.reward,
        min_coverage=scope.run.cfg.judge.min_coverage,
    )
    return ScoredAnswers(answers.rollouts, judgments, rewards)


def learn(
    scope: Scope,
    step: Place,
    player: Player,
    settings: ChallengerSettings | SolverSettings,
    scored: ScoredTasks | ScoredAnswers,
) -> Player:
    """l.17 and l.33: one GRPO update of a role, with pi_ref = M0. The learning rate rises linearly
    over the role's first steps."""
    cfg = scope.run.cfg
    advantages = normalise(step, scored.rewards, scheme="zscore", spread=cfg.advantage_std)
    num_warmup_steps = int(cfg.warmup_ratio * settings.steps)
    rate = settings.update.learning_rate * warmed_up(player.num_updates, num_warmup_steps)
    update = settings.update.model_copy(update={"learning_rate": rate})
    return scope.run.learn(step, player, advantages, scored.rollouts, update)


def warmed_up(num_updates: int, num_steps: int) -> float:
    """The factor on the learning rate in a role's next update: linear over the first `num_steps`.

    >>> [warmed_up(n, 2) for n in range(3)], warmed_up(0, int(0.03 * 20))
    ([0.5, 1.0, 1.0], 1.0)
    """
    return min(1.0, (num_updates + 1) / max(1, num_steps))
