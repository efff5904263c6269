"""SPELL (Yang et al., "Self-play reinforcement learning for evolving long-context language models"): one policy asks
questions about clusters of documents, answers them, and verifies the answers. It reads as Algorithm 1.

Departures
- Clusters are drawn in rounds, task types in equal shares, as in the released code; the memory of a step's questions
  serves from the next step on.
- The rule looks for the reference as whole words, not as a bare substring (`flows.spell.rules`).
- A tie of readable votes is no; an answer on which no vote can be read is judged by the rule alone and its votes are
  not trained on.
- Advantages divide by the population standard deviation (`advantage_std`).
- A batch short of groups is an error or, by `sampling.short_batch`, smaller; it is never padded.
"""

from __future__ import annotations

import functools
import logging
from typing import Any

from prefect import flow

from flows import run as workbench
from flows.request import Redo, Request, default_run
from flows.run import Workbench, open_run
from flows.spell.config import SpellConfig, load_profile
from flows.spell.corpus import open_corpus
from flows.spell.held_out import HeldOut, score_held_out
from flows.spell.learning import push_to_memory, sample_batch, update_policy
from flows.spell.probe import probe_questions
from flows.spell.steps import Player, Round, Spell, play_round
from tasks.report import report
from warehouse.store import Place

log = logging.getLogger("selfplay")


class ShortBatch(RuntimeError):
    """Too few questions have answers that are neither all right nor all wrong."""


@flow(name="spell-iteration", persist_result=False)
def spell_iteration(
    profile: str = "micro",
    run: str | None = None,
    overrides: dict[str, Any] | None = None,
    corpus: str | None = None,
    redo: Redo | None = None,
    force: bool = False,
) -> str:
    """Train the policy for T iterations of some steps; returns the run's name. The same call again goes on where it
    stopped.

    `corpus` is a run of prepare-corpus. `redo` names stages to make again; `force` lets a run go on with another
    configuration than it began with.
    """
    run = run or default_run("spell-iteration", profile)
    asked = Request(flow="spell-iteration", profile=profile, run=run, overrides=overrides, corpus=corpus)
    cfg = load_profile(profile, asked.settings)
    with open_run(asked, cfg, redo, force) as bench:
        self_play(cfg, bench)
    return asked.run


def self_play(cfg: SpellConfig, bench: Workbench) -> Player:
    """Algorithm 1."""
    spell = Spell.prepare(cfg, bench, open_corpus(bench.place, cfg))  # l.1
    held_out = HeldOut.prepare(spell)
    player = Player(bench.policies["base"])  # l.2-3: an empty memory
    score_held_out(held_out, bench.place.iteration(0), player)
    for t in range(1, cfg.iterations + 1):
        iteration = bench.place.iteration(t)
        played: tuple[Round, ...] = ()
        for s in range(1, cfg.steps + 1):  # l.4
            player, played = play_step(spell, iteration.phase("play").step(s), player)
        score_held_out(held_out, iteration, player)
        probe_questions(spell, iteration, played)
        report(bench.place, iteration=t)
    return player  # l.27


def play_step(spell: Spell, step: Place, player: Player) -> tuple[Player, tuple[Round, ...]]:
    """l.5-26: rounds until the batch is full, then one update. Returns the rounds as well."""
    played: tuple[Round, ...] = ()  # l.5
    while num_groups(played) < spell.cfg.sampling.groups and len(played) < spell.cfg.sampling.max_rounds:  # l.6
        played += (play_round(spell, step, player, played),)  # l.7-19, 22-24
    check_batch(spell.cfg, num_groups(played), step)
    memory = push_to_memory(spell, step, player, played)  # l.20-21
    rows = sample_batch(spell, step, played)  # l.25
    policy, optimizer_state = update_policy(spell, step, player, rows)  # l.26
    return Player(policy, optimizer_state, memory, player.num_rounds + len(played)), played


def num_groups(played: tuple[Round, ...]) -> int:
    """|B_res|: groups taken so far."""
    return sum(row["kept"] for r in played for row in r.groups.rows())


def check_batch(cfg: SpellConfig, found: int, step: Place) -> None:
    """Raises ShortBatch where a short batch is an error; otherwise says how short it is."""
    wanted = cfg.sampling.groups
    if found >= wanted:
        return
    says = f"{step.path}: {found} groups of {wanted} after {cfg.sampling.max_rounds} rounds"
    if cfg.sampling.short_batch == "error":
        raise ShortBatch(
            f"{says}. Raise sampling.max_rounds or sampling.clusters_per_round, or set sampling.short_batch=fewer; "
            "selections say why the others were not taken."
        )
    log.warning("%s: the update gets fewer", says)


inquire = functools.partial(workbench.inquire, play=self_play)  # what `selfplay why` asks
