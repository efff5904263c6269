"""What an iteration of SPELL asks and trains, for `selfplay plan`."""

from __future__ import annotations

from flows.plan.workload import Asked, Lengths, Step, Update, Workload
from flows.spell.config import Config

ROUNDS = 1.3  # of clusters until a batch is full: assumed, as are the shares of questions that go on
READABLE, GROUNDED, STATED = 0.8, 0.7, 0.9


def workload(cfg: Config) -> Workload:
    clusters, g, groups = ROUNDS * cfg.sampling.clusters_per_round, cfg.group_size, cfg.sampling.groups
    documents = 0.375 * cfg.dialogues.input_tokens
    reply = 4000 if cfg.dialogues.reasoning else 500
    asked = [Asked("questioner", clusters, model="policy")]
    if cfg.questioner.grounding_filter:
        asked.append(Asked("closed-book", READABLE * clusters, model="policy"))
    asked.append(Asked("responder", GROUNDED * clusters, g, model="policy"))
    trained: dict[str, float] = {"responder": groups * g}
    if cfg.questioner.trained:
        trained["questioner"] = groups * 2
    if cfg.verifier.enabled:
        asked.append(Asked("verifier", GROUNDED * STATED * clusters * g, g, model="policy"))
    if cfg.verifier.enabled and cfg.verifier.trained:
        trained["verifier"] = groups
    return Workload(
        lengths={
            "questioner": Lengths(0.8 * documents, reply),
            "closed-book": Lengths(200, reply),
            "responder": Lengths(documents, reply),
            "verifier": Lengths(450, min(reply, 300)),
        },
        steps=(Step("training", cfg.steps, tuple(asked), Update("policy", cfg.update, trained)),),
    )
