"""The steps of SPICE: each a line or two of Algorithm 1 over stages that know no method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flows.run import Workbench
from flows.spice.comparison import agree
from flows.spice.config import SpiceConfig
from flows.spice.readers import MULTIPLE_CHOICE
from flows.spice.roles import Roles, make_roles, without_question
from flows.spice.scoring import challenger_scores, reasoner_scores
from tasks.ask import ask
from tasks.batch import batch
from tasks.engines.base import Policy, Sampling
from tasks.engines.fleet import Fleet
from tasks.generate import generate
from tasks.keep import Query, keep
from tasks.match import match
from tasks.normalise import normalise
from tasks.read import read_answers, read_choices, read_tasks
from tasks.rollouts.rollout import Dialogue
from tasks.sample import allot, sample
from tasks.score import score
from tasks.stage import Tables
from tasks.update import update, updated_policy
from warehouse.store import Place, Table

SQL = Path(__file__).parent / "sql"
LEFT_OUT, ONE_PER_DOCUMENT = Query(SQL / "left_out.sql"), Query(SQL / "one_per_document.sql")


@dataclass(frozen=True)
class Spice:
    """A run of the method: its configuration, what it works with, and who asks what. `corpora` has a table for each
    of the configuration's shares, in their order."""

    cfg: SpiceConfig
    bench: Workbench
    corpora: tuple[Table, ...]
    roles: Roles

    @classmethod
    def prepare(cls, cfg: SpiceConfig, bench: Workbench, corpora: tuple[Table, ...]) -> Spice:
        return cls(cfg, bench, corpora, make_roles(cfg))

    @property
    def settled(self) -> str | None:
        """The only type of task that may be asked, where there is nothing to choose."""
        c = self.cfg.challenger
        free = list(c.answer_types) if set(c.formats) - {MULTIPLE_CHOICE} else []
        kinds = [MULTIPLE_CHOICE] * (MULTIPLE_CHOICE in c.formats) + free
        return kinds[0] if len(kinds) == 1 else None

    def sampling(self, temperature: float, max_tokens: int | None = None) -> Sampling:
        d = self.cfg.dialogues
        return Sampling(temperature=temperature, max_tokens=max_tokens or d.response_tokens, stop=d.stop)

    @property
    def choosing(self) -> Sampling:
        return self.sampling(self.cfg.challenger.temperature, self.cfg.dialogues.choice_tokens)

    @property
    def asking(self) -> Sampling:
        return self.sampling(self.cfg.challenger.temperature)

    @property
    def answering(self) -> Sampling:
        return self.sampling(self.cfg.reasoner.temperature)


@dataclass(frozen=True)
class Player:
    """The one policy of both roles, and its optimizer's state."""

    policy: Policy
    optimizer_state: str | None = None


@dataclass(frozen=True)
class Attempts:
    """Questions asked of a step's documents, round by round, and the rollouts they were read from."""

    tasks: tuple[Table, ...] = ()
    rollouts: tuple[Table, ...] = ()

    def __add__(self, more: tuple[Table, Table]) -> Attempts:
        return Attempts((*self.tasks, more[0]), (*self.rollouts, more[1]))

    def waiting(self, samples: Sequence[Table]) -> int:
        """Documents without a valid question."""
        rows = [row for table in samples for row in table.rows()]
        return len(without_question(rows, [row for table in self.tasks for row in table.rows()]))


@dataclass(frozen=True)
class Answered:
    """Answers to questions, the rollouts they were read from, and their comparisons with the references."""

    answers: Table
    rollouts: Table
    matches: Table


def player_of(spice: Spice, iteration: int) -> Player:
    """The policy as it was after an iteration of this run; the base before its first update."""
    run, store = spice.bench.place, spice.bench.place.store
    updates = [t for t in store.tables(run.path) if t.at.table == "updates" and 1 <= (t.at.iteration or 0) <= iteration]
    return Player(*updated_policy(updates[-1])) if updates else Player(spice.bench.policies["base"])


def sample_documents(
    spice: Spice, step: Place, number: int, epoch: str = "training", count: int | None = None
) -> tuple[Table, ...]:
    """l.5: B documents, from each corpus its share. None comes twice before its corpus is used up."""
    cfg = spice.cfg
    shares = dict(enumerate(cfg.shares.values()))
    counts = allot({i: round(1e6 * share) for i, share in shares.items()}, count or cfg.documents_per_step)
    tables = []
    for i, documents in enumerate(spice.corpora):
        here = counts.count(i)
        if here > documents.num_rows:
            raise ValueError(f"{documents.address} has {documents.num_rows} documents, a step needs {here} of them")
        table = sample(
            step,
            documents,
            num_samples=here,
            task_types=(spice.settled,) if spice.settled else None,
            seed=cfg.seed,
            epoch=epoch,
            skip=number * here,
            label=f"corpus-{i + 1}",
        )
        tables.append(table)
    return tuple(tables)


def rounds(attempts: int, first: int) -> Iterator[int]:
    """Sizes of the rounds that make up N attempts: as many again each time as were made before.

    >>> list(rounds(1024, 8)), list(rounds(20, 8))
    ([8, 8, 16, 32, 64, 128, 256, 512], [8, 8, 4])
    """
    made = 0
    while made < attempts:
        size = min(made or first, attempts - made)
        yield size
        made += size


