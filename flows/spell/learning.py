"""What a step of SPELL leaves behind: the memory of solvable questions, one batch of all roles, an updated policy."""

from __future__ import annotations

from pathlib import Path

from flows.spell.steps import Player, Round, Spell
from tasks.batch import batch
from tasks.clusters import remember
from tasks.engines.base import Policy
from tasks.keep import Query, choose
from tasks.normalise import normalise
from tasks.stage import Tables
from tasks.update import update, updated_policy
from warehouse.store import Place, Table

SQL = Path(__file__).parent / "sql"
QUESTIONS, CONSISTENT_VOTES = Query(SQL / "questions.sql"), Query(SQL / "consistent_votes.sql")


def push_to_memory(spell: Spell, step: Place, player: Player, played: tuple[Round, ...]) -> Table | None:
    """l.20-21: the L most recent solvable questions of every cluster and type, with their new documents."""
    if not spell.cfg.questioner.memory_pairs:
        return None
    return remember(
        step,
        player.memory,
        [r.tasks for r in played],
        [r.scores[0] for r in played],
        [r.samples for r in played],
        [r.asked for r in played],
        component="r_bar",
        low=0.0,
        high=1.0,
        most=spell.cfg.questioner.memory_pairs,
    )


def sample_batch(spell: Spell, step: Place, played: tuple[Round, ...]) -> Table:
    """l.25: role-specific dynamic sampling, advantages within groups (eq. 8) or over the batch (eq. 9), one batch."""
    cfg, groups = spell.cfg, [r.groups for r in played]
    questions, responses, *votes = (list(role) for role in zip(*(r.scores for r in played), strict=True))
    seed = {"seed": cfg.seed}
    spread = cfg.advantage_std
    rewards = [
        normalise(step, responses, scheme="zscore", spread=spread, chosen=groups, label="responder"),
    ]
    if cfg.questioner.trained:
        tables: dict[str, Tables] = {"tasks": [r.tasks for r in played], "scores": questions, "groups": groups}
        chosen = choose(step, QUESTIONS, tables, bounds={**seed, "types": list(cfg.task_types)}, label="questioner")
        within = ("group_id",) if cfg.questioner.advantage_per_type else ()
        settings = {"scheme": "zscore", "within": within, "spread": spread, "chosen": chosen}
        rewards.append(normalise(step, questions, **settings, label="questioner"))
    if cfg.verifier.trained and votes:
        low, high = cfg.verifier.share
        bounds = {"low": low, "high": high, "consistency": cfg.verifier.consistency, **seed}
        bounds["num_groups"] = max(1, cfg.sampling.groups // cfg.group_size)
        chosen = choose(step, CONSISTENT_VOTES, {"scores": votes[0]}, bounds=bounds, label="verifier")
        settings = {"scheme": "zscore", "spread": spread, "chosen": chosen, "by": "group_id"}
        rewards.append(normalise(step, votes[0], **settings, label="verifier"))
    rollouts = [table for r in played for table in r.rollouts]
    return batch(step, rewards, rollouts, max_tokens=cfg.dialogues.input_tokens + cfg.dialogues.response_tokens)


def update_policy(spell: Spell, step: Place, player: Player, rows: Table) -> tuple[Policy, str | None]:
    """l.26: one joint step on all three roles' samples."""
    if rows.num_rows == 0:
        return player.policy, player.optimizer_state
    spell.bench.release_engines()
    table = update(
        step,
        rows,
        policy=player.policy,
        reference=spell.bench.policies["base"],
        optimizer_state=player.optimizer_state,
        settings=spell.cfg.update.model_copy(update={"temperature": spell.cfg.dialogues.temperature}),
        role="policy",
        trainer=spell.bench.trainer,
    )
    spell.bench.free_superseded(table)
    return updated_policy(table)
