"""The job of one update and its result: plain values, no torch, no TRL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tasks.models.yarn import Yarn

LossType = Literal["grpo", "dapo", "dr_grpo", "bnpo"]
Objective = Literal["clipped", "likelihood", "preference", "distillation"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class LoRASettings(_Frozen):
    """A low-rank adapter W + (alpha / rank) B A (Hu et al. 2021).

    `targets` are names of modules, or "all-linear".
    """

    rank: int = Field(default=16, ge=1, description="rank of the adapter")
    alpha: float = Field(
        default=32.0, gt=0, description="the adapter's product is scaled by alpha / rank"
    )
    targets: tuple[str, ...] | Literal["all-linear"] = Field(
        default="all-linear", description="names of modules that get an adapter"
    )


class GRPOSettings(_Frozen):
    """The clipped objective (Shao et al. 2024) on stored rollouts.

    The ratio rho is taken against their stored log-probabilities. `loss_type` sets the denominator
    of an optimizer step's sum of token terms:
      grpo     each datum by its own sampled tokens, then by the datums of the step (SCOPE, eq. 3)
      dapo     the sampled tokens of the step (SPELL's and MAE's token mean)
      dr_grpo  the datums of the step times `max_completion_tokens`, a constant (SPICE)
      bnpo     each micro-batch by its own sampled tokens, then by the number of micro-batches: it
               depends on `micro_batch_size`

    Three other objectives share these settings. "likelihood" is supervised fine-tuning.
    "preference" is DPO (Rafailov et al. 2023, eq. 7): -log sigmoid(m), averaged over the pairs of
    an optimizer step whatever the loss type. The margin m is beta times the difference of two
    log-ratios of policy and reference: that of the chosen reply minus that of the rejected one,
    each over all tokens of the reply. "distillation" is the reverse KL to a teacher's stored
    log-probabilities of the sampled tokens (`tasks.training.distillation`), with the denominator
    of the loss type.
    """

    objective: Objective = Field(
        default="clipped",
        description=(
            '"likelihood": the log-likelihood of the sampled tokens, weighted by the advantage:'
            ' supervised fine-tuning where it is 1; "preference": DPO on pairs of replies;'
            ' "distillation": reverse KL to a teacher'
        ),
    )
    learning_rate: float = Field(
        default=1e-6,
        ge=0,
        le=1,
        description=(
            "learning rate of AdamW, constant within an update; a method may warm up from update"
            " to update"
        ),
    )
    decay_updates: int | None = Field(
        default=None,
        ge=1,
        description=(
            "N: over a player's first N updates, the learning rate falls linearly to 1/N of its"
            " value; null: it stays constant"
        ),
    )
    loss_type: LossType = Field(
        default="dapo",
        description=(
            'how the loss is averaged. "grpo": over the tokens of a row, then over rows; "dapo":'
            ' over all sampled tokens of the step; "dr_grpo": over max_completion_tokens for each'
            ' row; "bnpo": over the tokens of a micro-batch'
        ),
    )
    epsilon_low: float = Field(
        default=0.2, gt=0, lt=1, description="the ratio is clipped below 1 - epsilon_low"
    )
    epsilon_high: float = Field(
        default=0.2, gt=0, description="the ratio is clipped above 1 + epsilon_high"
    )
    beta: float = Field(
        default=1e-3,
        ge=0,
        description=(
            "weight of KL(policy || reference) in the loss; 0 loads no reference; for preferences,"
            " DPO's beta, often 0.1"
        ),
    )
    entropy_coef: float = Field(
        default=0.0,
        ge=0,
        description=(
            "weight of an entropy bonus: the loss is reduced by this times the mean entropy of the"
            " sampled tokens, with the denominator of the loss type"
        ),
    )
    use_bias_correction_kl: bool = Field(
        default=False, description="multiply each token's KL term by rho (TRL's own default)"
    )
    dual_clip: float | None = Field(
        default=3.0, gt=1, description="where A < 0 the objective is at least dual_clip * A"
    )
    importance_sampling_level: Literal["token", "sequence"] = Field(
        default="token", description='"sequence": one ratio per reply, as in GSPO'
    )
    on_policy: bool = Field(
        default=False,
        description=(
            "no importance ratio (rho = 1): correct if an update is one optimizer step on rollouts"
            " of the same policy"
        ),
    )
    temperature: float = Field(
        default=1.0, gt=0, description="temperature at which the rollouts were sampled and scored"
    )
    max_completion_tokens: int | None = Field(
        default=None, ge=1, description="constant divisor of dr_grpo"
    )
    max_grad_norm: float = Field(
        default=1.0, ge=0, description="gradients are clipped to this norm; 0: no clipping"
    )
    weight_decay: float = Field(default=0.0, ge=0, description="weight decay of AdamW")
    adam_beta1: float = Field(
        default=0.9, ge=0, lt=1, description="beta1 of AdamW; torch's default"
    )
    adam_beta2: float = Field(
        default=0.999,
        ge=0,
        lt=1,
        description="beta2 of AdamW; torch's default; large models often use 0.95",
    )
    adam_epsilon: float = Field(default=1e-8, gt=0, description="epsilon of AdamW; torch's default")
    optimizer_steps: int = Field(
        default=1,
        ge=1,
        description=(
            "k: optimizer steps per update, whose rows are split, in order, into k equal"
            " mini-batches"
        ),
    )
    micro_batch_size: int = Field(
        default=8, ge=1, description="rows per forward pass of one process"
    )
    shared_prompt_tokens: int | None = Field(
        default=None,
        ge=1,
        description=(
            "compute answers to one prompt together, as one row of at most this many tokens with"
            " the prompt once; null: each answer has its own copy"
        ),
    )
    lora: LoRASettings | None = Field(
        default=None, description="train a LoRA adapter; null: all weights are trained"
    )
    dtype: Literal["float32", "bfloat16"] = Field(
        default="float32", description="data type of arithmetic; trained weights stay float32"
    )
    export_dtype: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description=(
            "data type of the weights that engines load; trained weights stay float32, and"
            " adapters are float32"
        ),
    )
    attention: Literal["sdpa", "eager", "flash_attention_2"] = Field(
        default="sdpa",
        description="attention implementation; flash_attention_2 needs a GPU and its package",
    )
    gradient_checkpointing: bool = Field(
        default=False,
        description="recompute activations instead of keeping them: less memory, a third more time",
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=1 << 32,
        description="seed of an adapter's initial weights; the run's `seed` does not set it",
    )

    def decayed(self, num_updates: int) -> Self:
        """The settings of a player's next update after `num_updates` updates.

        They have that update's learning rate, and no decay.

        >>> base = GRPOSettings(learning_rate=0.5, decay_updates=4)
        >>> [base.decayed(n).learning_rate for n in range(6)]
        [0.5, 0.375, 0.25, 0.125, 0.125, 0.125]
        """
        if self.decay_updates is None:
            return self
        left = max(1, self.decay_updates - num_updates) / self.decay_updates
        return self.model_copy(
            update={"learning_rate": self.learning_rate * left, "decay_updates": None}
        )

    @model_validator(mode="after")
    def _dr_grpo_names_its_constant(self) -> Self:
        if self.loss_type == "dr_grpo" and self.max_completion_tokens is None:
            raise ValueError(
                'loss_type "dr_grpo" divides by a constant: give max_completion_tokens'
            )
        return self

    @model_validator(mode="after")
    def _some_objectives_have_no_reference(self) -> Self:
        if self.objective in ("likelihood", "distillation") and self.beta:
            raise ValueError(
                f'objective "{self.objective}" has no KL term: set beta to 0, not {self.beta:g}'
            )
        return self

    @model_validator(mode="after")
    def _entropy_bonus_needs_the_clipped_objective(self) -> Self:
        if self.entropy_coef and self.objective != "clipped":
            raise ValueError(
                f'objective "{self.objective}" has no entropy bonus: set entropy_coef to 0, not'
                f" {self.entropy_coef:g}"
            )
        return self

    @model_validator(mode="after")
    def _preferences_come_in_pairs(self) -> Self:
        if self.objective != "preference":
            return self
        if not self.beta:
            raise ValueError('objective "preference" needs a beta above 0, such as 0.1')
        if self.micro_batch_size % 2:
            raise ValueError(
                'objective "preference" computes pairs: micro_batch_size must be even, not'
                f" {self.micro_batch_size}"
            )
        if self.shared_prompt_tokens is not None:
            raise ValueError(
                'objective "preference" computes each reply with its own prompt: set'
                " shared_prompt_tokens to null"
            )
        return self

    @property
    def depends_on_micro_batch(self) -> bool:
        """Whether another `micro_batch_size` would change the loss.

        >>> GRPOSettings(loss_type="bnpo").depends_on_micro_batch
        True
        """
        return self.loss_type == "bnpo" and self.objective != "preference"

    @property
    def skips_zero_advantages(self) -> bool:
        """Whether datums of advantage 0 can be skipped, because they have no gradient."""
        return not self.beta and not self.entropy_coef and self.loss_type != "bnpo"

    @property
    def half_micro_batch(self) -> int:
        """Half as many datums per forward pass, with pairs kept whole; 0 if it cannot be halved.

        >>> GRPOSettings(micro_batch_size=6).half_micro_batch
        3
        >>> GRPOSettings(objective="preference", beta=0.1, micro_batch_size=6).half_micro_batch
        2
        """
        half = self.micro_batch_size // 2
        if self.objective == "preference":
            return half - half % 2
        return half

    @model_validator(mode="after")
    def _on_policy_is_one_step(self) -> Self:
        if self.on_policy and self.optimizer_steps > 1:
            raise ValueError(
                f"on_policy holds for the first optimizer step only, not for {self.optimizer_steps}"
            )
        return self

    @model_validator(mode="after")
    def _a_shared_prompt_is_a_micro_batch(self) -> Self:
        if self.shared_prompt_tokens is None:
            return self
        wrong = {
            "micro_batch_size": (
                self.micro_batch_size != 1,
                "1: a prompt with its answers is one micro-batch",
            ),
            "attention": (self.attention != "sdpa", '"sdpa"'),
            "loss_type": (self.loss_type == "bnpo", "another: bnpo weighs micro-batches alike"),
        }
        for name, (is_wrong, needed) in wrong.items():
            if is_wrong:
                raise ValueError(f"shared_prompt_tokens is given, so {name} must be {needed}")
        return self


RESULT_FILE = "result.json"
# maximum bytes per file of a policy: several files can be hashed and written in parallel
FILE_SIZE = 4_000_000_000


class UpdateJob(_Frozen):
    """One update.

    Paths are local folders. `batch` is a Parquet file or a folder of them; `out` is empty or
    absent.
    """

    batch: Path
    policy: Path = Field(description="HF folder: the weights to train, or the base of the adapter")
    reference: Path = Field(description="HF folder of M0, what the KL term pulls towards")
    reference_logprobs: Path | None = Field(
        default=None,
        description=(
            "log-probabilities of the batch's rows under M0, or in distillation under the teacher;"
            " None has the trainer find those under M0"
        ),
    )
    out: Path
    adapter: Path | None = Field(
        default=None,
        description="PEFT folder to go on from; None with settings.lora is a fresh one",
    )
    optimizer_state: Path | None = Field(
        default=None, description="folder `UpdateResult.optimizer_state` of the update before"
    )
    settings: GRPOSettings = GRPOSettings()
    yarn: Yarn | None = Field(
        default=None, description="stretches policy and reference, as in the engines"
    )
    checkpoints: Path | None = Field(
        default=None,
        description="where optimizer steps are kept during the update; one found there is used",
    )
    checkpoint_s: float = Field(
        default=600.0, ge=0, description="seconds between two of them, at least"
    )
    state_later: bool = Field(
        default=False,
        description="leave the optimizer's state in the processes' memory, for `kept_state.write`",
    )

    @property
    def positions(self) -> dict[str, Any]:
        """The values that replace those of the models' config.json."""
        if self.yarn is None:
            return {}
        return self.yarn.settings(self.policy)

    @model_validator(mode="after")
    def _an_adapter_needs_lora(self) -> Self:
        if self.adapter is not None and self.settings.lora is None:
            raise ValueError(
                f"adapter {self.adapter} is given but settings.lora is None: describe the adapter"
                " there"
            )
        return self


