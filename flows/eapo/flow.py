"""EAPO, Evidence-Augmented Policy Optimization: a policy quotes evidence before it answers; a
reward model compares the quotes, and learns from those of its marks that agree with the outcomes.
It reads as section 3.

Departures
- Marks are scaled to 0..1 among the answers of a group that have all four parts. If all marks are
  equal to v, the evidence reward is (v - 1) / 4; if a comparison is unreadable twice, it is 0.
- The reward model sees a list of quotes, one per line or sentence, without quotation marks and
  ellipses: at most 200 quotes and 30,000 characters. It samples at the policy's temperature; the
  paper gives a temperature only for the policy.
- An empty `<answer>` gets no format reward either.
- In training, the paper profiles judge answers with a local model (`models.judge`); the paper names
  GPT-4o.
- Advantages are divided by the population standard deviation.
- The reward model learns each mark that agrees with its outcome separately, within the comparison
  that it wrote. The words of a comparison are learnt only if none of its marks disagrees. The paper
  does not specify the form in which a trajectory is learnt, nor the learning rate, batch and
  bounds.
- Eq. 1 has one ratio for a whole output; here each token has its own, as in DAPO's code.
- Prompts are worded for this project. The set `paper` makes the same requests as the paper's
  prompts. Our set `english` asks for no more quotes than are needed (the paper: as comprehensive as
  possible), and for equal scores for equally good sets. Contexts are enclosed in tags.
- Identical evidence is shown as often as it was given.
- A tree of evidence expands only its best node, with three samples per level; the paper says "beam
  width 3". The nodes are scored by the policy's own reward model as it is after training.
- The errors of figure 9 are told apart by known evidence, on held-out questions that have it. The
  paper does not say how it classifies errors on LongBench-v2, which has none.
- Benchmarks: items with a context of more than 131,072 tokens are left out, and contexts between
  the policy's 120K tokens and this bound lose their middle. An answer counts even if other parts of
  the reply are missing. Each question is asked once at temperature 1.0; the paper does not say.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.blocks.long_context import QuestionSet
from flows.eapo.agreement import agreeing_marks
from flows.eapo.compare import true_marks
from flows.eapo.config import TASK_TYPES, Config
from flows.eapo.evidence import AnswerChecker, measure_quotes
from flows.eapo.held_out import score_held_out
from flows.eapo.rewards import policy_rewards
from flows.eapo.roles import Roles
from flows.method import method
from flows.run import Player, Replies, Run
from tasks.given import draw_tasks
from tasks.keep import Query, choose
from tasks.monitors.monitor import JUDGE
from tasks.normalise import normalise
from tasks.score import score
from warehouse.store import Place, Table

QUOTES = "quote monitor"  # a benchmark in `evaluations`
CONSISTENT = Query.beside(__file__, "consistent")


@dataclass(frozen=True)
class PolicyStep:
    """The policy after a step, the comparisons of its evidence (none if evidence is not compared),
    and the rewards of its answers."""

    policy: Player
    comparisons: list[Replies]
    rewards: Table


@method(Config)
def eapo_iteration(run: Run[Config]) -> tuple[Player, Player]:
    """A policy and a reward model that co-evolve."""
    cfg = run.cfg
    roles = Roles(cfg)
    questions = open_questions(run)
    policy = run.player("policy")
    reward_model = Player("reward_model", run.model("reward_model"))
    first_answers = score_held_out(run, run.place.iteration(0), roles, policy, reward_model)
    for t, iteration in run.iterations():
        comparisons = list[Replies]()
        rewards = list[Table]()
        for b in range(cfg.steps):
            step = iteration.phase("policy").step(b + 1)
            tasks = draw_tasks(
                step,
                questions.tasks,
                number=(t - 1) * cfg.steps + b,
                size=cfg.batch_size,
                seed=cfg.seed,
            )
            result = improve(run, roles, step, policy, reward_model, tasks, questions.contexts)
            policy = result.policy
            comparisons += result.comparisons
            rewards.append(result.rewards)
        if cfg.trains_reward_model:
            place = iteration.phase("reward_model")
            reward_model = refine(run, roles, place, reward_model, comparisons, rewards)
        score_held_out(run, iteration, roles, policy, reward_model, first_answers)
    return policy, reward_model


def improve(
    run: Run[Config],
    roles: Roles,
    step: Place,
    policy: Player,
    reward_model: Player,
    tasks: Table,
    contexts: Table,
) -> PolicyStep:
    """Section 3.2: G answers to each question, one comparison of their evidence, one update."""
    cfg = run.cfg
    answers = run.ask(
        step,
        roles.policy,
        policy.policy,
        group_size=cfg.group_size,
        tasks=tasks,
        contexts=contexts,
    )
    checks = AnswerChecker(run, roles.judge).check(step, answers.rows, tasks)  # R_a
    comparisons = list[Replies]()
    if cfg.compares:  # R_e
        comparison = run.ask(
            step,
            roles.reward_model,
            reward_model.policy,
            answers=answers.rows,
            tasks=tasks,
        )
        comparisons.append(comparison)
    marks = [comparison.rows for comparison in comparisons]
    watch(run, step, policy.policy.id, answers=answers.rows, marks=marks, tasks=tasks)

    rewards = score(  # eq. 2
        step,
        policy_rewards,
        answers=answers.rows,
        marks=marks,
        matches=checks.matches,
        votes=checks.votes,
        weights=cfg.rewards,
    )
    advantages = normalise(step, rewards, scheme="zscore")
    policy = run.learn(step, policy, advantages, answers.rollouts, cfg.update)  # eq. 1
    return PolicyStep(policy, comparisons, rewards)


def refine(
    run: Run[Config],
    roles: Roles,
    place: Place,
    reward_model: Player,
    comparisons: list[Replies],
    rewards: list[Table],
) -> Player:
    """Section 3.3, eq. 3: rejection fine-tuning on the iteration's marks that agree with the
    outcomes."""
    cfg = run.cfg.reward_model
    marks = [comparison.rows for comparison in comparisons]
    chosen = choose(
        place,
        CONSISTENT,
        marks=marks,
        rewards=rewards,
        # marks of 1 to 5 are stored as 0 to 1
        high=(cfg.high - 1) / 4,
        low=(cfg.low - 1) / 4,
    )
    rows = agreeing_marks(
        place,
        [comparison.rollouts for comparison in comparisons],
        marks,
        chosen,
        model=run.model("reward_model"),
        find_scores=roles.find_scores,
    )
    return run.fit(place, reward_model, rows, cfg.update, batch_size=cfg.batch_size)


def open_questions(run: Run[Config]) -> QuestionSet:
    """The training questions: the built-in world's, or those of a file."""
    cfg = run.cfg
    place = run.place.iteration(0).phase("questions")
    world = run.world
    if world is not None and cfg.questions == world.benchmark:
        return QuestionSet.of_world(
            place,
            world.for_training,
            seed=cfg.world_seed,
            num_tasks=cfg.in_world,
            with_evidence=False,
        )
    return QuestionSet.open(place, cfg.questions, TASK_TYPES)


def watch(
    run: Run[Config], step: Place, policy: str, *, answers: Table, marks: list[Table], tasks: Table
) -> None:
    """Raise Alarm before an update if too little is quoted from the context, if comparisons cannot
    be read or, where the truth is known, if marks are too often wrong."""
    run.watch(
        step,
        measure_quotes,
        policy=policy,
        benchmark=QUOTES,
        label="quotes",
        answers=answers,
        marks=marks,
    )
    world = run.world
    if world is None or world.mark is None or run.cfg.questions != world.benchmark:
        return  # no truth is known
    if marks:
        run.watch(
            step,
            true_marks,
            policy=policy,
            benchmark=JUDGE,
            label="truth",
            answers=answers,
            marks=marks,
            tasks=tasks,
            oracle=world.mark,
        )
