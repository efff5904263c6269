# TRL, PEFT and Accelerate type their trainers loosely.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false, reportCallIssue=false, reportReturnType=false
# pyright: reportOperatorIssue=false, reportPrivateImportUsage=false
"""TRL's GRPOTrainer on stored rows: it neither generates rollouts nor computes rewards.

TRL computes the loss, except for those of preferences and distillation, which are in
`tasks.training.preference` and `tasks.training.distillation`.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from accelerate.utils import gather, gather_object
from peft import PeftModel
from transformers.trainer_callback import PrinterCallback
from trl.trainer import utils as trl_utils
from trl.trainer.grpo_trainer import GRPOTrainer

from tasks.training import head, kept_state, policy_files, state
from tasks.training.checkpoint import Checkpoint
from tasks.training.distillation import reverse_kl
from tasks.training.grpo import GRPOSettings, NonFiniteUpdateError, RowScore, StepMetrics
from tasks.training.preference import PairSums, preference_loss
from tasks.training.shared_prompts import PackedRow, understand_packed_rows

# a token is far if the policy finds it at least twice, or at most half, as likely as the sampler
FAR = math.log(2)
# Without Triton, TRL's head scores every position to give compilers fixed shapes, which takes a
# quarter of a step's time on CPUs.
trl_utils._use_triton = lambda device: True
understand_packed_rows()


@dataclass(frozen=True)
class StepSums:
    """Sums over the sampled tokens of an optimizer step; each is a tensor of shape ()."""

    ratio: torch.Tensor  # rho
    sampler_kl: torch.Tensor  # k3 of sampler and policy
    far: torch.Tensor  # the number of far tokens
    kl: torch.Tensor  # k3 of policy and reference
    # the weighted term of the loss: the KL to the reference; -A * log p in SFT; the gap to the
    # teacher in distillation
    weighted: torch.Tensor
    bonus: torch.Tensor  # the weighted entropy of the loss
    non_finite: torch.Tensor  # the number of losses (not tokens) that are not finite

    @classmethod
    def zero(cls, device: torch.device) -> Self:
        """No tokens."""
        return cls(*torch.zeros(7, device=device))

    def __add__(self, other: StepSums) -> StepSums:
        return StepSums(*(self.stacked + other.stacked))

    @property
    def stacked(self) -> torch.Tensor:
        """The sums in the order of the fields, (7,)."""
        return torch.stack(
            [
                self.ratio,
                self.sampler_kl,
                self.far,
                self.kl,
                self.weighted,
                self.bonus,
                self.non_finite,
            ]
        )


class StoredRolloutsTrainer(GRPOTrainer):
    """GRPOTrainer whose batches are stored rows.

    `steps` collects one StepMetrics per optimizer step. The rows `probed`, each a micro-batch, are
    scored before and after the update (`row_scores`). The optimizer continues from a `share` in
    memory, else from the state in the folder `optimizer_state`, else from a fresh state.

    With `on_policy`, the policy's own log-probabilities serve as the old ones, as in TRL if none
    are given; the stored ones then only measure the ratio. SFT (the objective "likelihood") does
    the same in every optimizer step: rho * A then has the gradient of A * log p, and the reported
    loss is the mean of -A * log p. Preferences and distillation have their own losses.
    """

    def __init__(
        self,
        *,
        batches: list[dict],
        probed: dict[int, dict],
        settings: GRPOSettings,
        optimizer_state: Path | None,
        share: state.Share | None,
        steps_done: Sequence[StepMetrics],
        checkpoints: Path | None,
        checkpoint_s: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # TRL got 0 if the reference's log-probabilities are stored, so that it loads no reference
        self.beta = settings.beta
        self._bonus_coef = settings.entropy_coef  # TRL got 0: its mean is over micro-batches
        self.remove_callback(PrinterCallback)
        # TRL gathers a number per row to report extremes that nothing here reads. If processes have
        # different numbers of answers to a prompt, NCCL would wait forever.
        self.accelerator.gather = _own
        if self.is_deepspeed_enabled:
            raise ValueError(
                "optimizer state is not carried over under DeepSpeed: launch with FSDP or DDP"
            )
        if self.ref_model is not None:
            kept_state.fill_reference(
                self.ref_model, self.model.config._name_or_path, self.ref_model.dtype
            )
        self._batches = batches
        self._probed = probed
        self._scores_before: dict[int, float] = {}
        self._export_dtype = getattr(torch, settings.export_dtype)
        self._optimizer_state = optimizer_state
        self._share = share
        self._sft = settings.objective == "likelihood"
        self._on_policy = settings.on_policy or self._sft
        self._of_pairs = settings.objective == "preference"
        self._of_teacher = settings.objective == "distillation"
        # the rows of SFT and of preferences may come from other policies, or from none
        self._is_of_sampler = settings.objective in ("clipped", "distillation")
        self._pairs = PairSums.zero(self.accelerator.device)
        self.steps: list[StepMetrics] = list(steps_done)
        self._num_done = len(steps_done)
        self._checkpoints = checkpoints
        self._checkpoint_s = checkpoint_s
        self._kept_at = time.monotonic()
        self._sums = StepSums.zero(self.accelerator.device)
        self._furthest = torch.zeros(1, device=self.accelerator.device)
        self._done: list[dict] = []
        self._at_fault: list[str] = []
        self._logps = torch.empty(0)
        self._entropy: torch.Tensor | None = None
        self._bonus = torch.zeros((), device=self.accelerator.device)
        self._sampled = torch.empty(0)
        self._packed: PackedRow | None = None
        self._step_started = time.perf_counter()

    def _send_telemetry(self) -> None:
        """Send nothing."""

    def get_train_dataloader(self) -> Any:
        return _Batches(self._batches)

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        prepared = super()._prepare_for_training(*args, **kwargs)
        if self._share is not None:
            self._share.fill(self.optimizer)
            self._share = None
        elif self._optimizer_state is not None:
            state.load(self.optimizer, self._optimizer_state)
        if not self._num_done:
            self._scores_before = self._scores()
        self._step_started = time.perf_counter()
        return prepared

    def _prepare_inputs(self, generation_batch: dict) -> dict:
        inputs = self._prepare_input(generation_batch)
        self._sampled = inputs["tool_mask"] == 1
        self._packed = None
        answer_tokens = inputs.get("answer_tokens")
        if answer_tokens:
            self._packed = PackedRow.of(inputs["prompt_ids"].size(1), answer_tokens)
        if self.beta and "ref_per_token_logps" not in inputs:
            inputs["ref_per_token_logps"] = self._reference_logps(inputs)
        return inputs

    def row_scores(self) -> tuple[RowScore, ...]:
        """The scores of the probed rows, after the update; all processes score the same rows."""
        return tuple(
            RowScore(row=row, logprob=score, before=self._scores_before.get(row))
            for row, score in self._scores().items()
        )

    @torch.no_grad()
    def _scores(self) -> dict[int, float]:
        """The sums of the probed rows' log-probabilities under the current policy."""
        scores = {}
        for row, inputs in self._probed.items():
            prepared = self._prepare_input(inputs)
            self._sampled = prepared["tool_mask"] == 1
            self._packed = None
            scores[row] = float(self._token_logps(self.model, prepared).double().sum())
        return scores

    def _token_logps(self, model: Any, rows: dict) -> torch.Tensor:
        """Log-probabilities of the rows' sampled tokens under `model`, (B, T); 0 at other tokens.

        `_sampled` and `_packed` must be those of the rows.
        """
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        width = rows["completion_ids"].size(1)
        return self._get_per_token_logps_and_entropies(model, ids, mask, width)[0]

    @torch.no_grad()
    def _reference_logps(self, inputs: dict) -> torch.Tensor:
        """Log-probabilities under the reference policy, (B, T).

        The reference is a separate model, or the policy with its adapter disabled.
        """
        if self.ref_model is None:
            model = self.model
            adapter_off = self.accelerator.unwrap_model(self.model).disable_adapter()
        else:
            model = self.ref_model
            adapter_off = nullcontext()
        with adapter_off:
            return self._token_logps(model, inputs)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        **_: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """As TRL's, but the head scores only sampled tokens.

        Tokens between them that come from a prompt or a tool get 0.
        """
        labels = torch.full_like(input_ids, -100)
        labels[:, -logits_to_keep:] = input_ids[:, -logits_to_keep:].masked_fill(
            ~self._sampled, -100
        )
        head.fit_tiles(labels)
        entropy = None
        packed = self._packed
        if packed:
            with self.accelerator.autocast():
                outputs = model(**packed.pack(input_ids, labels), packed=packed, fused_lm_head=True)
            assert packed.attended, (
                f"{type(model).__name__} does not pass arguments on to its attention"
            )
            logps = packed.unpack(outputs.log_probs, logits_to_keep)
            if outputs.entropy is not None:
                entropy = packed.unpack(outputs.entropy, logits_to_keep)
        else:
            with self.accelerator.autocast():
                outputs = model(
                    input_ids=input_ids,
                    attention_mask=attention_mask,
                    labels=labels,
                    fused_lm_head=True,
                )
            logps = outputs.log_probs[:, -logits_to_keep:]
            if outputs.entropy is not None:
                entropy = outputs.entropy[:, -logits_to_keep:]
        self._logps = logps
        self._entropy = entropy
        return logps, entropy, None

    def _compute_loss(self, model: Any, inputs: dict) -> torch.Tensor:
        if self._of_pairs:
            loss = self._preference_loss(model, inputs)
        elif self._of_teacher:
            loss = self._distillation_loss(model, inputs)
        else:
            loss = self._clipped_loss(model, inputs)
        self._logps = self._logps.detach()
        self._entropy = None
        self._observe(inputs, loss.detach())
        return loss

    def _clipped_loss(self, model: Any, inputs: dict) -> torch.Tensor:
        """TRL's loss minus the entropy bonus: this micro-batch's part of the optimizer step's
        mean."""
        trl_inputs = dict(inputs)
        if self._on_policy:
            trl_inputs.pop("old_per_token_logps", None)
        loss = super()._compute_loss(model, trl_inputs) * inputs["loss_scale"]
        if not self._bonus_coef:
            return loss
        assert self._entropy is not None
        entropy = self._entropy.masked_fill(~self._sampled, 0)
        bonus = (entropy * inputs["token_weight"]).sum()
        self._bonus = bonus.detach()
        # processes average their gradients
        return loss - self._bonus_coef * bonus * self.accelerator.num_processes

    def _distillation_loss(self, model: Any, inputs: dict) -> torch.Tensor:
        """The reverse KL to the teacher: this micro-batch's part of the optimizer step's mean."""
        logps = self._token_logps(model, inputs)
        terms = reverse_kl(logps, inputs["ref_per_token_logps"]).masked_fill(~self._sampled, 0)
        # processes average their gradients
        return (terms * inputs["token_weight"]).sum() * self.accelerator.num_processes

    def _preference_loss(self, model: Any, inputs: dict) -> torch.Tensor:
        """DPO's loss: this micro-batch's part of the mean over the optimizer step's pairs."""
        logps = self._token_logps(model, inputs)
        loss_sum, sums = preference_loss(
            logps,
            inputs["ref_per_token_logps"],
            sampled=self._sampled,
            is_real=inputs["advantages"][::2] != 0,
            beta=self.beta,
        )
        self._pairs += sums
        # processes average their gradients
        num_pairs = inputs["step_rows"] / 2
        return loss_sum * self.accelerator.num_processes / num_pairs

    def _observe(self, inputs: dict, loss: torch.Tensor) -> None:
        """Add the sums of this micro-batch that TRL does not report."""
        unsampled = inputs["tool_mask"] == 0
        log_ratio = (self._logps - inputs["old_per_token_logps"]).masked_fill(unsampled, 0)
        ratio = torch.exp(log_ratio).masked_fill(unsampled, 0)
        k3 = torch.exp(log_ratio) - log_ratio - 1
        far = log_ratio.abs() > FAR
        kl = torch.zeros_like(ratio)
        # a term of the loss, (B, T), whose mean `log` reports
        if self._sft:
            term = (-inputs["advantages"][:, None] * self._logps).masked_fill(unsampled, 0)
        elif self._of_teacher:
            term = (self._logps - inputs["ref_per_token_logps"]).masked_fill(unsampled, 0)
        elif self.beta and not self._of_pairs:
            x = (inputs["ref_per_token_logps"] - self._logps).masked_fill(unsampled, 0)
            kl = torch.exp(x) - x - 1
            term = kl
            if self.args.use_bias_correction_kl:
                term = kl * self._kl_factor(log_ratio)
        else:
            term = kl
        self._sums += StepSums(
            ratio=ratio.sum(),
            sampler_kl=k3.sum(),
            far=far.sum().float(),
            kl=kl.sum(),
            weighted=(term * inputs["token_weight"]).sum(),
            bonus=self._bonus,
            non_finite=(~loss.isfinite()).float(),
        )
        self._furthest = torch.maximum(self._furthest, log_ratio.abs().max())
        self._done.append(
            {
                "tokens": inputs["num_tokens"],
                "rows": inputs["num_rows"],
                "slots": inputs["num_slots"],
                "step_tokens": inputs["step_tokens"],
                "step_rows": inputs["step_rows"],
            }
        )
        if not loss.isfinite():
            self._at_fault += inputs["rollout_ids"]

    def _kl_factor(self, log_ratio: torch.Tensor) -> torch.Tensor:
        """The factor by which `use_bias_correction_kl` multiplies KL terms, (B, T) or (B, 1): rho
        as in TRL's loss, from `log_ratio`, which is 0 at tokens that were not sampled."""
        if self._on_policy:
            return torch.ones_like(log_ratio)
        if self.importance_sampling_level == "sequence":
            num_tokens = self._sampled.sum(dim=1, keepdim=True).clamp(min=1)
            return torch.exp(log_ratio.sum(dim=1, keepdim=True) / num_tokens)
        return torch.exp(log_ratio)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Reject a non-finite loss or gradient, at the last point before the optimizer steps.

        All processes see the same sums, and raise NonFiniteUpdateError together.
        """
        norm = float(super()._get_grad_norm(model, grad_norm=grad_norm))
        self._sums = StepSums(*self.accelerator.reduce(self._sums.stacked, reduction="sum"))
        self._furthest = gather(self._furthest).max().reshape(1)
        self._pairs = PairSums(self.accelerator.reduce(self._pairs.values, reduction="sum"))
        if self._sums.non_finite > 0 or not math.isfinite(norm):
            loss = float(self._tr_loss)
            if self._sums.non_finite > 0:
                loss = math.nan
            step = self._num_done + self.state.global_step + 1
            at_fault = gather_object(self._at_fault)
            raise NonFiniteUpdateError(step, loss, norm, at_fault)
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Turn TRL's means over micro-batches into means over the step."""
        if "grad_norm" not in logs:  # the summary at the end
            return
        tokens = sum(done["tokens"] for done in self._done)
        rows = sum(done["rows"] for done in self._done)
        step = self._done[-1]
        sums = self._sums
        weighted = float(sums.weighted)
        loss = weighted if self._sft else logs["loss"]
        now = time.perf_counter()
        mean_ratio = sampler_kl = sampler_far = sampler_furthest = None
        if tokens and self._is_of_sampler:
            mean_ratio = float(sums.ratio) / tokens
            sampler_kl = float(sums.sampler_kl) / tokens
            sampler_far = float(sums.far) / tokens
            sampler_furthest = float(self._furthest)
        kl = None
        if tokens and self.beta and not self._of_pairs:
            kl = float(sums.kl) / tokens
        self.steps.append(
            StepMetrics(
                step=self._num_done + self.state.global_step,
                loss=loss,
                policy_loss=loss - self.beta * weighted + self._bonus_coef * float(sums.bonus),
                kl=kl,
                entropy=self._mean("entropy", tokens, "tokens"),
                mean_ratio=mean_ratio,
                sampler_kl=sampler_kl,
                sampler_far=sampler_far,
                sampler_furthest=sampler_furthest,
                clip_fraction=self._clip_mean("region", tokens, rows),
                clip_fraction_low=self._clip_mean("low", tokens, rows),
                clip_fraction_high=self._clip_mean("high", tokens, rows),
                margin=self._pairs.margin,
                preferred=self._pairs.preferred,
                chosen_reward=self._pairs.chosen_reward,
                rejected_reward=self._pairs.rejected_reward,
                teacher_gap=weighted if self._of_teacher else None,
                grad_norm=logs["grad_norm"],
                learning_rate=logs["learning_rate"],
                num_datums=step["step_rows"],
                num_tokens=step["step_tokens"],
                num_skipped=step["step_rows"] - rows,
                duration_s=now - self._step_started,
                peak_bytes=_peak_bytes(),
            )
        )
        self._step_started = now
        self._sums = StepSums.zero(self.accelerator.device)
        self._furthest.zero_()
        self._pairs.values.zero_()
        self._done.clear()
        self._metrics["train"].clear()
        self._keep_step()

    def _mean(self, name: str, total: int, weight: str) -> float | None:
        """TRL's means over micro-batches, weighted by their `weight`, over `total`.

        None if TRL did not measure them, as in all updates on preferences or a teacher.
        """
        values = self._metrics["train"][name]
        if not total or not values:
            return None
        return sum(v * done[weight] for v, done in zip(values, self._done, strict=True)) / total

    def _clip_mean(self, side: str, tokens: int, rows: int) -> float | None:
        """The clipped share of tokens, or of rows at sequence level.

        At sequence level TRL's mean includes rows without weight, which are never clipped.
        """
        if self.importance_sampling_level == "token":
            return self._mean(f"clip_ratio/{side}_mean", tokens, "tokens")
        return self._mean(f"clip_ratio/{side}_mean", rows, "slots")

    def _keep_step(self) -> None:
        """Write a checkpoint if the last one is old and another optimizer step follows."""
        if self._checkpoints is None or self.state.global_step >= self.args.max_steps:
            return
        is_old = torch.tensor(
            float(time.monotonic() - self._kept_at >= self._checkpoint_s),
            device=self.accelerator.device,
        )
        # clocks differ: processes must take the same branch
        if self.accelerator.reduce(is_old, reduction="sum") == 0:
            return
        number = self._num_done + self.state.global_step
        fresh = self._checkpoints / f"{number}.part"
        self.save_policy(fresh / "policy")
        self.save_optimizer(fresh / "optimizer")
        self._kept_at = time.monotonic()
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            Checkpoint.publish(fresh, number, self.steps)

    def save_policy(self, folder: Path) -> None:
        """Write the weights as safetensors; under FSDP all processes take part."""
        if self.is_fsdp_enabled:
            policy_files.write_sharded(self.model, folder, self._export_dtype, self.accelerator)
        elif self.args.should_save:
            dtype = self._export_dtype if self._rounds else None
            policy_files.write_whole(self.model, folder, dtype)

    def save_optimizer(self, folder: Path) -> None:
        """Write the optimizer state, with the float32 weights if the policy rounds them."""
        share = state.Share.of(self.optimizer, on_host=False)
        share.save(folder, writes=self.args.should_save, weights=self._rounds)

    def keep_optimizer(self, policy: Path) -> bool:
        """Keep the optimizer state in memory, to be written later.

        Returns False if there is no room.
        """
        return kept_state.keep_unwritten(
            self.optimizer, policy, writes=self.args.should_save, weights=self._rounds
        )

    @property
    def _rounds(self) -> bool:
        """Whether the exported policy rounds the trained weights."""
        return self._export_dtype != torch.float32 and not isinstance(self.model, PeftModel)


def _own(values: torch.Tensor) -> torch.Tensor:
    return values


def _peak_bytes() -> int:
    """The peak bytes of tensors on this process's GPU since the last step.

    Without a GPU, the peak memory of the process.
    """
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        return peak
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Batches(list):
    """A list that Trainer takes for a data loader."""

    @property
    def dataset(self) -> list:
        return self
