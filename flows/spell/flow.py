"""SPELL: one policy asks about clusters of documents, answers, and verifies the answers.

Yang et al., "SPELL: Self-play reinforcement learning for evolving long-context language models",
arXiv 2509.23863. The flow reads as Algorithm 1; `l.` numbers are its lines.

Departures
- Clusters are drawn in rounds, with equal shares of the task types, as in the released code. A
  step's questions enter the history memory at the end of the step.
- The rule and the verifier see only the answer that a reply states, as in the released code, and
  not the whole reply; a reply that states no answer earns 0. The rule looks for the reference as
  whole words, not as a mere substring, compares multiple-choice answers by their letters, and
  allows financial numbers a relative error of 0.15%, which in the paper only the verifier's prompt
  does (`flows.spell.rules`).
- A majority is more than half of all votes: a tie counts as a no, and so does an unreadable vote. A
  vote that an engine failed to sample does not count. An answer without a readable vote is judged
  by the rule alone, and its votes are not trained on.
- The loss is a mean over the tokens of all roles, as in the released code. Eq. 12 divides by the
  tokens of a group; eq. 10 gives the roles equal weights (`equal_roles`).
- Prompts are worded for this project. The set `paper` makes the same requests as the paper's
  prompts. In our set `english`, all responders reason step by step (in the paper, only those of
  financial mathematics) and answer as briefly as they can; a question combines several documents
  (in the paper, all of them) and cannot be answered without them; and the verifier has three
  further reasons for a no. In both sets the verifier sees the options of a multiple-choice
  question.
- The memory stores a multiple-choice answer as its option's text, not as its letter.
- Without majority voting ("w/o majority voting"), the responder is rewarded by the first vote;
  groups of votes are still selected and rewarded by the majority.
- With an external judge (table 4), the grounding filter still uses the rule.
- DocMath-Eval is scored by its own rule, which ignores scales and some signs, and by a judge. The
  prompts of short-context benchmarks ask for a boxed answer or a letter, because the paper does not
  specify a format.
- Advantages are divided by the population standard deviation (`advantage_std`).
- A batch has N groups whose rewards differ; Algorithm 1 counts all answered groups and filters
  afterwards. A batch with fewer groups is an error or, with `sampling.short_batch`, just smaller;
  it is never padded.
As in the released code, but not in the paper
- A solvable question whose answer is already in the memory is not added to it, and new documents
  avoid those already in the memory.
- An unreadable vote is rewarded with -1 (eq. 5: 0 or 1).
- The questioner is not penalised for a question whose answer is too long, for a question of
  financial mathematics whose answer is not a single nonzero number, or for a reply that was cut off
  while thinking (eq. 7: -1 for any format error).
- In a step with fewer than N / G usable groups of votes, the verifier is not updated (section 3.3
  takes as many as there are questions).
- Unusable questions for the questioner's batch are drawn per task type; if one type has too few,
  the rest come from the next type.
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
from tasks.monitors.monitor import check_pool
from tasks.normalise import normalise
from warehouse.store import Place, Table

QUESTIONS = Query.beside(__file__, "questions")
CONSISTENT_VOTES = Query.beside(__file__, "consistent_votes")
SHORT_BATCH = (
    "Raise sampling.max_rounds or sampling.clusters_per_round; sampling.short_batch=fewer accepts"
    " this."
)


@dataclass(frozen=True)
class State:
    """What one step passes on to the next.

    The policy, the history memory, the number of rounds so far, and the rounds of the last step.
    """

    player: Player
    memory: Table | None = None
    num_rounds: int = 0
    rounds: tuple[Round, ...] = ()


@method(Config)
def spell_iteration(run: Run[Config]) -> Player:
    """Algorithm 1."""
    spell = Spell.prepare(run)  # l.1
    state = State(run.player("policy"))  # l.2-3: an empty memory
    score_held_out(spell, run.place.iteration(0), state.player)
    for _, iteration in run.iterations():
        groups: list[Table] = []
        for s in range(1, run.cfg.steps + 1):  # l.4
            state = play_step(spell, iteration.phase("play").step(s), state)
            groups += [r.groups for r in state.rounds]
        run.watch_pool(iteration, state.player.policy.id, groups, passed=(FULL,))
        score_held_out(spell, iteration, state.player)
        probe_questions(spell, iteration, state.rounds)
    return state.player  # l.27


def play_step(spell: Spell, step: Place, state: State) -> State:
    """l.5-26: rounds until the batch is full, then one update."""
    cfg = spell.run.cfg.sampling
    rounds: tuple[Round, ...] = ()  # l.5
    while len(rounds) < cfg.max_rounds and num_in_batch(rounds) < cfg.groups:  # l.6
        num_before = state.num_rounds + len(rounds)
        played = play_round(spell, step, state.player, state.memory, rounds, num_before)
        rounds += (played,)  # l.7-19, 22-24
    check_pool(
        [r.groups for r in rounds],
        cfg.groups,
        allow_short=cfg.short_batch == "fewer",
        way_out=SHORT_BATCH,
    )
    memory = push_to_memory(spell, step, state.memory, rounds)  # l.20-21
    advantages = sample_batch(spell, step, rounds)  # l.25
    watch_rounds(spell, step, state.player, rounds)
    player = update_policy(spell, step, state.player, advantages, rounds)  # l.26
    return State(player, memory, state.num_rounds + len(rounds), rounds)


def num_in_batch(rounds: tuple[Round, ...]) -> int:
    """The number of responder groups that the rounds add to the batch."""
    return num_kept([r.groups for r in rounds])


def push_to_memory(
    spell: Spell, step: Place, memory: Table | None, rounds: tuple[Round, ...]
) -> Table | None:
    """l.20-21: remember the L most recent solvable questions of every cluster and type.

    Their new documents are remembered with them. None if L is 0.
    """
    if not spell.run.cfg.questioner.memory_pairs:
        return None
    return remember(
        step,
        memory,
        tasks=[r.questions.tasks for r in rounds],
        rewards=[r.rewards.questioner for r in rounds],
        samples=[table for r in rounds for table in r.questions.samples],
        prompts=[table for r in rounds for table in r.questions.prompts],
        component="r_bar",
        low=0.0,
        high=1.0,
        most=spell.run.cfg.questioner.memory_pairs,
    )


def sample_batch(spell: Spell, step: Place, rounds: tuple[Round, ...]) -> list[Table]:
    """l.25: role-specific dynamic sampling, and each trained role's advantages."""
    cfg = spell.run.cfg
    advantages = [responder_advantages(cfg, step, rounds)]
    if cfg.questioner.trained:
        advantages.append(questioner_advantages(cfg, step, rounds))
    if cfg.verifier.trained and cfg.verifier.enabled:
        advantages.append(verifier_advantages(cfg, step, rounds))
    return advantages


