"""SPICE, arXiv 2510.24684: one policy asks questions of documents, and answers them without. It reads as Algorithm 1.

Departures
- An iteration here is `steps` of the paper's: what lies between two held-out scores and reports.
- Attempts are made in growing rounds, all documents of a step side by side; each round chooses a format for each
document anew, and makes its attempts in that format (`steps.rounds`).
- A question's K answers are both what it is rewarded by and, if it is drawn, the Reasoner's group (section 3.1).
- Only the second call of the Challenger is trained; an answer that could not be compared is in no mean and counted.
- A document with a valid question has one in its group, however many attempts that took.
"""

from __future__ import annotations

import functools
from typing import Any

from prefect import flow

from flows import run as workbench
from flows.request import Redo, Request, default_run
from flows.run import Workbench, open_run
from flows.spice.config import SpiceConfig, load_profile
from flows.spice.held_out import HeldOut, describe_questions, open_corpora, score_held_out
from flows.spice.probes import probe
from flows.spice.steps import (
    Attempts,
    Player,
    Spice,
    answer,
    ask_questions,
    draw_groups,
    draw_questions,
    learn,
    reward_challenger,
    reward_reasoner,
    sample_documents,
)
from tasks.report import report
from warehouse.store import Place, Table


@flow(name="spice-iteration", persist_result=False)
def spice_iteration(
    profile: str = "micro",
    run: str | None = None,
    overrides: dict[str, Any] | None = None,
    corpus: str | None = None,
    redo: Redo | None = None,
    force: bool = False,
) -> str:
    """Train one policy in both roles; returns the run's name. The same call again goes on where it stopped.

    `redo` names stages to make again; `force` lets a run go on with another configuration than it began with.
    """
    run = run or default_run("spice-iteration", profile)
    asked = Request(flow="spice-iteration", profile=profile, run=run, overrides=overrides, corpus=corpus)
    cfg = load_profile(profile, asked.settings)
    with open_run(asked, cfg, redo, force) as bench:
        self_play(cfg, bench)
    return asked.run


def self_play(cfg: SpiceConfig, bench: Workbench) -> Player:
    """Algorithm 1."""
    spice = Spice.prepare(cfg, bench, open_corpora(bench.place, cfg))
    held_out, player = HeldOut.prepare(spice), Player(bench.policies["base"])  # l.1
    score_held_out(held_out, bench.place.iteration(0), player)
    for t in range(1, cfg.iterations + 1):
        iteration, asked = bench.place.iteration(t), []
        for s in range(1, cfg.steps + 1):  # l.2
            player, *paid = play(spice, iteration.phase("training").step(s), player, (t - 1) * cfg.steps + s - 1)
            asked.append(paid)
        score_held_out(held_out, iteration, player)
        describe_questions(spice, iteration, asked, player)
        report(bench.place, iteration=t)
    probe(spice)
    return player  # l.30


def play(spice: Spice, step: Place, player: Player, number: int) -> tuple[Player, Attempts, Table]:
    """One step; also what was asked in it, and how the Challenger was paid for that."""
    cfg = spice.cfg
    samples = sample_documents(spice, step, number)  # l.5
    attempts = ask_questions(spice, step, player, samples)  # l.6
    left_out = draw_groups(spice, step, attempts)  # l.7
    num_answers = cfg.reasoner.answers
    answered = answer(
        spice, step, player, attempts.tasks, left_out, num_answers=num_answers, sampling=spice.answering
    )  # l.9, l.17
    scores = {"challenger": reward_challenger(spice, step, attempts, left_out, answered)}  # l.8-13
    drawn = draw_questions(spice, step, attempts, scores["challenger"])  # l.16
    scores["reasoner"] = reward_reasoner(step, answered, drawn)  # l.18-20
    trained = {role: table for role, table in scores.items() if role == "reasoner" or not cfg.challenger.fixed}
    return learn(spice, step, player, attempts, answered, trained), attempts, scores["challenger"]  # l.21-28


inquire = functools.partial(workbench.inquire, play=self_play)  # what `selfplay why` asks
