"""Supervised fine-tuning on questions whose answers are known: the baseline of self-play on questions alone."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from flows.profile import Settings
from flows.questions import score_held_out
from flows.run import Player, Role, Run, templates
from tasks.ask import ask
from tasks.given import GivenTasks, given_replies, given_tasks


class FineTuning(Settings):
    """Settings of supervised fine-tuning: every iteration is one epoch over the pairs."""

    pairs: GivenTasks = Field(description="questions with answers; `columns.given` names what else a reply holds")
    batch_size: int = Field(default=16, ge=1, description="pairs per optimizer step")


def fine_tune(run: Run[Any], role: Role, player: Player) -> Player:
    """Teach a player to give the known answers to `role`'s prompts, worded by the template `solved`."""
    cfg, form = run.cfg.fine_tuning, templates(run.cfg, run.cfg.dialogues.prompts)("solved")
    score_held_out(run, run.place.iteration(0), role, player)
    items = cfg.pairs.items(run.place.iteration(0).phase("pairs"))
    for t, iteration in run.iterations():
        epoch = iteration.phase("fine-tuning")
        tasks = given_tasks(epoch, items, number=t - 1, count=items.num_rows, seed=run.cfg.seed)
        prompts = ask(epoch, role.prompt, label=role.name, tasks=tasks)
        how = {"reply": form, "model": run.models["base"], "dialogue": role.dialogue}
        rollouts = given_replies(epoch, prompts, items, **how, label=role.name)
        player = run.imitate(epoch, player, None, rollouts, run.cfg.update, batch_size=cfg.batch_size)
        score_held_out(run, iteration, role, player)
    return player
