"""SPICE, arXiv 2510.24684: one policy asks about documents, and answers without them. It reads as Algorithm 1.

Departures
- An iteration here is `steps` of the paper's iterations, then a held-out score and a report.
- Attempts are made in growing rounds, all documents of a step side by side (`steps.rounds`). An attempt is two calls,
one that chooses a format and one that asks in it; an attempt whose choice is unreadable is in no group.
- A question's K answers determine its reward and, if it is drawn, are the Reasoner's group (section 3.1).
- A step is one optimizer step, on-policy, on all of its trajectories (up to 2,048). The paper has 128 per gradient
update: `trajectories_per_update`.
- Backslashes of LaTeX must be escaped, since the format is JSON; otherwise the question is invalid.
- The system message of the paper's Qwen3 template precedes all prompts.
- Only the second call of the Challenger is trained; an answer that could not be compared is in no mean and counted.
- A document with a valid question has one in its group, however many attempts that took.
"""

from __future__ import annotations

from typing import Any

from flows.ahead import ahead
from flows.controls import permuted
from flows.method import method
from flows.micro.tables import ledger_oracle, ledger_sound
from flows.questions import Answered, answer, score_held_out, watch_asked
from flows.run import Player, Run
from flows.spice.config import Config
from flows.spice.measures import describe_questions, probe
from flows.spice.rewards import challenger_scores, reasoner_scores
from flows.spice.roles import Roles
from flows.spice.steps import Asked, Attempts, Spice, ask_questions, open_corpora, sample_documents
from tasks.keep import Limit, Query, keep
from tasks.normalise import normalise
from tasks.score import score
from tasks.stage import Tables
from warehouse.store import Place, Table

LEFT_OUT, ONE_PER_DOCUMENT = Query.beside(__file__, "left_out"), Query.beside(__file__, "one_per_document")
NOT_NEEDED = "another question of its document is drawn"


@method(Config)
def spice_iteration(run: Run[Config]) -> Player:
    """Algorithm 1."""
    spice, player = Spice(run, Roles(run.cfg), open_corpora(run)), run.player("policy")  # l.1
    score_held_out(run, run.place.iteration(0), spice.roles.reasoner, player)
    for t, iteration in run.iterations():
        asked = []
        for s in range(run.cfg.steps):  # l.2
            step = iteration.phase("training").step(s + 1)
            player, questions = play(spice, step, player, (t - 1) * run.cfg.steps + s)
            asked.append(questions)
        run.watch_pool(iteration, player.policy.id, [q.drawn for q in asked], passed=(NOT_NEEDED,))
        score_held_out(run, iteration, spice.roles.reasoner, player)
        describe_questions(iteration, asked, player)
    probe(spice)
    return player  # l.30


def play(spice: Spice, step: Place, player: Player, number: int) -> tuple[Player, Asked]:
    """One step. Also returns its questions and the Challenger's rewards for them."""
    run, cfg = spice.run, spice.run.cfg
    samples = sample_documents(spice, step, number)  # l.5
    attempts, left_out, given = ask_and_answer(spice, step, player, samples)  # l.6-9, l.17
    tasks = attempts.tasks
    grouped = {"tasks": tasks, "left_out": left_out}
    answered = {"answers": given.answers, "matches": given.matches}
    how = {"reward": cfg.challenger.reward, "invalid_reward": cfg.challenger.invalid_reward, "label": "challenger"}
    paid = score(step, challenger_scores, **grouped, **answered, **how)  # l.8-13, eq. 1
    one = Limit(1, NOT_NEEDED, per="document_id")
    drawn = keep(step, ONE_PER_DOCUMENT, limits=(one,), tasks=tasks, scores=paid, seed=cfg.seed)  # l.16
    right = score(step, reasoner_scores, drawn=drawn, label="reasoner", **answered)  # l.18-20
    about = {"tasks": tasks, "chosen": drawn, "shown": {"documents": spice.corpora}, "answers": given.answers}
    watch_asked(run, step, player.policy.id, ledger_sound, ledger_oracle, scores=right, **about)
    rewards = [normalise(step, permuted(run, step, cfg.reasoner, right), scheme="centre", label="reasoner")]  # l.21-24
    rollouts = [given.rollouts]
    if not cfg.challenger.fixed:
        rewards.insert(0, normalise(step, paid, scheme="centre", label="challenger"))
        rollouts = [*attempts.rollouts, *rollouts]
    rows_per_step = cfg.trajectories_per_update
    player = run.learn(step, player, rewards, rollouts, cfg.update, rows_per_step=rows_per_step)  # l.25-28
    return player, Asked(tasks, paid, drawn)


@ahead
def ask_and_answer(spice: Spice, step: Place, player: Player, samples: Tables) -> tuple[Attempts, Table, Answered]:
    """l.6-9, l.17: questions, which of them are left out of their group, and answers."""
    cfg, attempts = spice.run.cfg, ask_questions(spice, step, player, samples)  # l.6
    bounds = {"group_size": cfg.challenger.group_size, "seed": cfg.seed}
    left_out = keep(step, LEFT_OUT, tasks=attempts.tasks, label="left-out", **bounds)  # l.7
    how: Any = {"tasks": attempts.tasks, "left_out": left_out, "n": cfg.reasoner.answers, "comparing": cfg.match}
    return attempts, left_out, answer(spice.run, step, spice.roles.reasoner, player, **how)  # l.9, l.17
