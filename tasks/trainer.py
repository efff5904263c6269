"""Update a policy by TRL's GRPO on rollouts that were generated, scored and stored before.

TRL keeps the loss, clipping, KL, LoRA, mixed precision and Accelerate's DDP and FSDP; this file gives it the stored
tensors in place of generation and rewards. Ways to run: `train(job)`, any number of times in one process;
`python -m tasks.trainer JOB.json`; the same under `torchrun --nproc-per-node N -m tasks.trainer JOB.json` (on CPU with
ACCELERATE_USE_CPU=true) or `accelerate launch`. The command line leaves the result in `OUT/result.json`.
"""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    sys.modules.setdefault("vllm", None)  # type: ignore[arg-type]  # halves TRL's import; nothing is generated here
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import json
import math
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, PeftConfig, load_peft_weights, set_peft_model_state_dict
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.trainer_callback import PrinterCallback
from transformers.utils.logging import disable_progress_bar
from trl.trainer import utils as trl_utils
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from tasks.datums import Datums, check_datums, micro_batches, plan, read_datums
from tasks.grpo import GRPOSettings, LoRASettings, NonFiniteUpdate, StepMetrics, UpdateJob, UpdateResult

OPTIMIZER_FILE = "optimizer.pt"
KEPT_FILES = (
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.jinja",
)


# Without Triton TRL's head scores every position, to give compilers fixed shapes: a quarter of a step on CPU.
trl_utils._use_triton = lambda device: True
disable_progress_bar()


def train(job: UpdateJob) -> UpdateResult:
    """Train `job.policy` on `job.batch` and write the new policy and optimizer state under `job.out`.

    Every process of a distributed run calls this and gets the result; the first one writes. The caller publishes
    `job.out`, which this makes: `policy/` (HF or PEFT folder) and `optimizer/`.

    Raises:
        ValueError: a bad batch, path or setting, before any weights are loaded.
        NonFiniteUpdate: a loss or gradient was not finite; nothing was written.
    """
    started = time.perf_counter()
    datums = read_datums(job.batch)
    check_job(job, datums)
    trainer = build_trainer(job, datums)
    trainer.train()
    policy, optimizer = job.out / "policy", job.out / "optimizer"
    trainer.save_policy(policy)
    trainer.save_optimizer(optimizer)
    if trainer.args.should_save:
        _finish_policy_folder(policy, job)
    trainer.accelerator.wait_for_everyone()
    return UpdateResult(
        policy=policy,
        optimizer_state=optimizer,
        steps=tuple(trainer.steps),
        num_datums=len(datums),
        num_tokens=int(datums.num_tokens.sum()),
        duration_s=time.perf_counter() - started,
    )


def check_job(job: UpdateJob, datums: Datums) -> None:
    """Refuse what cannot work, before weights are loaded.

    Raises:
        ValueError: saying what, which and what to do.
    """
    folders = {"policy": job.policy, "adapter": job.adapter, "optimizer_state": job.optimizer_state}
    if job.settings.beta:
        folders["reference"] = job.reference
    for name, folder in folders.items():
        if folder is not None and not folder.is_dir():
            raise ValueError(f"{name} {folder}: no such folder")
    if job.out.exists() and any(job.out.iterdir()):
        raise ValueError(f"out {job.out} is not empty: give a fresh folder")
    if job.settings.lora and job.settings.beta and job.policy.resolve() != job.reference.resolve():
        raise ValueError(
            f"an adapter's KL reference is its base with the adapter off, but the base {job.policy} is not the "
            f"reference {job.reference}: train the adapter on the reference, train full weights, or set beta to 0"
        )
    config = AutoConfig.from_pretrained(job.policy).get_text_config()
    check_datums(datums, vocab_size=config.vocab_size, max_tokens=config.max_position_embeddings)