def ask_questions(spice: Spice, step: Place, player: Player, samples: tuple[Table, ...]) -> Attempts:
    """l.6: up to N attempts a document until one question is valid, all documents side by side, in growing rounds.

    The first round makes G attempts of every document; later ones go to those without a valid question.
    """
    cfg, attempts = spice.cfg.challenger, Attempts()
    for number, size in enumerate(rounds(cfg.attempts, cfg.group_size), 1):
        if attempts.waiting(samples):
            attempts += _ask_round(spice, step, player, samples, attempts.tasks, number, size)
    return attempts


def ask_once(spice: Spice, step: Place, player: Player, samples: tuple[Table, ...], size: int) -> Attempts:
    """`size` attempts at every document, whatever comes of them."""
    return Attempts() + _ask_round(spice, step, player, samples, (), 1, size)


def _ask_round(
    spice: Spice, step: Place, player: Player, samples: Tables, asked: tuple[Table, ...], number: int, size: int
) -> tuple[Table, Table]:
    """The first call chooses a format for each document, the second makes `size` attempts in that format."""
    roles, label = spice.roles, f"round-{number}"
    choices = samples
    if spice.settled is None:
        prompts = ask(step, roles.chooser, samples, spice.corpora, asked, label=f"choice-{number}")
        rollouts = _challenger_says(spice, step, player, prompts, spice.choosing, 1, label=f"choice-{number}")
        choices = read_choices(step, rollouts, prompts, reader=roles.read_choice, label=label)
    prompts = ask(step, roles.challenger, choices, spice.corpora, asked, label=f"question-{number}")
    rollouts = _challenger_says(spice, step, player, prompts, spice.asking, size, label=f"question-{number}")
    return read_tasks(step, rollouts, prompts, reader=roles.read_question, label=label), rollouts


def _challenger_says(
    spice: Spice, step: Place, player: Player, prompts: Table, sampling: Sampling, num_samples: int, label: str
) -> Table:
    """The learning policy speaks, or the one that is fixed in its place."""
    bench, policy, fleet = spice.bench, player.policy, spice.bench.fleet
    if spice.cfg.challenger.fixed:
        policy = bench.policies.get("challenger", bench.policies["base"])
        fleet = bench.judge_fleet if "challenger" in bench.policies else fleet
    return roll_out(spice, step, prompts, policy, sampling, num_samples, label=label, fleet=fleet)


def draw_groups(spice: Spice, step: Place, attempts: Attempts) -> Table:
    """l.7: what is left out of the groups of G attempts."""
    bounds = {"group_size": spice.cfg.challenger.group_size, "seed": spice.cfg.seed}
    return keep(step, LEFT_OUT, {"tasks": attempts.tasks}, bounds=bounds, label="left-out")


def answer(
    spice: Spice,
    step: Place,
    player: Player,
    tasks: Tables,
    left_out: Tables = (),
    *,
    num_answers: int,
    sampling: Sampling,
) -> Answered:
    """l.9: the Reasoner sees questions alone; its answers are compared with their references by rule."""
    asked = ask(step, spice.roles.reasoner, tasks, left_out, label="reasoner")
    rollouts = roll_out(spice, step, asked, player.policy, sampling, num_answers, label="reasoner")
    answers = read_answers(step, rollouts, asked, reader=spice.roles.read_answer)
    limits = spice.cfg.match
    matches = match(step, answers, tasks, compare=agree, time_limit_s=limits.time_limit_s, num_workers=limits.processes)
    return Answered(answers, rollouts, matches)


def reward_challenger(spice: Spice, step: Place, attempts: Attempts, left_out: Table, answered: Answered) -> Table:
    """l.8-13, eq. 1."""
    c = spice.cfg.challenger
    rewards = partial(challenger_scores, reward=c.reward, invalid_reward=c.invalid_reward)
    return score(step, rewards, attempts.tasks, left_out, answered.answers, answered.matches, label="challenger")


def draw_questions(spice: Spice, step: Place, attempts: Attempts, scores: Table) -> Table:
    """l.16: one valid question a document."""
    tables: dict[str, Tables] = {"tasks": attempts.tasks, "scores": scores}
    return keep(step, ONE_PER_DOCUMENT, tables, bounds={"seed": spice.cfg.seed})


def reward_reasoner(step: Place, answered: Answered, drawn: Table) -> Table:
    """l.18-20."""
    return score(step, reasoner_scores, answered.answers, answered.matches, drawn, label="reasoner")


def learn(
    spice: Spice, step: Place, player: Player, attempts: Attempts, answered: Answered, scores: dict[str, Table]
) -> Player:
    """l.21-28: advantages centred within each role's groups, one Dr. GRPO update of the one policy on both roles."""
    rewards = [normalise(step, table, scheme="centre", label=role) for role, table in scores.items()]
    rows = batch(step, rewards, [*attempts.rollouts, answered.rollouts])
    if rows.num_rows == 0:
        return player
    spice.bench.release_engines()
    table = update(
        step,
        rows,
        policy=player.policy,
        reference=spice.bench.policies["base"],
        optimizer_state=player.optimizer_state,
        settings=spice.cfg.update,
        role="policy",
        trainer=spice.bench.trainer,
    )
    spice.bench.free_superseded(table)
    return Player(*updated_policy(table))


def roll_out(
    spice: Spice,
    step: Place,
    asked: Table,
    policy: Policy,
    sampling: Sampling,
    num_samples: int,
    *,
    label: str,
    fleet: Fleet | None = None,
) -> Table:
    return generate(
        step,
        asked,
        policy=policy,
        sampling=sampling,
        dialogue=Dialogue(search=None, final=None, max_turns=1, reasoning=spice.cfg.dialogues.reasoning),
        fleet=fleet or spice.bench.fleet,
        num_samples=num_samples,
        seed=spice.cfg.seed,
        label=label,
    )
