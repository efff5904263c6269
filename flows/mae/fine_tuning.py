"""Supervised fine-tuning on questions with known answers: a baseline for self-play."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from flows.blocks.questions import score_held_out
from flows.run import Player, Role, Run, templates
from flows.settings.profile import Settings
from tasks.ask import ask
from tasks.given import GivenTasks, given_replies, given_tasks


class FineTuning(Settings):
    """Settings of supervised fine-tuning: every iteration is one epoch over the pairs."""

    pairs: GivenTasks = Field(
        description="questions with answers; `columns.given` names what else a reply contains"
    )
    batch_size: int = Field(default=16, ge=1, description="pairs per optimizer step")


def fine_tune(run: Run[Any], role: Role, player: Player) -> Player:
    """The player after fine-tuning on the known answers to `role`'s prompts.

    The template `solved` words the answers. Every iteration is an epoch and ends with a held-out
    score.
    """
    cfg = run.cfg.fine_tuning
    settings = run.cfg.update.model_copy(update={"entropy_coef": 0.0})
    reply = templates(run.cfg, run.cfg.dialogues.prompts)("solved")
    score_held_out(run, run.place.iteration(0), role, player)
    items = cfg.pairs.items(run.place.iteration(0).phase("pairs"), run.cfg.seed)
    for t, iteration in run.iterations():
        epoch = iteration.phase("fine-tuning")
        tasks = given_tasks(
            epoch,
            items,
            number=t - 1,
            count=items.num_rows,
            seed=run.cfg.seed,
            with_context=True,
        )
        prompts = ask(epoch, role.prompt, label=role.name, tasks=tasks)
        rollouts = given_replies(
            epoch,
            prompts,
            items,
            reply=reply,
            model=run.models["base"],
            dialogue=role.dialogue,
            label=role.name,
        )
        player = run.sft(epoch, player, None, rollouts, settings, batch_size=cfg.batch_size)
        score_held_out(run, iteration, role, player)
    return player
