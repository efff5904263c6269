"""What an iteration of SPICE asks and trains, for `selfplay plan`."""

from __future__ import annotations

from flows.plan.workload import Asked, Lengths, Step, Update, Workload
from flows.spice.config import Config

VALID = 0.6  # share of the first round's attempts that are questions: assumed
LATER = ((0.2, 8), (0.1, 16), (0.05, 32), (0.03, 64))  # shares of documents that need more rounds, and their attempts


def workload(cfg: Config) -> Workload:
    documents, group, answers = cfg.documents_per_step, cfg.challenger.group_size, cfg.reasoner.answers
    segment = 0.6 * cfg.dialogues.document_tokens
    asker = "base" if cfg.challenger.fixed else "policy"
    rounds = [Asked("question", documents * share, n, model=asker) for share, n in ((1.0, group), *LATER)]
    chosen = [] if cfg.settled else [Asked("choice", documents, model=asker)]
    questions = documents * group * VALID
    conversations = {"reasoner": documents * answers} | (
        {} if cfg.challenger.fixed else {"question": documents * group}
    )
    return Workload(
        lengths={
            "choice": Lengths(segment, 300),
            "question": Lengths(segment, 900),
            "reasoner": Lengths(150, 900),
        },
        steps=(
            Step(
                "training",
                cfg.steps,
                (*chosen, *rounds, Asked("reasoner", questions, answers, model="policy")),
                Update("policy", cfg.update, conversations),
            ),
        ),
    )
