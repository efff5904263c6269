"""The parts of a SPELL step: rounds of questions, answers and votes.

Rounds are played until enough groups of answers have contrast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from flows.blocks.controls import permuted
from flows.blocks.corpora import world_of_corpus
from flows.blocks.questions import answer, watch_questions_and_answers
from flows.run import Player, Role, Run
from flows.spell.config import Config
from flows.spell.corpus import ClusteredCorpus, open_prepared
from flows.spell.rewards import questioner_rewards, responder_rewards, verifier_rewards
from flows.spell.rlvr import FixedQuestions
from flows.spell.roles import Roles
from flows.spell.rules import covers, covers_some, is_readable
from tasks.clusters import documents_of, draw
from tasks.keep import Limit, Query, keep
from tasks.processes.comparisons import Compare
from tasks.score import score
from tasks.scorers.accepted import equal
from tasks.stage import Tables
from warehouse.store import Place, Table

FULL = "batch already full"  # why a group that has contrast is not taken
RESPONDER_GROUPS = Query.beside(__file__, "responder_groups")


@dataclass(frozen=True)
class Spell:
    """A run, its roles, its clusters of documents and, in the baseline RLVR, its questions."""

    run: Run[Config]
    roles: Roles
    corpus: ClusteredCorpus
    fixed_questions: FixedQuestions | None = None

    @property
    def rule(self) -> Compare:
        """R_rule. In the control `readable`, any readable answer is right; with `rule_misses`, some
        right answers are rejected.

        Without reference answers, answers are compared with their majority and are right if they
        have the same words.
        """
        if self.run.cfg.controls.readable:
            return is_readable
        if self.has_no_answers:
            return equal
        return self.grounding_rule

    @property
    def grounding_rule(self) -> Compare:
        """The rule that decides whether a question was answered without documents. The control
        `readable` does not change it, since that concerns only the responder's rewards."""
        if self.run.cfg.controls.rule_misses:
            return partial(covers_some, misses=self.run.cfg.controls.rule_misses)
        return covers

    @property
    def has_no_answers(self) -> bool:
        """Whether the questions come from a file without answers; a question's reference is then
        its own majority answer."""
        return self.fixed_questions is not None and not self.fixed_questions.has_answers

    @classmethod
    def prepare(cls, run: Run[Config]) -> Spell:
        """Open the documents and, in the baseline RLVR, the questions."""
        roles = Roles(run.cfg)
        if not run.cfg.given:
            return cls(run, roles, open_corpus(run))
        place = run.place.iteration(0).phase("given")
        fixed_questions = FixedQuestions.open(run, place, run.cfg.given)
        return cls(run, roles, fixed_questions.corpus, fixed_questions)


@dataclass(frozen=True)
class Questions:
    """The questions of a round, and the documents of their clusters.

    Fixed questions have no samples, prompts or rollouts; otherwise there is one table of each.
    """

    tasks: Table
    documents: Table
    samples: tuple[Table, ...] = ()
    prompts: tuple[Table, ...] = ()
    rollouts: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Votes:
    """The verifier's votes and their rollouts: one table of each, or none without a verifier."""

    rows: tuple[Table, ...] = ()
    rollouts: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Rewards:
    """Each role's rewards in a round; the verifier has one table, or none if it is disabled."""

    questioner: Table
    responder: Table
    verifier: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Round:
    """Questions with their answers and votes, and all roles' rewards and rollouts.

    `groups` says for which questions the batch takes the group of answers.
    """

    questions: Questions
    answers: Table
    votes: Votes
    rollouts: tuple[Table, ...]
    rewards: Rewards
    groups: Table


