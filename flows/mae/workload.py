"""What an iteration of MAE asks and trains, for `selfplay plan`. Roles are called as the labels of their tables."""

from __future__ import annotations

from flows.mae.config import Config
from flows.plan.workload import Asked, Lengths, Step, Update, Workload


def workload(cfg: Config) -> Workload:
    n, answers, marks = cfg.batch_size, cfg.proposer.answers, cfg.judge.judgments
    asked = (
        Asked("proposer", n, model="model"),
        Asked("quality", n, marks, model="model"),
        Asked("trial", n, answers, model="model"),
        Asked("difficulty", n * answers, marks, model="model"),
        Asked("solver", n, model="model"),
        Asked("answers", n, marks, model="model"),
        Asked("judge", n, model="model"),
    )
    lengths = {
        "proposer": Lengths(350, 400),
        "quality": Lengths(500, 300),
        "trial": Lengths(200, 600),
        "difficulty": Lengths(900, 300),
        "solver": Lengths(200, 600),
        "answers": Lengths(900, 300),
        "judge": Lengths(900, 300),
    }
    trained = {str(role): float(n) for role in cfg.trained}
    return Workload(lengths, (Step("evolve", cfg.steps, asked, Update("model", cfg.update, trained)),))
