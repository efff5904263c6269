"""What a step of SPELL is made of: rounds of questions, answers and votes, until enough groups have contrast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from flows.run import Workbench
from flows.spell.config import SpellConfig
from flows.spell.corpus import Corpus
from flows.spell.roles import Roles, make_roles
from flows.spell.rules import covers
from flows.spell.scoring import questioner_scores, responder_scores, verifier_scores
from tasks.ask import ask
from tasks.clusters import documents_of, draw
from tasks.engines.base import Policy, Sampling
from tasks.generate import generate
from tasks.keep import Query, keep
from tasks.match import match
from tasks.prompt import Prompt
from tasks.read import read_answers, read_tasks, read_votes
from tasks.rollouts.rollout import Dialogue
from tasks.score import score
from tasks.stage import Tables
from warehouse.store import Place, Table

RESPONDER_GROUPS = Query(Path(__file__).parent / "sql" / "responder_groups.sql")


@dataclass(frozen=True)
class Spell:
    """A run of the method: its configuration, what it works with, and who asks what."""

    cfg: SpellConfig
    bench: Workbench
    corpus: Corpus
    roles: Roles

    @classmethod
    def prepare(cls, cfg: SpellConfig, bench: Workbench, corpus: Corpus) -> Spell:
        return cls(cfg, bench, corpus, make_roles(cfg))


@dataclass(frozen=True)
class Player:
    """The policy of all three roles, its optimizer's state, the history memory, and how many rounds were drawn."""

    policy: Policy
    optimizer_state: str | None = None
    memory: Table | None = None
    num_rounds: int = 0


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
    scores: tuple[Table, ...]
    groups: Table


def play_round(spell: Spell, step: Place, player: Player, earlier: tuple[Round, ...]) -> Round:
    """l.7-24 for `clusters_per_round` clusters."""
    cfg, roles, r = spell.cfg, spell.roles, len(earlier) + 1
    samples = draw(  # l.7-8
        step,
        spell.corpus.memberships,
        player.memory,
        num_samples=cfg.sampling.clusters_per_round,
        documents_per_sample=cfg.questioner.num_documents,
        seed=cfg.seed,
        num_before=player.num_rounds + len(earlier),
        label=f"round-{r}",
    )
    documents = documents_of(step, spell.corpus.documents, spell.corpus.clusters, samples=samples, label=f"round-{r}")
    known = (player.memory,) if player.memory else ()
    asked = ask(step, roles.questioner, samples, documents, *known, label=f"questioner-{r}")  # l.9
    proposed = roll_out(spell, step, asked, player.policy, label=f"questioner-{r}")  # l.10
    tasks = read_tasks(step, proposed, asked, reader=roles.read_question, label=f"round-{r}")
    closed_book = filter_ungrounded(spell, step, player, tasks, r)  # l.11-14
    prompt = roles.responder
    shown = tasks, documents, spell.corpus.clusters, *closed_book
    answers, matches, responded = answer(
        spell, step, player, prompt, *shown, tasks=tasks, label=f"responder-{r}"
    )  # l.15
    votes, voted = verify(spell, step, player, answers, tasks, r)  # l.17
    judged = judge_externally(spell, step, answers, tasks, label=f"judge-{r}")
    about = answers, matches, votes, judged
    paid = score_round(spell, step, tasks, closed_book, about, r)  # l.18
    rollouts = (proposed, responded, *voted)
    groups = keep(
        step,
        RESPONDER_GROUPS,
        {"tasks": tasks, "scores": paid[0]},
        earlier=tuple(e.groups for e in earlier),
        bounds={"target": cfg.sampling.groups, "seed": cfg.seed},
        label=f"round-{r}",
    )
    return Round(samples, documents, asked, tasks, rollouts, paid, groups)


def filter_ungrounded(spell: Spell, step: Place, player: Player, tasks: Table, r: int) -> tuple[Table, ...]:
    """l.11: whether the rule holds an answer without documents for right."""
    if not spell.cfg.questioner.grounding_filter:
        return ()
    prompt = spell.roles.closed_book
    _, matches, _ = answer(spell, step, player, prompt, tasks, tasks=tasks, num_answers=1, label=f"closed-book-{r}")
    return (matches,)