def open_corpus(run: Run[Config]) -> ClusteredCorpus:
    """The dataset D of Algorithm 1: clusters of documents for every task type.

    They come from prepared corpora or from the run's world. Raises ValueError for a world without
    clusters.
    """
    cfg = run.cfg
    world = world_of_corpus(run, cfg.corpus)
    if world is not None:
        if world.documents is None or world.memberships is None:
            raise ValueError(f"the world of {world.name} has no clusters of documents")
        num_clusters = cfg.clusters.in_world
        memberships = world.memberships(run.place, seed=cfg.world_seed, size=num_clusters)
        documents = world.documents(run.place, seed=cfg.world_seed, size=num_clusters)
        return ClusteredCorpus((documents,), dict.fromkeys(cfg.task_types, memberships))
    corpus_of = dict.fromkeys(map(str, cfg.task_types), cfg.corpus)
    if "finance_math" in corpus_of:
        corpus_of["finance_math"] = cfg.clusters.finance_corpus or cfg.corpus
    return open_prepared(run.place, corpus_of, cfg.clusters.per_type, cfg.seed)


def play_round(
    spell: Spell,
    step: Place,
    player: Player,
    memory: Table | None,
    earlier: tuple[Round, ...],
    num_before: int,
) -> Round:
    """l.7-24 for `clusters_per_round` clusters.

    `earlier`: the earlier rounds of this step. `num_before`: rounds played since the run began.
    """
    cfg = spell.run.cfg
    number = len(earlier) + 1  # of this round within its step, for labels
    # l.7-10
    questions = ask_questions(spell, step, player, memory, num_before, number)
    tasks = questions.tasks
    # l.11-14
    closed_book = answer_closed_book(spell, step, player, tasks, number)
    # l.15
    responses = answer(
        spell.run,
        step,
        spell.roles.responder,
        player,
        group_size=cfg.group_size,
        compare=spell.rule,
        by_majority=spell.has_no_answers,
        label=f"responder-{number}",
        tasks=tasks,
        documents=questions.documents,
        memberships=spell.corpus.clusters,
        closed_book=closed_book,
    )
    answers = responses.answers
    # l.16-17
    votes = verify(spell, step, player, answers, tasks, number)
    # l.18
    rewards = score_round(
        spell, step, tasks, closed_book, answers, responses.matches, votes, number
    )
    # l.22-24
    groups = keep(
        step,
        RESPONDER_GROUPS,
        tasks=tasks,
        rewards=rewards.questioner,
        right_share=cfg.sampling.right_share,
        seed=cfg.seed,
        limits=(Limit(cfg.sampling.groups, FULL),),
        earlier=tuple(r.groups for r in earlier),
        label=f"round-{number}",
    )
    # an update takes no rollouts of a role that is not trained
    question_rollouts = questions.rollouts if cfg.questioner.trained else ()
    vote_rollouts = votes.rollouts if cfg.verifier.trained else ()
    rollouts = (*question_rollouts, responses.rollouts, *vote_rollouts)
    return Round(questions, answers, votes, rollouts, rewards, groups)


def ask_questions(
    spell: Spell, step: Place, player: Player, memory: Table | None, num_before: int, number: int
) -> Questions:
    """l.7-10: the questioner's questions; in the baseline RLVR, the next draw of fixed
    questions."""
    cfg = spell.run.cfg
    label = f"round-{number}"
    if spell.fixed_questions is not None:
        tasks = spell.fixed_questions.draw(step, cfg, num_before, label)
        return Questions(tasks, spell.corpus.documents[0])
    samples = draw(
        step,
        spell.corpus.memberships,
        memory,
        num_samples=cfg.sampling.clusters_per_round,
        documents_per_sample=cfg.questioner.num_documents,
        seed=cfg.seed,
        num_before=num_before,
        label=label,
    )
    documents = documents_of(
        step, spell.corpus.documents, spell.corpus.clusters, samples=samples, label=label
    )
    replies = spell.run.ask(
        step,
        spell.roles.questioner,
        spell.run.models.get("questioner", player.policy),
        label=f"questioner-{number}",
        samples=samples,
        documents=documents,
        memory=memory or (),
    )
    return Questions(
        tasks=replies.rows,
        documents=documents,
        samples=(samples,),
        prompts=(replies.prompts,),
        rollouts=(replies.rollouts,),
    )