def build_trainer(job: UpdateJob, datums: Datums) -> StoredRolloutsTrainer:
    """Load the weights and lay the stored rows out as the micro-batches of this process."""
    settings = job.settings
    args = grpo_config(settings, job.out, num_datums=len(datums))
    layout = plan(
        datums,
        optimizer_steps=settings.optimizer_steps,
        micro_batch_size=settings.micro_batch_size,
        num_processes=args.world_size,
        by_length=settings.loss_type != "bnpo",  # bnpo weighs micro-batches alike, so lengths must not sort them
    )
    constant = settings.max_completion_tokens or 1
    batches = micro_batches(datums, layout, args.process_index, settings.loss_type, constant)
    # A trained weight kept in bfloat16 would round away updates of 1e-6; a frozen base may be bfloat16.
    dtype = settings.dtype if settings.lora else "float32"
    model = AutoModelForCausalLM.from_pretrained(job.policy, dtype=dtype, attn_implementation=settings.attention)
    if not settings.lora:
        model.config._name_or_path = str(job.reference)  # where TRL loads the KL reference from
    trainer = StoredRolloutsTrainer(
        model=model,
        reward_funcs=_never_called,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [""]}),
        processing_class=AutoTokenizer.from_pretrained(job.policy),
        peft_config=_lora_config(settings.lora, job.adapter),
        batches=batches,
        optimizer_state=job.optimizer_state,
    )
    if job.adapter:
        # Given as weights, not as a PeftModel: TRL would take the resumed adapter itself for the reference.
        set_peft_model_state_dict(trainer.model, load_peft_weights(str(job.adapter), device="cpu"))
    return trainer


def _never_called(**_: Any) -> list[float]:
    raise AssertionError("advantages are stored: no reward is computed here")


def _lora_config(lora: LoRASettings | None, adapter: Path | None) -> PeftConfig | None:
    if lora is None:
        return None
    if adapter is None:
        targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
        return LoraConfig(
            r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM"
        )
    config = PeftConfig.from_pretrained(str(adapter))
    if (config.r, config.lora_alpha) != (lora.rank, lora.alpha):
        raise ValueError(
            f"adapter {adapter} has rank {config.r}, alpha {config.lora_alpha}; settings.lora says {lora.rank}, "
            f"{lora.alpha}: make them agree"
        )
    config.inference_mode = False
    return config


