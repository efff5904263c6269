"""What a step of SPELL is made of: rounds of questions, answers and votes, until enough groups have contrast."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.run import Player, Replies, Role, Run
from flows.spell.config import Config
from flows.spell.corpus import Corpus, open_corpus
from flows.spell.roles import Roles
from flows.spell.rules import covers, is_readable
from flows.spell.scoring import permuted_scores, questioner_scores, responder_scores, verifier_scores
from tasks.clusters import documents_of, draw
from tasks.keep import Limit, Query, keep
from tasks.match import match
from tasks.score import score
from tasks.stage import Tables
from warehouse.store import Place, Table

RESPONDER_GROUPS = Query(Path(__file__).parent / "sql" / "responder_groups.sql")


@dataclass(frozen=True)
class Spell:
    """A run, who is asked what in it, and its clusters of documents."""

    run: Run[Config]
    roles: Roles
    corpus: Corpus

    @classmethod
    def prepare(cls, run: Run[Config]) -> Spell:
        return cls(run, Roles(run.cfg), open_corpus(run))


@dataclass(frozen=True)
class Round:
    """Questions about clusters drawn at once, with their answers, votes, and all roles' rewards.

    `rollouts` and `scores` are the questioner's, the responder's and the verifier's; without a verifier there are two.
    """

    samples: Table
    documents: Table
    asked: Table
    tasks: Table
    rollouts: tuple[Table, ...]
    scores: dict[str, Table]
    groups: Table


def play_round(
    spell: Spell, step: Place, player: Player, memory: Table | None, earlier: tuple[Round, ...], num_before: int
) -> Round:
    """l.7-24 for `clusters_per_round` clusters."""
    run, cfg, roles, r = spell.run, spell.run.cfg, spell.roles, len(earlier) + 1
    samples = draw(  # l.7-8
        step,
        spell.corpus.memberships,
        memory,
        num_samples=cfg.sampling.clusters_per_round,
        documents_per_sample=cfg.questioner.num_documents,
        seed=cfg.seed,
        num_before=num_before,
        label=f"round-{r}",
    )
    clusters = spell.corpus.clusters
    documents = documents_of(step, spell.corpus.documents, clusters, samples=samples, label=f"round-{r}")
    known: dict[str, Any] = {"memory": memory} if memory else {}
    asked = run.ask(  # l.9-10
        step, roles.questioner, player.policy, label=f"questioner-{r}", samples=samples, documents=documents, **known
    )
    tasks = asked.rows
    closed_book = filter_ungrounded(spell, step, player, tasks, r)  # l.11-14
    shown = {"documents": documents, "memberships": clusters, "closed_book": closed_book}
    n, label = cfg.group_size, f"responder-{r}"
    said, matches = answer(spell, step, roles.responder, player, n=n, label=label, tasks=tasks, **shown)  # l.15
    votes = verify(spell, step, player, said.rows, tasks, r)  # l.16-17
    about = {
        "answers": said.rows,
        "matches": matches,
        "votes": [v.rows for v in votes],
        "judged": judge_externally(spell, step, said.rows, tasks, label=f"judge-{r}"),
    }
    scores = score_round(spell, step, tasks, closed_book, about, r)  # l.18
    groups = keep(
        step,
        RESPONDER_GROUPS,
        tasks=tasks,
        scores=scores["questioner"],
        earlier=tuple(e.groups for e in earlier),
        limits=(Limit(cfg.sampling.groups, "batch already full"),),
        seed=cfg.seed,
        label=f"round-{r}",
    )
    rollouts = (asked.rollouts, said.rollouts, *(v.rollouts for v in votes))
    return Round(samples, documents, asked.prompts, tasks, rollouts, scores, groups)


def filter_ungrounded(spell: Spell, step: Place, player: Player, tasks: Table, r: int) -> tuple[Table, ...]:
    """l.11: whether the rule accepts an answer given without the documents."""
    if not spell.run.cfg.questioner.grounding_filter:
        return ()
    role, label = spell.roles.closed_book, f"closed-book-{r}"
    return (answer(spell, step, role, player, n=1, label=label, tasks=tasks)[1],)


def answer(
    spell: Spell, step: Place, role: Role, player: Player, *, n: int, label: str, tasks: Tables, **shown: Tables
) -> tuple[Replies, Table]:
    """l.15: answers, and what the rule says of them."""
    said = spell.run.ask(step, role, player.policy, n=n, label=label, tasks=tasks, **shown)
    compare = is_readable if spell.run.cfg.controls.readable else covers
    return said, match(step, said.rows, tasks, compare=compare, label=label)


def verify(spell: Spell, step: Place, player: Player, answers: Table, tasks: Table, r: int) -> tuple[Replies, ...]:
    """l.16-17: G votes on every answer that states one; nothing without a verifier."""
    run, label = spell.run, f"verifier-{r}"
    if not run.cfg.verifier.enabled:
        return ()
    role, n = spell.roles.verifier, run.cfg.group_size
    return (run.ask(step, role, player.policy, n=n, label=label, answers=answers, tasks=tasks),)


def judge_externally(
    spell: Spell, step: Place, answers: Table, tasks: Tables, *, model: str = "judge", label: str
) -> tuple[Table, ...]:
    """The verdict of another model on every answer, where one is named: in place of the rule (table 4), or of
    held-out answers."""
    judge = spell.run.models.get(model)
    if judge is None:
        return ()
    return (spell.run.ask(step, spell.roles.judge, judge, label=label, answers=answers, tasks=tasks).rows,)


def score_round(
    spell: Spell, step: Place, tasks: Table, closed_book: Tables, about: dict[str, Tables], r: int
) -> dict[str, Table]:
    """l.18: the rewards of all roles, eq. 4-7."""
    cfg = spell.run.cfg
    scores = {
        "questioner": score(
            step,
            questioner_scores,
            tasks=tasks,
            closed_book=closed_book,
            settings=cfg.questioner,
            verifier=cfg.verifier,
            label=f"questioner-{r}",
            **about,
        ),
        "responder": score(step, responder_scores, settings=cfg.verifier, label=f"responder-{r}", **about),
    }
    if cfg.controls.permuted:
        given = {"settings": cfg.verifier, "seed": cfg.seed, **about}
        scores["responder"] = score(step, permuted_scores, label=f"responder-{r}-permuted", **given)
    if cfg.verifier.enabled:
        scores["verifier"] = score(step, verifier_scores, settings=cfg.verifier, label=f"verifier-{r}", **about)
    return scores