def answer_closed_book(
    spell: Spell, step: Place, player: Player, tasks: Table, number: int
) -> tuple[Table, ...]:
    """l.11: whether the rule accepts an answer given without the documents.

    One table of matches, or none without the grounding filter.
    """
    if not spell.run.cfg.questioner.grounding_filter:
        return ()
    responses = answer(
        spell.run,
        step,
        spell.roles.closed_book,
        player,
        group_size=1,
        compare=spell.grounding_rule,
        label=f"closed-book-{number}",
        tasks=tasks,
    )
    return (responses.matches,)


def verify(
    spell: Spell, step: Place, player: Player, answers: Table, tasks: Table, number: int
) -> Votes:
    """l.16-17: G votes on every readable answer."""
    cfg = spell.run.cfg
    if not cfg.verifier.enabled:
        return Votes()
    replies = spell.run.ask(
        step,
        spell.roles.verifier,
        player.policy,
        group_size=cfg.group_size,
        label=f"verifier-{number}",
        answers=answers,
        tasks=tasks,
    )
    return Votes((replies.rows,), (replies.rollouts,))


def judge_externally(
    spell: Spell, place: Place, role: Role, answers: Table, tasks: Tables, *, label: str
) -> tuple[Table, ...]:
    """Another model's verdict on every answer: one table, or none if the role has no model.

    The role `judge` replaces the rule (table 4); the role `examiner` complements it (table 5).
    """
    model = spell.run.models.get(role.name)
    if model is None:
        return ()
    replies = spell.run.ask(place, role, model, label=label, answers=answers, tasks=tasks)
    return (replies.rows,)


def score_round(
    spell: Spell,
    step: Place,
    tasks: Table,
    closed_book: tuple[Table, ...],
    answers: Table,
    matches: Table,
    votes: Votes,
    number: int,
) -> Rewards:
    """l.18: the rewards of all roles, eq. 4-7.

    The rewards of questions and votes are derived from those of the answers.
    """
    cfg = spell.run.cfg
    judged = judge_externally(
        spell, step, spell.roles.judge, answers, tasks, label=f"judge-{number}"
    )
    responder = score(
        step,
        responder_rewards,
        answers=answers,
        matches=matches,
        votes=votes.rows,
        judged=judged,
        majority_vote=cfg.verifier.majority_vote,
        label=f"responder-{number}",
    )
    questioner = score(
        step,
        questioner_rewards,
        tasks=tasks,
        closed_book=closed_book,
        answers=answers,
        responded=responder,
        settings=cfg.questioner,
        label=f"questioner-{number}",
    )
    verifier: tuple[Table, ...] = ()
    if votes.rows:
        verifier = (
            score(
                step,
                verifier_rewards,
                votes=votes.rows,
                responded=responder,
                label=f"verifier-{number}",
            ),
        )
    # the control permutes the responder's rewards alone; other roles' rewards use the true ones
    trained = permuted(spell.run, step, cfg.controls, responder, f"responder-{number}-permuted")
    return Rewards(questioner, trained, verifier)


def watch_rounds(spell: Spell, step: Place, player: Player, rounds: Sequence[Round]) -> None:
    """Stop before an update that a reward or a filter would mislead.

    Raises Alarm if questions are empty or copies or should not have passed, or, where the truth is
    known, if references are wrong, votes err or wrong answers are rewarded.
    """
    # no world knows the truth about fixed questions
    world = None
    if spell.run.world is not None and spell.fixed_questions is None:
        world = spell.run.world.for_training
    watch_questions_and_answers(
        spell.run,
        step,
        player.policy.id,
        world,
        tasks=[r.questions.tasks for r in rounds],
        answers=[r.answers for r in rounds],
        rewards=[r.rewards.responder for r in rounds],
        votes=[table for r in rounds for table in r.votes.rows],
        chosen=[r.groups for r in rounds],
        passed=(FULL,),
        shown={
            "documents": [r.questions.documents for r in rounds],
            "memberships": spell.corpus.clusters,
        },
    )