def grpo_config(settings: GRPOSettings, out: Path, *, num_datums: int) -> GRPOConfig:
    """TRL's arguments. Its own defaults that would change the result are all named."""
    cuda = torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_CPU", "").lower() != "true"
    args = GRPOConfig(
        output_dir=str(out),
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused" if cuda else "adamw_torch",
        weight_decay=settings.weight_decay,
        adam_beta1=settings.adam_beta1,
        adam_beta2=settings.adam_beta2,
        adam_epsilon=settings.adam_epsilon,
        max_grad_norm=settings.max_grad_norm,
        loss_type=settings.loss_type,
        epsilon=settings.epsilon_low,
        epsilon_high=settings.epsilon_high,
        delta=settings.dual_clip,
        beta=settings.beta,
        use_bias_correction_kl=settings.use_bias_correction_kl,
        importance_sampling_level=settings.importance_sampling_level,
        temperature=settings.temperature,
        max_completion_length=settings.max_completion_tokens or 1,
        num_generations=2,  # TRL refuses 1; advantages are given, so it is not used
        steps_per_generation=2,
        max_steps=settings.optimizer_steps,
        per_device_train_batch_size=settings.micro_batch_size,
        bf16=settings.dtype == "bfloat16",
        # of the reference, which else has the policy's; a policy that is passed as an object warns of this argument
        model_init_kwargs={"dtype": "bfloat16"} if settings.dtype == "bfloat16" and not settings.lora else None,
        disable_dropout=True,
        gradient_checkpointing=settings.gradient_checkpointing,
        use_cpu=not cuda,
        seed=settings.seed,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    mini_batch = -(-num_datums // settings.optimizer_steps)
    args.gradient_accumulation_steps = -(-mini_batch // (settings.micro_batch_size * args.world_size))
    args.steps_per_generation = args.gradient_accumulation_steps  # one generation batch a step: see dapo in TRL
    return args


class StoredRolloutsTrainer(GRPOTrainer):
    """GRPOTrainer whose batches are stored rows. `steps` collects one StepMetrics an optimizer step."""

    def __init__(self, *, batches: list[dict], optimizer_state: Path | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.remove_callback(PrinterCallback)
        if self.is_deepspeed_enabled:
            raise ValueError("optimizer state is not carried over under DeepSpeed: launch with FSDP or DDP")
        if self.is_fsdp_enabled:
            self.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")  # one file, any world size later
        self._batches, self._optimizer_state = batches, optimizer_state
        self.steps: list[StepMetrics] = []
        self._sums = torch.zeros(3, device=self.accelerator.device)  # of rho, weighted KL, losses that are not finite
        self._done: list[dict] = []
        self._at_fault: list[str] = []
        self._logps = self._sampled = torch.empty(0)
        self._step_started = time.perf_counter()

    def _send_telemetry(self) -> None:
        """Nothing is sent."""

    def get_train_dataloader(self) -> Any:
        return _Batches(self._batches)

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        prepared = super()._prepare_for_training(*args, **kwargs)
        if self._optimizer_state is not None:
            self._load_optimizer(self._optimizer_state)
        self._step_started = time.perf_counter()
        return prepared

    def _prepare_inputs(self, generation_batch: dict) -> dict:
        inputs = self._prepare_input(generation_batch)
        self._sampled = inputs["tool_mask"] == 1
        if self.beta:
            inputs["ref_per_token_logps"] = self._reference_logps(inputs)
        return inputs

    @torch.no_grad()
    def _reference_logps(self, inputs: dict) -> torch.Tensor:
        """Log-probabilities under M0, (B, T): the reference weights, or the policy with its adapter off."""
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        model = self.model if self.ref_model is None else self.ref_model
        off = self.accelerator.unwrap_model(self.model).disable_adapter() if self.ref_model is None else nullcontext()
        with off:
            return self._get_per_token_logps_and_entropies(model, ids, mask, inputs["completion_ids"].size(1))[0]

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        """As TRL's, but the head scores sampled tokens only, not those a prompt or a tool put between: 0 there."""
        labels = torch.full_like(input_ids, -100)
        labels[:, -logits_to_keep:] = input_ids[:, -logits_to_keep:].masked_fill(~self._sampled, -100)
        with self.accelerator.autocast():
            outputs = model(input_ids=input_ids, attention_mask=attention_mask, labels=labels, fused_lm_head=True)
        self._logps = outputs.log_probs[:, -logits_to_keep:]
        entropy = None if outputs.entropy is None else outputs.entropy[:, -logits_to_keep:]
        return self._logps, entropy, None

    def _compute_loss(self, model: Any, inputs: dict) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs) * inputs["loss_scale"]
        self._logps = self._logps.detach()
        self._observe(inputs, loss.detach())
        return loss

    def _observe(self, inputs: dict, loss: torch.Tensor) -> None:
        """Add what TRL does not report of this micro-batch."""
        mask = inputs["tool_mask"]
        ratio = torch.exp(self._logps - inputs["old_per_token_logps"]).masked_fill(mask == 0, 0)
        kl = torch.zeros_like(ratio)
        if self.beta:
            x = (inputs["ref_per_token_logps"] - self._logps).masked_fill(mask == 0, 0)
            kl = (torch.exp(x) - x - 1) * (ratio if self.args.use_bias_correction_kl else 1)
        weighted = (kl * inputs["token_weight"]).sum()
        self._sums += torch.stack([ratio.sum(), weighted, (~loss.isfinite()).float()])
        self._done.append({"tokens": inputs["num_tokens"], "rows": inputs["num_rows"], "slots": len(mask)})
        if not loss.isfinite():
            self._at_fault += inputs["rollout_ids"]

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The last stop before the optimizer steps: all processes see the same sums and raise together."""
        norm = float(super()._get_grad_norm(model, grad_norm=grad_norm))
        self._sums = self.accelerator.reduce(self._sums, reduction="sum")
        if self._sums[2] > 0 or not math.isfinite(norm):
            loss = math.nan if self._sums[2] > 0 else float(self._tr_loss)
            raise NonFiniteUpdate(self.state.global_step + 1, loss, norm, self._at_fault)
        return norm

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Turn TRL's means over micro-batches into means over the step."""
        if "grad_norm" not in logs:  # the summary at the end
            return
        tokens = sum(done["tokens"] for done in self._done)
        rows = sum(done["rows"] for done in self._done)
        ratio, kl_in_loss, _ = self._sums.tolist()
        now = time.perf_counter()
        self.steps.append(
            StepMetrics(
                step=self.state.global_step,
                loss=logs["loss"],
                policy_loss=logs["loss"] - self.beta * kl_in_loss,
                kl=self._mean("kl", tokens, "tokens") if self.beta else None,
                entropy=self._mean("entropy", tokens, "tokens"),
                mean_ratio=ratio / max(tokens, 1),
                clip_fraction=self._clip_mean("region", tokens, rows),
                clip_fraction_low=self._clip_mean("low", tokens, rows),
                clip_fraction_high=self._clip_mean("high", tokens, rows),
                grad_norm=logs["grad_norm"],
                learning_rate=logs["learning_rate"],
                num_datums=rows,
                num_tokens=tokens,
                duration_s=now - self._step_started,
            )
        )
        self._step_started = now
        self._sums.zero_()
        self._done.clear()
        self._metrics["train"].clear()

    def _mean(self, name: str, total: int, weight: str) -> float:
        values = self._metrics["train"][name]
        return sum(v * done[weight] for v, done in zip(values, self._done, strict=True)) / max(total, 1)

    def _clip_mean(self, side: str, tokens: int, rows: int) -> float:
        """A share of tokens; at sequence level TRL's is one of rows, those of no weight among them but never clipped."""
        if self.importance_sampling_level == "token":
            return self._mean(f"clip_ratio/{side}_mean", tokens, "tokens")
        return self._mean(f"clip_ratio/{side}_mean", rows, "slots") * self.accelerator.num_processes

    def save_policy(self, folder: Path) -> None:
        """Write the weights as safetensors; under FSDP all processes take part."""
        self.processing_class = None  # its files are copied as they are
        self.save_model(str(folder))

    def save_optimizer(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self.is_fsdp_enabled:
            from accelerate.utils import save_fsdp_optimizer

            plugin = self.accelerator.state.fsdp_plugin
            save_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, str(folder))
        elif self.args.should_save:
            torch.save(self.optimizer.state_dict(), folder / OPTIMIZER_FILE)

    def _load_optimizer(self, folder: Path) -> None:
        """Moments and step counts come from `folder`; learning rate and decay stay those of this job."""
        ours = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        if self.is_fsdp_enabled:
            from accelerate.utils import load_fsdp_optimizer

            plugin = self.accelerator.state.fsdp_plugin
            load_fsdp_optimizer(plugin, self.accelerator, self.optimizer, self.model, str(folder))
        else:
            state = torch.load(folder / OPTIMIZER_FILE, map_location="cpu", weights_only=True)
            self.optimizer.load_state_dict(state)
        for group, mine in zip(self.optimizer.param_groups, ours, strict=True):
            group.update(mine)


class _Batches(list):
    """A list that Trainer takes for a data loader."""

    @property
    def dataset(self) -> list:
        return self


def _finish_policy_folder(folder: Path, job: UpdateJob) -> None:
    """Undo what Trainer adds to a policy: a pickle with local paths, and special tokens it aligned in the configs."""
    (folder / "training_args.bin").unlink(missing_ok=True)
    if job.settings.lora:
        return
    for file in {f for pattern in KEPT_FILES for f in job.policy.glob(pattern) if f.is_file()}:
        shutil.copyfile(file, folder / file.name)
    config = json.loads((job.policy / "config.json").read_text())
    config.pop("torch_dtype", None)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": "float32"}, indent=2) + "\n")


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m tasks.trainer JOB.json", file=sys.stderr)
        return 2
    job = UpdateJob.model_validate_json(Path(argv[0]).read_text())
    result = train(job)
    if int(os.environ.get("RANK", "0")) == 0:
        (job.out / "result.json").write_text(result.model_dump_json(indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