def answer(
    spell: Spell,
    step: Place,
    player: Player,
    prompt: Prompt,
    *about: Tables,
    tasks: Tables,
    label: str,
    num_answers: int | None = None,
) -> tuple[Table, Table, Table]:
    """l.15: answers, what the rule says of them, and the rollouts they were read from."""
    asked = ask(step, prompt, *about, label=label)
    rollouts = roll_out(spell, step, asked, player.policy, num_answers or spell.cfg.group_size, label=label)
    answers = read_answers(step, rollouts, asked, reader=spell.roles.read_answer, label=label)
    return answers, match(step, answers, tasks, compare=covers, label=label), rollouts


def verify(
    spell: Spell, step: Place, player: Player, answers: Table, tasks: Table, r: int
) -> tuple[tuple[Table, ...], tuple[Table, ...]]:
    """l.16-17: G votes on every answer that states one; nothing without a verifier."""
    if not spell.cfg.verifier.enabled:
        return (), ()
    asked = ask(step, spell.roles.verifier, answers, tasks, label=f"verifier-{r}")
    tokens = spell.cfg.verifier.response_tokens
    votes = roll_out(spell, step, asked, player.policy, spell.cfg.group_size, max_tokens=tokens, label=f"verifier-{r}")
    return (read_votes(step, votes, asked, reader=spell.roles.read_vote, label=f"verifier-{r}"),), (votes,)


def judge_externally(
    spell: Spell, step: Place, answers: Table, tasks: Tables, *, model: str = "judge", label: str
) -> tuple[Table, ...]:
    """The verdict of another model on every answer, where one is named: in place of the rule (table 4), or of
    held-out answers."""
    judge = spell.bench.policies.get(model)
    if judge is None:
        return ()
    asked = ask(step, spell.roles.judge, answers, tasks, label=label)
    rollouts = generate(
        step,
        asked,
        policy=judge,
        sampling=Sampling(temperature=0, max_tokens=spell.cfg.dialogues.response_tokens),
        dialogue=Dialogue(max_turns=1, reasoning=spell.cfg.dialogues.reasoning),
        fleet=spell.bench.judge_fleet,
        seed=spell.cfg.seed,
        label=label,
    )
    return (read_votes(step, rollouts, asked, reader=spell.roles.read_vote, label=label),)


def score_round(
    spell: Spell, step: Place, tasks: Table, closed_book: Tables, about: tuple[Tables, ...], r: int
) -> tuple[Table, ...]:
    """l.18: the rewards of all roles, eq. 4-7."""
    cfg = spell.cfg
    pay = partial(questioner_scores, settings=cfg.questioner, verifier=cfg.verifier)
    questioner = score(step, pay, tasks, closed_book, *about, label=f"questioner-{r}")
    others = {"responder": responder_scores, "verifier": verifier_scores}
    if not cfg.verifier.enabled:
        others.pop("verifier")
    paid = [score(step, partial(f, settings=cfg.verifier), *about, label=f"{n}-{r}") for n, f in others.items()]
    return (questioner, *paid)


def roll_out(
    spell: Spell,
    step: Place,
    asked: Table,
    policy: Policy,
    num_samples: int = 1,
    *,
    label: str,
    max_tokens: int | None = None,
    cut: bool = False,
) -> Table:
    """Replies as the configuration has them sampled. A prompt over the limit is not, unless it was `cut` to fit."""
    talk = spell.cfg.dialogues
    return generate(
        step,
        asked,
        policy=policy,
        sampling=Sampling(
            temperature=talk.temperature, top_p=talk.top_p, max_tokens=max_tokens or talk.response_tokens
        ),
        dialogue=Dialogue(max_turns=1, reasoning=talk.reasoning, prompt_tokens=None if cut else talk.input_tokens),
        fleet=spell.bench.fleet,
        num_samples=num_samples,
        seed=spell.cfg.seed,
        label=label,
    )
