"""R-Zero's settings. The defaults are the paper's (sections 3 and 4, appendix A); profiles hold
departures."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from flows.settings import profile
from flows.settings.profile import Comparing, MethodSettings, Settings
from flows.settings.workload import Lengths, PlannedRole, PlannedUpdate, Step, Workload
from tasks.noise import VerdictErrors
from tasks.training.grpo import GRPOSettings, LossType


class Dialogues(profile.Dialogues):
    """How replies are sampled: with the paper's top-p."""

    top_p: float = Field(default=0.99, gt=0, le=1)


class Update(GRPOSettings):
    """The paper's GRPO update of either player, with a KL term and weight decay."""

    loss_type: LossType = "grpo"
    beta: float = Field(default=1e-2, ge=0)
    weight_decay: float = Field(default=1e-2, ge=0)


class Challenger(Settings):
    """How the Challenger is trained, and the penalty for repetition."""

    steps: int = Field(default=5, ge=0, description="updates of the Challenger per iteration")
    prompts_per_step: int = Field(default=128, ge=1, description="groups of questions per step")
    mini_batch: int | None = Field(
        default=None,
        ge=1,
        description="prompts per optimizer step (released code: 16 of 512); null: all of a step",
    )
    group_size: int = Field(
        default=4, ge=1, description="questions that are compared with each other"
    )
    repetition_weight: float = Field(
        default=1.0, ge=0, description="lambda: weight of the repetition penalty; 0 is the ablation"
    )
    bleu_distance: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="tau: questions with a BLEU distance below this count as similar",
    )
    update: Update = Update()


class Solver(Settings):
    """How the Solver's questions are labelled and filtered, and how it is trained on them."""

    candidates: int = Field(
        default=8000,
        ge=1,
        description="N: questions that the Challenger writes for the Solver's training",
    )
    answers: int = Field(
        default=10,
        ge=1,
        description="m: answers per question, for its label and its difficulty",
    )
    delta: float = Field(
        default=0.25,
        ge=0,
        le=0.5,
        description="questions are kept if |share - 1/2| is at most this; ablation: 0.5",
    )
    steps: int = Field(
        default=15,
        ge=0,
        description=(
            "updates of the Solver per iteration; if too few questions are kept, they are reused"
        ),
    )
    prompts_per_step: int = Field(default=128, ge=1, description="questions per step")
    mini_batch: int | None = Field(
        default=None,
        ge=1,
        description="prompts per optimizer step (released code: 128 of 512); null: all of a step",
    )
    group_size: int = Field(
        default=5, ge=1, description="answers per question, compared with each other"
    )
    permuted: bool = Field(
        default=False, description="control: the rewards of a question's answers are permuted"
    )
    update: Update = Update()


def rows_per_step(cfg: Challenger | Solver) -> int | None:
    """The number of rollouts per optimizer step; None if a generation takes only one step."""
    if cfg.mini_batch is None or cfg.mini_batch >= cfg.prompts_per_step:
        return None
    return cfg.mini_batch * cfg.group_size


def planned(cfg: Challenger | Solver) -> GRPOSettings:
    """The settings of an update for a plan, with the number of optimizer steps."""
    rows = rows_per_step(cfg)
    if rows is None:
        return cfg.update
    num_steps = round(cfg.prompts_per_step * cfg.group_size / rows)
    return cfg.update.model_copy(update={"optimizer_steps": num_steps})


class Config(MethodSettings):
    """The settings of a run. It learns from no corpus."""

    examined: ClassVar = "solver"

    dialogues: Dialogues = Dialogues()
    challenger: Challenger = Challenger()
    solver: Solver = Solver()
    match: Comparing = Comparing()
    errors: VerdictErrors = Field(
        default=VerdictErrors(),
        description="deliberate errors in the verdicts: in built-in worlds, for studies of noise",
    )

    def workload(self) -> Workload:
        c = self.challenger
        s = self.solver
        lengths = Lengths(250, 900)
        challenger, solver = (
            PlannedRole(name, lengths, model=name) for name in ("challenger", "solver")
        )
        proposed = challenger.conversations(c.prompts_per_step, c.group_size)
        solved = solver.conversations(s.prompts_per_step, s.group_size)
        labelled = solver.conversations(proposed.number, s.answers)
        asking = Step(c.steps, (proposed, labelled), PlannedUpdate(planned(c), (proposed,)))
        candidates = challenger.conversations(s.candidates)
        pool = Step(1, (candidates, solver.conversations(s.candidates, s.answers)))
        return Workload(
            (asking, pool, Step(s.steps, (solved,), PlannedUpdate(planned(s), (solved,))))
        )
