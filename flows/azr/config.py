"""Absolute Zero's settings. The defaults are the paper's or, where it is silent, the released
code's; profiles hold departures."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from flows.azr.programs import FIRST_INPUTS, FIRST_MESSAGE, IDENTITY
from flows.settings import profile
from flows.settings.profile import Comparing, MethodSettings, Settings
from flows.settings.workload import (
    Lengths,
    PlannedConversations,
    PlannedRole,
    PlannedUpdate,
    Step,
    Workload,
)
from tasks.processes.sandbox import SandboxSettings
from tasks.training.grpo import GRPOSettings

TaskType = Literal["deduction", "abduction", "induction"]
# Modules that programs may not use. Up to `calendar` they are the released code's; the others
# reach outside the program, which the sandbox would refuse.
BANNED = (
    "logging",
    "random",
    "multiprocessing",
    "pebble",
    "subprocess",
    "threading",
    "datetime",
    "time",
    "hashlib",
    "hmac",
    "bcrypt",
    "uuid",
    "calendar",
    "os",
    "sys",
    "posix",
    "io",
    "pathlib",
    "shutil",
    "socket",
    "signal",
    "ctypes",
    "gc",
    "inspect",
    "importlib",
    "builtins",
    "pickle",
    "marshal",
    "asyncio",
    "concurrent",
    "secrets",
    "tempfile",
    "open",
    "input",
    "eval",
    "exec",
    "compile",
    "globals",
    "__import__",
)


class Dialogues(profile.Dialogues):
    """Long replies, and prompts that leave room for them."""

    response_tokens: int = Field(
        default=8096, ge=1, description="maximum number of tokens to sample per reply"
    )
    content_tokens: int = Field(
        default=5600,
        ge=1,
        description=(
            "maximum number of tokens of a prompt, excluding the chat template's: a task with a"
            " longer one enters no buffer, and a proposer is shown fewer references"
        ),
    )


class Update(GRPOSettings):
    """Appendix B: an upper clip bound above the lower one, and no KL term."""

    epsilon_high: float = Field(default=0.28, gt=0)
    beta: float = Field(default=0.0, ge=0)


class Seeding(Settings):
    """How the buffers are filled before training, by the model that the run starts from."""

    rounds: int = Field(
        default=4,
        ge=0,
        description="S: batches of proposals of every task type before training starts",
    )
    identity: str = Field(
        default=IDENTITY,
        description="the program that every run starts with, which returns its argument",
    )
    inputs: tuple[str, ...] = Field(
        default=FIRST_INPUTS,
        min_length=1,
        description=(
            "inputs of that program: the first for a deduction and an abduction, all for an"
            " induction"
        ),
    )
    message: str = Field(default=FIRST_MESSAGE, description="hint of its induction")


class Proposer(Settings):
    """What a proposer's prompt shows, and how a proposal's difficulty is measured."""

    trained: bool = Field(default=True, description="false is the ablation: only the Solver learns")
    references: int = Field(
        default=6, ge=0, description="K: past triplets shown to a proposer; 0 is the ablation"
    )
    attempts: int = Field(
        default=8, ge=1, description="n: attempts of the Solver, which measure a task's difficulty"
    )
    num_inputs: int = Field(
        default=10,
        ge=2,
        description="N: inputs of an induction, half of them hidden from the Solver",
    )
    banned: tuple[str, ...] = Field(
        default=BANNED, description="modules and names that a program may not use"
    )
    num_runs: int = Field(
        default=2, ge=1, description="j: runs of a proposed program, which have to agree"
    )


class Penalties(Settings):
    """Eq. 6: penalties for replies that would otherwise earn nothing."""

    malformed: float = Field(
        default=-1.0, le=0, description="reward if there are no tags, or no usable program"
    )
    wrong: float = Field(
        default=-0.5, le=0, description="reward if the reply is well formed but wrong"
    )
    unlearnable: float = Field(
        default=-0.5,
        le=0,
        description="reward for a task that is always or never solved; by eq. 4 alone: 0",
    )


class Config(MethodSettings):
    """A whole run: `iterations` times `steps` updates. It learns from no data."""

    examined: ClassVar = "model"

    iterations: int = Field(default=50, ge=1)
    steps: int = Field(default=10, ge=1, description="steps per iteration")
    batch_size: int = Field(
        default=64, ge=1, description="B: proposals, and answers, of every task type per step"
    )
    task_types: tuple[TaskType, ...] = Field(
        default=("deduction", "abduction", "induction"),
        description="task types; fewer are ablations",
    )
    dialogues: Dialogues = Dialogues()
    seeding: Seeding = Seeding()
    proposer: Proposer = Proposer()
    penalties: Penalties = Penalties()
    buffer_size: int | None = Field(
        default=16_384,
        ge=1,
        description="maximum number of triplets of a task type; the oldest leave first",
    )
    mini_batch: int | None = Field(
        default=128,
        ge=1,
        description=(
            "rollouts per optimizer step, drawn from those of all roles, as in the released"
            " scripts: 384 make three steps; null: all of them, so an update is one step"
        ),
    )
    update: Update = Update()
    sandbox: SandboxSettings = Field(
        default=SandboxSettings(), description="limits on a program while it runs"
    )
    sandbox_processes: int = Field(
        default=1, ge=1, description="number of programs that run at once"
    )
    match: Comparing = Comparing()

    @model_validator(mode="after")
    def _induction_needs_programs(self) -> Self:
        if not self.task_types or len(set(self.task_types)) < len(self.task_types):
            raise ValueError("task_types names each type at most once, and at least one of them")
        if set(self.task_types) == {"induction"}:
            raise ValueError(
                "induction takes its programs from the other types: add deduction or abduction"
            )
        return self

    def workload(self) -> Workload:
        proposals: list[PlannedConversations] = []
        attempts: list[PlannedConversations] = []
        solutions: list[PlannedConversations] = []
        for task_type in self.task_types:
            # six references have about 250 tokens each; ten inputs and outputs have 250 together
            shown = 250 if task_type == "induction" else 250 * max(1, self.proposer.references)
            proposer = PlannedRole(f"propose_{task_type}", Lengths(500 + shown, 700), "model")
            solver = PlannedRole(
                f"solve_{task_type}",
                Lengths(600, 700),
                "model",
                labels=(f"solve_{task_type}", f"try_{task_type}"),
            )
            proposals.append(proposer.conversations(self.batch_size))
            attempts.append(solver.conversations(self.batch_size, self.proposer.attempts))
            solutions.append(solver.conversations(self.batch_size))
        trained = [*(proposals if self.proposer.trained else ()), *solutions]
        num_rollouts = sum(part.number for part in trained)
        num_steps = max(1, round(num_rollouts / (self.mini_batch or num_rollouts)))
        settings = self.update.model_copy(update={"optimizer_steps": num_steps})
        sampled = (*proposals, *attempts, *solutions)
        return Workload((Step(self.steps, sampled, PlannedUpdate(settings, tuple(trained))),))
