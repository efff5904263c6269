"""The first half of a step of SPICE: documents are drawn, and asked about in rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from flows.blocks.corpora import check_distinct, open_corpus
from flows.run import Player, Run
from flows.spice.config import Config
from flows.spice.roles import Roles, without_question
from tasks.sample import allot, sample
from tasks.stage import Tables, rows_of
from warehouse.store import Place, Table

TO_BE_CHOSEN = "to be chosen"


@dataclass(frozen=True)
class Spice:
    """A run, its roles, and one table of documents per corpus, in the configuration's order."""

    run: Run[Config]
    roles: Roles
    corpora: tuple[Table, ...]


@dataclass(frozen=True)
class Attempts:
    """Questions asked about a step's documents, one table per round, and the rollouts that they
    were read from."""

    tasks: tuple[Table, ...] = ()
    rollouts: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Questions:
    """The questions of a step, the Challenger's rewards for them, and which of them were drawn."""

    tasks: tuple[Table, ...]
    rewards: Table
    drawn: Table


def open_corpora(run: Run[Config]) -> tuple[Table, ...]:
    """The documents of each corpus, in the order of the shares.

    Raises ValueError for two corpora that share a document id, and for a corpus with fewer
    documents than the probe needs after the last iteration.
    """
    cfg = run.cfg
    tables = {}
    for i, corpus in enumerate(cfg.shares, 1):
        tables[corpus] = open_corpus(
            run, corpus, seed=cfg.world_seed, size=cfg.corpus_documents, label=f"corpus-{i}"
        )
    check_distinct(tables)
    if cfg.probes.checkpoints:
        needed = num_of_each(cfg, cfg.probes.num_documents)
        for documents, number in zip(tables.values(), needed, strict=True):
            if number > documents.num_rows:
                raise ValueError(
                    f"{documents.address} has {documents.num_rows} documents, the probe needs"
                    f" {number} of them: lower probes.num_documents, or set probes.checkpoints=[]"
                    " for none"
                )
    return tuple(tables.values())


def num_of_each(cfg: Config, num_documents: int) -> list[int]:
    """How many of `num_documents` documents come from each corpus, in the order of the shares."""
    # `allot` takes whole numbers: millionths of the documents
    shares = {i: round(1e6 * share) for i, share in enumerate(cfg.shares.values())}
    counts = Counter(allot(shares, num_documents))
    return [counts[i] for i in shares]


def sample_documents(
    spice: Spice,
    step: Place,
    step_number: int,
    epoch: str = "training",
    num_documents: int | None = None,
) -> tuple[Table, ...]:
    """l.5: B documents, each corpus contributing its share in its own random order.

    No document is drawn twice before its corpus is used up, and none twice in a step.
    `num_documents` replaces B. Raises ValueError for a corpus with fewer documents than its share.
    """
    cfg = spice.run.cfg
    counts = num_of_each(cfg, num_documents or cfg.documents_per_step)
    tables = []
    for i, documents in enumerate(spice.corpora):
        num_samples = counts[i]
        if num_samples > documents.num_rows:
            raise ValueError(
                f"{documents.address} has {documents.num_rows} documents, a step needs"
                f" {num_samples} of them"
            )
        samples = sample(
            step,
            documents,
            num_samples=num_samples,
            task_types=(cfg.only_task_type or TO_BE_CHOSEN,),
            seed=cfg.seed,
            epoch=f"{epoch}-{i + 1}",
            skip=step_number * num_samples,
            all_different=True,
            label=f"corpus-{i + 1}",
        )
        tables.append(samples)
    return tuple(tables)


def rounds(num_attempts: int, first: int) -> Iterator[int]:
    """The sizes of the rounds that make up N attempts: each round doubles the attempts made so far.

    >>> list(rounds(1024, 8)), list(rounds(20, 8))
    ([8, 8, 16, 32, 64, 128, 256, 512], [8, 8, 4])
    """
    made = 0
    while made < num_attempts:
        size = min(made or first, num_attempts - made)
        yield size
        made += size


def ask_questions(spice: Spice, step: Place, player: Player, samples: Tables) -> Attempts:
    """l.6: up to N attempts per document until one question is valid, all documents in parallel.

    The first round makes G attempts at every document; later rounds, of growing size, cover only
    the documents without a valid question.
    """
    cfg = spice.run.cfg.challenger
    attempts = Attempts()
    for round_number, num_attempts in enumerate(rounds(cfg.attempts, cfg.group_size), 1):
        if without_question(rows_of(samples), rows_of(attempts.tasks)):
            attempts = ask_round(spice, step, player, samples, attempts, round_number, num_attempts)
    return attempts


def ask_round(
    spice: Spice,
    step: Place,
    player: Player,
    samples: Tables,
    earlier: Attempts,
    round_number: int,
    num_attempts: int,
) -> Attempts:
    """Make `num_attempts` attempts at each document without a valid question; returns them together
    with the `earlier` ones.

    The first call chooses a format, the second asks in it. An attempt whose choice is unreadable
    ends there. If only one task type is allowed, there is no first call.
    """
    run = spice.run
    roles = spice.roles
    policy = player.policy
    if run.cfg.challenger.fixed:
        policy = run.model("challenger")

    # 8 attempts at a document are 8 choices of a format and one question per choice or, with one
    # task type, 8 questions for the document's single sample.
    if run.cfg.only_task_type is None:
        choices = run.ask(
            step,
            roles.chooser,
            policy,
            group_size=num_attempts,
            label=f"choice-{round_number}",
            attempt=round_number,
            samples=samples,
            documents=spice.corpora,
            tasks=earlier.tasks,
        ).rows
        questions_per_choice = 1
    else:
        choices = samples
        questions_per_choice = num_attempts

    questions = run.ask(
        step,
        roles.challenger,
        policy,
        group_size=questions_per_choice,
        label=f"question-{round_number}",
        attempt=round_number,
        choices=choices,
        documents=spice.corpora,
        tasks=earlier.tasks,
    )
    return Attempts(
        tasks=(*earlier.tasks, questions.rows),
        rollouts=(*earlier.rollouts, questions.rollouts),
    )
