"""Do both roles get better? Checkpoints of each against one fixed opponent of the other (figure 3 of the paper).

`fixed Reasoner`: questions of every checkpoint, answered by the opponent; its pass rate falls as they get harder.
`fixed Challenger`: questions of the opponent, answered by every checkpoint; the pass rate rises.
Scores stand with the checkpoint's iteration.
"""

from __future__ import annotations

from collections.abc import Iterator

from flows.spice.config import SpiceConfig
from flows.spice.held_out import measure_questions
from flows.spice.scoring import correctness
from flows.spice.steps import Attempts, Player, Spice, answer, ask_once, player_of, sample_documents
from tasks.evaluate import evaluate
from tasks.prompt import Row
from warehouse.store import Place

FIXED_REASONER, FIXED_CHALLENGER = "fixed Reasoner", "fixed Challenger"


def probe(spice: Spice) -> None:
    """Measure the configured checkpoints against the configured opponent, if there are any."""
    cfg: SpiceConfig = spice.cfg
    if not cfg.probes.checkpoints:
        return
    run, opponent = spice.bench.place, player_of(spice, cfg.probes.opponent)
    fixed = ask_probe(spice, run.iteration(cfg.probes.opponent).phase("probe_questions"), opponent)
    for checkpoint in cfg.probes.checkpoints:
        player, iteration = player_of(spice, checkpoint), run.iteration(checkpoint)
        own = fixed
        if checkpoint != cfg.probes.opponent:
            own = ask_probe(spice, iteration.phase("probe_questions"), player)
        pass_rate(spice, iteration.phase("probe_fixed_reasoner"), own, opponent, player, FIXED_REASONER)
        pass_rate(spice, iteration.phase("probe_fixed_challenger"), fixed, player, player, FIXED_CHALLENGER)


def ask_probe(spice: Spice, place: Place, player: Player) -> Attempts:
    """Questions of one player on the probe's documents, the same for all players."""
    cfg = spice.cfg.probes
    samples = sample_documents(spice, place, 0, epoch="probe", count=cfg.num_documents)
    return ask_once(spice, place, player, samples, cfg.attempts)


def pass_rate(spice: Spice, place: Place, asked: Attempts, reasoner: Player, measured: Player, benchmark: str) -> None:
    """One answer to every valid question."""
    given = answer(spice, place, reasoner, asked.tasks, num_answers=1, sampling=spice.answering)
    tables = asked.tasks, given.answers, given.matches
    evaluate(place, measure_probe, *tables, policy=measured.policy.id, benchmark=benchmark)


def measure_probe(tasks: list[Row], answers: list[Row], matches: list[Row]) -> Iterator[tuple[str, float]]:
    """`score` is the pass rate over the valid questions whose answer could be compared."""
    for found in correctness(answers, matches).values():
        if found is not None:
            yield "score", float(found)
    yield from measure_questions(tasks, [])
