"""What a step of SPELL is made of: rounds of questions, answers and votes, until enough groups have contrast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flows.ahead import ahead
from flows.clustered import Clustered, open_clustered
from flows.controls import permuted
from flows.micro.tables import cluster_documents, cluster_memberships, cluster_oracle, cluster_sound
from flows.questions import Answered, answer, watch_asked
from flows.run import Player, Replies, Role, Run
from flows.spell.config import Config
from flows.spell.given import Given
from flows.spell.rewards import questioner_scores, responder_scores, verifier_scores
from flows.spell.roles import Roles
from flows.spell.rules import covers, is_readable
from tasks.clusters import documents_of, draw
from tasks.keep import Limit, Query, keep
from tasks.processes.comparisons import Compare
from tasks.score import score
from tasks.stage import Tables
from warehouse.store import Place, Table

FULL = "batch already full"  # why a group that has contrast is not taken
RESPONDER_GROUPS = Query.beside(__file__, "responder_groups")


@dataclass(frozen=True)
class Spell:
    """A run, its roles, its clusters of documents and, in the baseline RLVR, its given questions."""

    run: Run[Config]
    roles: Roles
    corpus: Clustered
    given: Given | None = None

    @property
    def rule(self) -> Compare:
        """R_rule; in the control `readable`, any readable answer is right."""
        return is_readable if self.run.cfg.controls.readable else covers

    @classmethod
    def prepare(cls, run: Run[Config]) -> Spell:
        if not run.cfg.given:
            return cls(run, Roles(run.cfg), open_corpus(run))
        given = Given.open(run.place.iteration(0).phase("given"), run.cfg, run.cfg.given)
        return cls(run, Roles(run.cfg), given.corpus, given)


@dataclass(frozen=True)
class Posed:
    """The questions of a round, and the documents of their clusters; the rest is empty for given questions."""

    tasks: Table
    documents: Table
    samples: tuple[Table, ...] = ()
    prompts: tuple[Table, ...] = ()
    rollouts: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Round:
    """Questions with their answers, votes, and all roles' rewards.

    `rollouts` and `scores` are the questioner's, the responder's and the verifier's; a verifier that is disabled has
    neither, and given questions have no rollouts.
    """

    posed: Posed
    answers: Table
    votes: tuple[Table, ...]
    rollouts: tuple[Table, ...]
    scores: dict[str, Table]
    groups: Table


def open_corpus(run: Run[Config]) -> Clustered:
    """The dataset D of Algorithm 1: clusters of documents for every task type, prepared or of the micro-world."""
    cfg, place = run.cfg, run.place
    if cfg.corpus in cfg.worlds:
        made = {"seed": cfg.world_seed, "num_clusters": cfg.clusters.in_world}
        memberships = cluster_memberships(place, **made)
        return Clustered((cluster_documents(place, **made),), dict.fromkeys(cfg.task_types, memberships))
    finance = cfg.clusters.finance_corpus or cfg.corpus
    corpus_of = {t: finance if t == "finance_math" else cfg.corpus for t in cfg.task_types}
    return open_clustered(place, corpus_of, cfg.clusters.per_type, cfg.seed)


@ahead
def play_round(
    spell: Spell, step: Place, player: Player, memory: Table | None, earlier: tuple[Round, ...], num_before: int
) -> Round:
    """l.7-24 for `clusters_per_round` clusters."""
    run, cfg, r = spell.run, spell.run.cfg, len(earlier) + 1
    posed = pose(spell, step, player, memory, num_before, r)  # l.7-10
    tasks = posed.tasks
    closed_book = filter_ungrounded(spell, step, player, tasks, r)  # l.11-14
    how = {"n": cfg.group_size, "compare": spell.rule, "label": f"responder-{r}"}
    shown = {"documents": posed.documents, "memberships": spell.corpus.clusters, "closed_book": closed_book}
    given = answer(run, step, spell.roles.responder, player, tasks=tasks, **shown, **how)  # l.15
    votes = verify(spell, step, player, given.answers, tasks, r)  # l.16-17
    scores = score_round(spell, step, tasks, closed_book, given, votes, r)  # l.18
    about = {"tasks": tasks, "scores": scores["questioner"], "earlier": tuple(e.groups for e in earlier)}
    bounds = {"right_share": cfg.sampling.right_share, "seed": cfg.seed, "label": f"round-{r}"}
    groups = keep(step, RESPONDER_GROUPS, limits=(Limit(cfg.sampling.groups, FULL),), **about, **bounds)  # l.22-24
    rollouts = (*posed.rollouts, given.rollouts, *(v.rollouts for v in votes))
    return Round(posed, given.answers, tuple(v.rows for v in votes), rollouts, scores, groups)


def pose(spell: Spell, step: Place, player: Player, memory: Table | None, number: int, r: int) -> Posed:
    """l.7-10: the questioner's questions; in the baseline the `number`-th draw of given ones."""
    run, cfg, label, clusters = spell.run, spell.run.cfg, f"round-{r}", spell.corpus.clusters
    if spell.given:
        return Posed(spell.given.draw(step, cfg, number, label), spell.corpus.documents[0])
    size = {"num_samples": cfg.sampling.clusters_per_round, "documents_per_sample": cfg.questioner.num_documents}
    samples = draw(step, spell.corpus.memberships, memory, **size, seed=cfg.seed, num_before=number, label=label)
    documents = documents_of(step, spell.corpus.documents, clusters, samples=samples, label=label)
    about: dict[str, Any] = {"samples": samples, "documents": documents, **({"memory": memory} if memory else {})}
    asked = run.ask(step, spell.roles.questioner, player.policy, label=f"questioner-{r}", **about)
    return Posed(asked.rows, documents, (samples,), (asked.prompts,), (asked.rollouts,))


