"""SPELL (Yang et al., "Self-play reinforcement learning for evolving long-context language models", arXiv 2509.23863):
one policy asks questions about clusters of documents, answers them, and verifies the answers. It reads as Algorithm 1.

Departures
- Clusters are drawn in rounds, with equal shares of the task types, as in the released code. A step's questions enter
  the history memory at its end.
- The rule looks for the reference as whole words, not as a mere substring (`flows.spell.rules`).
- A majority is more than half of all votes: a tie is a no, and so is an unreadable vote. An answer without a readable
  vote is judged by the rule alone, and its votes are not trained on.
- The loss is a mean over the tokens of all roles, as in the released code. Eq. 12 divides by the tokens of a group;
  eq. 10 gives the roles equal weights (`equal_roles`).
- Held-out answers are judged by the prompt of our benchmarks, which rejects an answer that hedges; table 5's asks only
  whether it contains the reference. DocMath-Eval is scored by its own rule, which ignores scales and some signs.
- Advantages divide by the population standard deviation (`advantage_std`).
- A batch short of groups is an error or, by `sampling.short_batch`, smaller; it is never padded.
"""

from __future__ import annotations

from dataclasses import dataclass

from flows.method import method
from flows.run import Player, Run
from flows.spell.config import Config
from flows.spell.held_out import probe_questions, score_held_out
from flows.spell.steps import FULL, Round, Spell, play_round, watch_rounds
from tasks.clusters import remember
from tasks.keep import Limit, Query, choose, num_kept
from tasks.monitor import check_pool
from tasks.normalise import normalise
from warehouse.store import Place, Table

QUESTIONS, CONSISTENT_VOTES = Query.beside(__file__, "questions"), Query.beside(__file__, "consistent_votes")
SHORT_BATCH = "Raise sampling.max_rounds or sampling.clusters_per_round; sampling.short_batch=fewer accepts this."


@dataclass(frozen=True)
class State:
    """What a step passes to the next: the policy, the history memory, and the number of rounds so far."""

    player: Player
    memory: Table | None = None
    num_rounds: int = 0


@method(Config)
def spell_iteration(run: Run[Config]) -> Player:
    """Algorithm 1."""
    spell = Spell.prepare(run)  # l.1
    state = State(run.player("policy"))  # l.2-3: an empty memory
    score_held_out(spell, run.place.iteration(0), state.player)
    for _, iteration in run.iterations():
        played: tuple[Round, ...] = ()
        for s in range(run.cfg.steps):  # l.4
            state, played = play_step(spell, iteration.phase("play").step(s + 1), state)
        run.watch_pool(iteration, state.player.policy.id, [r.groups for r in played], passed=(FULL,))
        score_held_out(spell, iteration, state.player)
        probe_questions(spell, iteration, played)
    return state.player  # l.27


def play_step(spell: Spell, step: Place, state: State) -> tuple[State, tuple[Round, ...]]:
    """l.5-26: rounds until the batch is full, then one update. Also returns the rounds."""
    cfg, played = spell.run.cfg.sampling, ()  # l.5
    while num_kept([r.groups for r in played]) < cfg.groups and len(played) < cfg.max_rounds:  # l.6
        number = state.num_rounds + len(played)
        played += (play_round(spell, step, state.player, state.memory, played, number),)  # l.7-19, 22-24
    groups = [r.groups for r in played]
    check_pool(groups, cfg.groups, allow_short=cfg.short_batch == "fewer", way_out=SHORT_BATCH)
    memory = push_to_memory(spell, step, state.memory, played)  # l.20-21
    rewards = sample_batch(spell, step, played)  # l.25
    watch_rounds(spell, step, state.player, played)
    player = update_policy(spell, step, state.player, rewards, played)  # l.26
    return State(player, memory, state.num_rounds + len(played)), played


def push_to_memory(spell: Spell, step: Place, memory: Table | None, played: tuple[Round, ...]) -> Table | None:
    """l.20-21: the L most recent solvable questions of every cluster and type, with their new documents."""
    most = spell.run.cfg.questioner.memory_pairs
    if not most:
        return None
    tasks, scores = [r.posed.tasks for r in played], [r.scores["questioner"] for r in played]
    samples, prompts = [s for r in played for s in r.posed.samples], [p for r in played for p in r.posed.prompts]
    return remember(step, memory, tasks, scores, samples, prompts, component="r_bar", low=0.0, high=1.0, most=most)


def sample_batch(spell: Spell, step: Place, played: tuple[Round, ...]) -> list[Table]:
    """l.25: role-specific dynamic sampling, and advantages within groups (eq. 8) or over the batch (eq. 9)."""
    cfg, groups = spell.run.cfg, [r.groups for r in played]
    scores = {role: [r.scores[role] for r in played] for role in played[0].scores}
    how = {"scheme": "zscore", "spread": cfg.advantage_std}
    rewards = [normalise(step, scores["responder"], chosen=groups, label="responder", **how)]
    if cfg.questioner.trained:
        about = {"tasks": [r.posed.tasks for r in played], "scores": scores["questioner"], "groups": groups}
        within = ("group_id",) if cfg.questioner.advantage_per_type else ()
        chosen = choose(step, QUESTIONS, types=list(cfg.task_types), seed=cfg.seed, label="questioner", **about)
        rewards.append(normalise(step, scores["questioner"], within=within, chosen=chosen, label="questioner", **how))
    if cfg.verifier.trained and "verifier" in scores:
        chosen = choose_votes(cfg, step, scores["verifier"])
        rewards.append(normalise(step, scores["verifier"], chosen=chosen, by="group_id", label="verifier", **how))
    return rewards


def choose_votes(cfg: Config, step: Place, scores: list[Table]) -> Table:
    """N / G groups of votes whose majority agrees with the rule, and is neither narrow nor unanimous."""
    (low, high), number = cfg.verifier.share, max(1, cfg.sampling.groups // cfg.group_size)
    bounds = {"low": low, "high": high, "consistency": cfg.verifier.consistency, "num_groups": number, "seed": cfg.seed}
    limits = (Limit(number, "enough groups are taken"),)
    return choose(step, CONSISTENT_VOTES, scores=scores, limits=limits, label="verifier", **bounds)


def update_policy(spell: Spell, step: Place, player: Player, rewards: list[Table], played: tuple[Round, ...]) -> Player:
    """l.26: one joint step on all three roles' samples."""
    talk = spell.run.cfg.dialogues
    rollouts = [table for r in played for table in r.rollouts]
    limit = talk.input_tokens + talk.response_tokens
    how = {"max_tokens": limit, "equal_tables": spell.run.cfg.equal_roles}
    return spell.run.learn(step, player, rewards, rollouts, spell.run.cfg.update, **how)