class StepMetrics(_Frozen):
    """One optimizer step, over all processes.

    Token means are over the sampled tokens of the datums that were computed; None if none was.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    step: int
    loss: float = Field(
        description="with the denominator of the loss type; KL and entropy bonus included"
    )
    policy_loss: float = Field(description="the loss without beta * KL and entropy bonus")
    kl: float | None = Field(description="token mean, nats; None at beta 0")
    entropy: float | None = Field(description="token mean, nats")
    mean_ratio: float | None = Field(
        description=(
            "token mean of rho; like all `sampler_`... None for SFT and preferences, whose rows may"
            " be of another sampler or of nobody"
        )
    )
    sampler_kl: float | None = Field(
        default=None,
        description=(
            "token mean of rho - log rho - 1 (k3), nats; at the first step, of trainer and engine"
        ),
    )
    sampler_far: float | None = Field(
        default=None, description="share of tokens with rho above 2 or below 1/2"
    )
    sampler_furthest: float | None = Field(default=None, description="largest |log rho| of a token")
    clip_fraction: float | None = Field(
        description="share of tokens outside the clip range on the side that matters"
    )
    clip_fraction_low: float | None
    clip_fraction_high: float | None
    margin: float | None = Field(
        default=None, description="pair mean of the margin m, nats; None if not of preferences"
    )
    preferred: float | None = Field(
        default=None, description="share of pairs with a margin above 0"
    )
    chosen_reward: float | None = Field(
        default=None, description="pair mean of beta times the chosen reply's log-ratio, nats"
    )
    rejected_reward: float | None = Field(
        default=None, description="the same of the rejected reply"
    )
    teacher_gap: float | None = Field(
        default=None,
        description=(
            "mean of log p - log p_teacher over sampled tokens, nats, with the loss type's"
            " denominator; None if not of distillation"
        ),
    )
    grad_norm: float = Field(description="before clipping")
    learning_rate: float
    num_datums: int
    num_tokens: int = Field(description="sampled tokens")
    num_skipped: int = Field(
        default=0,
        description=(
            "datums of advantage 0, without KL or entropy bonus: they have no gradient, are not"
            " computed, and count in the denominators"
        ),
    )
    duration_s: float
    peak_bytes: int | None = Field(
        default=None, description="of tensors on the first GPU; of the process without one"
    )


class RowScore(_Frozen):
    """The trainer's scores of a row of the batch: sums of its sampled tokens' natural
    log-probabilities."""

    row: int
    logprob: float = Field(description="under the trained policy")
    before: float | None = Field(
        default=None,
        description="under the policy before the update; None if it went on from a checkpoint",
    )


class UpdateResult(_Frozen):
    """The result of an update.

    `policy` is an HF folder, or a PEFT folder if an adapter was trained.
    """

    policy: Path
    optimizer_state: Path
    state_is_written: bool = True
    steps: tuple[StepMetrics, ...]
    num_datums: int
    num_tokens: int
    duration_s: float
    probed: tuple[RowScore, ...] = ()


class NonFiniteUpdateError(RuntimeError):
    """A loss or gradient was NaN or infinite, and nothing was written. The attributes say where.

    Attributes: step (1-based), loss, grad_norm, rollout_ids (the rollouts in micro-batches of
    non-finite loss; empty if only the gradient was not finite).
    """

    def __init__(self, step: int, loss: float, grad_norm: float, rollout_ids: list[str]) -> None:
        self.step = step
        self.loss = loss
        self.grad_norm = grad_norm
        self.rollout_ids = rollout_ids
        named = ", ".join(rollout_ids[:8])
        if len(rollout_ids) > 8:
            named += ", ..."
        super().__init__(
            f"optimizer step {step}: loss {loss}, gradient norm {grad_norm}; nothing was written. "
            f"Rollouts of the micro-batches at fault: {named or 'none, only the gradient'}"
        )

    def __reduce__(self):
        return type(self), (self.step, self.loss, self.grad_norm, self.rollout_ids)