def filter_ungrounded(spell: Spell, step: Place, player: Player, tasks: Table, r: int) -> tuple[Table, ...]:
    """l.11: whether the rule accepts an answer given without the documents."""
    if not spell.run.cfg.questioner.grounding_filter:
        return ()
    how = {"n": 1, "compare": spell.rule, "label": f"closed-book-{r}"}
    return (answer(spell.run, step, spell.roles.closed_book, player, tasks=tasks, **how).matches,)


def verify(spell: Spell, step: Place, player: Player, answers: Table, tasks: Table, r: int) -> tuple[Replies, ...]:
    """l.16-17: G votes on every readable answer; none without a verifier."""
    run, label = spell.run, f"verifier-{r}"
    if not run.cfg.verifier.enabled:
        return ()
    role, n = spell.roles.verifier, run.cfg.group_size
    return (run.ask(step, role, player.policy, n=n, label=label, answers=answers, tasks=tasks),)


def judge_externally(
    spell: Spell, step: Place, role: Role, answers: Table, tasks: Tables, *, label: str
) -> tuple[Table, ...]:
    """Another model's verdict on every answer, if one is configured for the role: `judge` in place of the rule (table
    4), `examiner` in addition to it (table 5)."""
    model = spell.run.models.get(role.name)
    if model is None:
        return ()
    return (spell.run.ask(step, role, model, label=label, answers=answers, tasks=tasks).rows,)


def score_round(
    spell: Spell, step: Place, tasks: Table, closed_book: Tables, given: Answered, votes: tuple[Replies, ...], r: int
) -> dict[str, Table]:
    """l.18: the rewards of all roles, eq. 4-7; those of questions and votes follow from those of the answers."""
    cfg, answers, voted = spell.run.cfg, given.answers, [v.rows for v in votes]
    judged = judge_externally(spell, step, spell.roles.judge, answers, tasks, label=f"judge-{r}")
    of_answers = {"answers": answers, "matches": given.matches, "votes": voted, "judged": judged}
    how = {"majority_vote": cfg.verifier.majority_vote, "label": f"responder-{r}"}
    responded = score(step, responder_scores, **of_answers, **how)
    of_questions = {"tasks": tasks, "closed_book": closed_book, "answers": answers, "responded": responded}
    how = {"settings": cfg.questioner, "label": f"questioner-{r}"}
    scores = {"questioner": score(step, questioner_scores, **of_questions, **how)}
    scores["responder"] = permuted(spell.run, step, cfg.controls, responded, f"responder-{r}-permuted")
    if votes:
        scores["verifier"] = score(step, verifier_scores, votes=voted, responded=responded, label=f"verifier-{r}")
    return scores


def watch_rounds(spell: Spell, step: Place, player: Player, played: Sequence[Round]) -> None:
    """Stop before an update if questions are empty or copies, or should not have passed, or if, where the truth is
    known, references are wrong, votes err or wrong answers are paid."""
    about: dict[str, Any] = {
        "tasks": [r.posed.tasks for r in played],
        "shown": {"documents": [r.posed.documents for r in played], "memberships": spell.corpus.clusters},
        "answers": [r.answers for r in played],
        "scores": [r.scores["responder"] for r in played],
        "votes": [table for r in played for table in r.votes],
        "chosen": [r.groups for r in played],
    }
    known = (None, None) if spell.given else (cluster_sound, cluster_oracle)
    watch_asked(spell.run, step, player.policy.id, *known, passed=(FULL,), **about)
