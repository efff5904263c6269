"""The first half of a step of SPICE: documents are drawn, and asked about in rounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from flows.corpora import check_distinct, open_documents
from flows.micro.tables import ledger_documents
from flows.run import Player, Run
from flows.spice.config import Config
from flows.spice.roles import Roles, without_question
from tasks.sample import allot, sample
from tasks.stage import Tables, rows_of
from warehouse.store import Place, Table

TO_BE_CHOSEN = "to be chosen"


@dataclass(frozen=True)
class Spice:
    """A run, its roles, and a table of documents for each of the configuration's shares, in order."""

    run: Run[Config]
    roles: Roles
    corpora: tuple[Table, ...]


@dataclass(frozen=True)
class Attempts:
    """Questions asked of a step's documents, round by round, and the rollouts they were read from."""

    tasks: tuple[Table, ...] = ()
    rollouts: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Asked:
    """The questions of a step, the Challenger's rewards for them, and which of them were drawn."""

    tasks: tuple[Table, ...]
    scores: Table
    drawn: Table


def open_corpora(run: Run[Config]) -> tuple[Table, ...]:
    """The documents of each corpus, in the order of their shares. Raises ValueError for two that share an id."""
    cfg, tables = run.cfg, {}
    made = {"seed": cfg.world_seed, "num_documents": cfg.corpus_documents}
    for i, corpus in enumerate(cfg.shares, 1):
        label, in_world = f"corpus-{i}", corpus in cfg.worlds
        open_corpus = partial(ledger_documents, **made) if in_world else open_documents
        tables[corpus] = open_corpus(run.place, corpus, label=label)
    check_distinct(tables)
    return tuple(tables.values())


def sample_documents(
    spice: Spice, step: Place, number: int, epoch: str = "training", count: int | None = None
) -> tuple[Table, ...]:
    """l.5: B documents, from each corpus its share, each corpus in its own random order. None is drawn twice before its
    corpus is used up."""
    cfg, tables = spice.run.cfg, []
    shares = {i: round(1e6 * share) for i, share in enumerate(cfg.shares.values())}
    counts = allot(shares, count or cfg.documents_per_step)
    for i, documents in enumerate(spice.corpora):
        here = counts.count(i)
        if here > documents.num_rows:
            raise ValueError(f"{documents.address} has {documents.num_rows} documents, a step needs {here} of them")
        how = {"task_types": (cfg.only_task_type or TO_BE_CHOSEN,), "seed": cfg.seed, "skip": number * here}
        tables.append(
            sample(step, documents, num_samples=here, epoch=f"{epoch}-{i + 1}", label=f"corpus-{i + 1}", **how)
        )
    return tuple(tables)


def rounds(attempts: int, first: int) -> Iterator[int]:
    """Sizes of the rounds that make up N attempts: each round doubles the attempts made so far.

    >>> list(rounds(1024, 8)), list(rounds(20, 8))
    ([8, 8, 16, 32, 64, 128, 256, 512], [8, 8, 4])
    """
    made = 0
    while made < attempts:
        size = min(made or first, attempts - made)
        yield size
        made += size


def ask_questions(spice: Spice, step: Place, player: Player, samples: Tables) -> Attempts:
    """l.6: up to N attempts a document until one question is valid, all documents side by side, in growing rounds.

    The first round makes G attempts of every document; later ones go to those without a valid question.
    """
    cfg, attempts = spice.run.cfg.challenger, Attempts()
    for number, size in enumerate(rounds(cfg.attempts, cfg.group_size), 1):
        if without_question(rows_of(samples), rows_of(attempts.tasks)):
            attempts = ask_round(spice, step, player, samples, attempts, number, size)
    return attempts


def ask_round(
    spice: Spice, step: Place, player: Player, samples: Tables, earlier: Attempts, number: int, size: int
) -> Attempts:
    """`size` attempts for each document: the first call chooses a format, the second asks in it. An attempt whose
    choice is unreadable ends there. If only one format is allowed, there is no first call."""
    run, roles, n = spice.run, spice.roles, size
    policy = run.model("challenger") if run.cfg.challenger.fixed else player.policy
    given: dict[str, Any] = {"documents": spice.corpora, "tasks": earlier.tasks, "attempt": number}
    choices = samples
    if run.cfg.only_task_type is None:
        label = f"choice-{number}"
        choices, n = run.ask(step, roles.chooser, policy, n=size, label=label, samples=samples, **given).rows, 1
    asked = run.ask(step, roles.challenger, policy, n=n, label=f"question-{number}", choices=choices, **given)
    return Attempts((*earlier.tasks, asked.rows), (*earlier.rollouts, asked.rollouts))