def responder_advantages(cfg: Config, step: Place, rounds: tuple[Round, ...]) -> Table:
    """Eq. 8: advantages within the answers to each question of the batch."""
    return normalise(
        step,
        [r.rewards.responder for r in rounds],
        scheme="zscore",
        spread=cfg.advantage_std,
        chosen=[r.groups for r in rounds],
        label="responder",
    )


def questioner_advantages(cfg: Config, step: Place, rounds: tuple[Round, ...]) -> Table:
    """Eq. 9: advantages over the batch's questions and as many unusable ones of each task type."""
    rewards = [r.rewards.questioner for r in rounds]
    chosen = choose(
        step,
        QUESTIONS,
        tasks=[r.questions.tasks for r in rounds],
        rewards=rewards,
        groups=[r.groups for r in rounds],
        types=list(cfg.task_types),
        seed=cfg.seed,
        label="questioner",
    )
    within: tuple[str, ...] = ()  # the whole batch is one group
    if cfg.questioner.advantage_per_type:
        within = ("group_id",)
    return normalise(
        step,
        rewards,
        scheme="zscore",
        spread=cfg.advantage_std,
        within=within,
        chosen=chosen,
        label="questioner",
    )


def verifier_advantages(cfg: Config, step: Place, rounds: tuple[Round, ...]) -> Table:
    """Eq. 8: advantages within the group of votes on each of N / G answers.

    The majority of the votes agrees with the rule, and is neither narrow nor unanimous.
    """
    rewards = [table for r in rounds for table in r.rewards.verifier]
    low, high = cfg.verifier.share
    num_groups = max(1, cfg.sampling.groups // cfg.group_size)
    chosen = choose(
        step,
        CONSISTENT_VOTES,
        rewards=rewards,
        low=low,
        high=high,
        consistency=cfg.verifier.consistency,
        num_groups=num_groups,
        seed=cfg.seed,
        limits=(Limit(num_groups, "enough groups are taken"),),
        label="verifier",
    )
    return normalise(
        step,
        rewards,
        scheme="zscore",
        spread=cfg.advantage_std,
        chosen=chosen,
        by="group_id",
        label="verifier",
    )


def update_policy(
    spell: Spell, step: Place, player: Player, advantages: list[Table], rounds: tuple[Round, ...]
) -> Player:
    """l.26: one joint step on all three roles' samples."""
    cfg = spell.run.cfg
    return spell.run.learn(
        step,
        player,
        advantages,
        [table for r in rounds for table in r.rollouts],
        cfg.update,
        max_tokens=cfg.dialogues.input_tokens + cfg.dialogues.response_tokens,
        equal_tables=cfg.equal_roles,
    )
