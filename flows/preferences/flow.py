"""DPO, arXiv 2305.18290: a policy learns from pairs of replies, one of which is better.

The replies come from another run; human labels or rewards of that run say which is better. Labels
of a judge's verdicts thus make a better judge, and labels of answers a better policy.

Departures
- The reference is the policy that the run starts from, which need not have been fine-tuned on the
  chosen replies.
- A reply's log-probability sums over all its sampled tokens, in all turns; the paper has only
  single turns.
"""

from __future__ import annotations

from flows.blocks.compared_replies import Source
from flows.method import method
from flows.preferences.config import Config
from flows.run import Player, Run
from tasks.evaluate import evaluate
from tasks.preferences import pairs, preference_batch, preference_measure
from tasks.references import references
from tasks.stage import Tables
from warehouse.store import Place, Table

PAIRS_BENCHMARK = "pairs"


@method(Config)
def preference_update(run: Run[Config]) -> Player:
    """Pair replies of another run, update on the pairs, and measure on held-out pairs."""
    cfg = run.cfg
    source = Source.open(run.place.store, cfg.source, cfg.on, cfg.role)
    source.check_model(run.models["base"], run.start)
    start = run.place.iteration(0)
    compared = pairs(
        start.phase("pairs"),
        source.rollouts,
        source.prompts,
        annotations=source.annotations,
        verdicts=source.verdicts,
        rewards=source.rewards,
        pairs_per_prompt=cfg.pairs_per_prompt,
        held_out=cfg.held_out,
        seed=cfg.seed,
        # an engine that scores a reply needs room for one more token
        max_tokens=run.machines.engines.config.max_model_len - 1,
    )
    check_pairs(compared, source)
    player = run.player("policy")
    before = measure_held_out(run, start, player, compared, source.rollouts)
    for _, iteration in run.iterations():
        player = run.prefer(
            iteration.phase("tuning"),
            player,
            compared,
            source.rollouts,
            cfg.update,
            pairs_per_step=cfg.pairs_per_step,
        )
        measure_held_out(run, iteration, player, compared, source.rollouts, before)
    return player


def check_pairs(compared: Table, source: Source) -> None:
    """Raise ValueError, with the reasons, if no pair can be trained on."""
    rows = compared.rows()
    if any(row["kept"] and not row["held_out"] for row in rows):
        return
    reasons: dict[str, int] = {}
    for row in rows:
        reason = row["reason"] or "it is held out"
        reasons[reason] = reasons.get(reason, 0) + 1
    counts = ", ".join(f"{number} because {reason}" for reason, number in reasons.items())
    raise ValueError(
        f"no pair of replies of {source.role} can be trained on: of {len(rows)} prompts and pairs,"
        f" {counts or 'none has an opinion'}. A pair needs replies to one prompt of which one is"
        " good and another is bad"
    )


def measure_held_out(
    run: Run[Config],
    iteration: Place,
    player: Player,
    compared: Table,
    rollouts: Tables,
    before: Table | None = None,
) -> Table | None:
    """Score the held-out pairs by the player's policy, and return their log-probabilities; None if
    no pair is held out. `before`: the log-probabilities under the policy before training."""
    place = iteration.phase("evaluation")
    batch = preference_batch(place, rollouts, compared, held_out=True)
    if not batch.num_rows:
        return None
    fleet = run.machines.serving_player(run.start)
    logprobs = references(place, batch, policy=player.policy, fleet=fleet)
    evaluate(
        place,
        preference_measure,
        policy=player.policy.id,
        benchmark=PAIRS_BENCHMARK,
        batch=batch,
        logprobs=logprobs,
        before=before or logprobs,
    )
    return logprobs
