# TRL, PEFT and Accelerate type their trainers loosely.
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false
# pyright: reportOptionalMemberAccess=false
"""Update a policy with TRL on stored rollouts: GRPO, SFT, DPO, or distillation.

TRL handles the loss, clipping, KL, LoRA, mixed precision and Accelerate's DDP and FSDP;
`stored_rollouts` gives it the stored tensors in place of generation and rewards. Call `train(job)`
any number of times in one process, or run one of

    python -m tasks.training.trainer JOB.json
    accelerate launch -m tasks.training.trainer JOB.json
    torchrun --nproc-per-node N -m tasks.training.trainer JOB.json

(on CPU with ACCELERATE_USE_CPU=true). Over several nodes, torchrun also takes `--nnodes`,
`--node-rank`, `--master-addr` and `--master-port`, and all nodes need the job's folders at the same
paths. The command line leaves the result in `OUT/result.json`.
"""

from __future__ import annotations

import gc
import os
import sys

from tasks.processes.child_process import die_with_parent, leave

if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" in os.environ:
        die_with_parent()
    # halves TRL's import time; nothing is generated here
    sys.modules.setdefault("vllm", None)  # type: ignore[arg-type]
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, PeftConfig, load_peft_weights, set_peft_model_state_dict
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar
from trl.trainer.grpo_config import GRPOConfig

from tasks.training import head, kept_state, policy_files
from tasks.training.checkpoint import Checkpoint
from tasks.training.datums import (
    Datums,
    check_datums,
    check_pairs,
    check_reference_logprobs,
    collate,
    micro_batches,
    plan,
    read_datums,
)
from tasks.training.grpo import (
    RESULT_FILE,
    GRPOSettings,
    LoRASettings,
    StepMetrics,
    UpdateJob,
    UpdateResult,
)
from tasks.training.probes import probed_rows
from tasks.training.sharding import (
    SHARDED_BFLOAT16,
    move_no_empty_weights,
    shard_references_by_layer,
)
from tasks.training.state import Share
from tasks.training.stored_rollouts import StoredRolloutsTrainer

disable_progress_bar()
shard_references_by_layer()
move_no_empty_weights()
kept_state.keep_references()
head.give_float32_logits()
# transformers collects garbage before every update. Objects made by the imports are never garbage,
# and scanning them takes 0.2 s.
gc.freeze()


def train(job: UpdateJob) -> UpdateResult:
    """Train `job.policy` on `job.batch`; write the new policy and optimizer state under `job.out`.

    Every process of a distributed run calls this and gets the result. `job.out`, which the caller
    publishes, then has `policy/` (an HF or PEFT folder) and `optimizer/`.

    Raises:
        ValueError: a bad batch, path or setting; raised before any weights are loaded.
        NonFiniteUpdateError: a loss or gradient was not finite; nothing was written.
    """
    started = time.perf_counter()
    datums = read_datums(job.batch, job.reference_logprobs)
    check_job(job, datums)
    trainer = build_trainer(job, datums, Checkpoint.last(job.checkpoints))
    trainer.train()
    probed = trainer.row_scores()
    policy = job.out / "policy"
    optimizer = job.out / "optimizer"
    trainer.save_policy(policy)
    if trainer.args.should_save and not job.settings.lora:
        policy_files.finish(policy, job.policy, job.settings.export_dtype)
    trainer.accelerator.wait_for_everyone()
    is_unwritten = job.state_later and trainer.keep_optimizer(policy)
    if not is_unwritten:
        trainer.save_optimizer(optimizer)
        trainer.accelerator.wait_for_everyone()
        kept_state.keep(trainer.optimizer, policy, optimizer)
    return UpdateResult(
        probed=probed,
        policy=policy,
        optimizer_state=optimizer,
        state_is_written=not is_unwritten,
        steps=tuple(trainer.steps),
        num_datums=len(datums),
        num_tokens=int(datums.num_tokens.sum()),
        duration_s=time.perf_counter() - started,
    )


def check_job(job: UpdateJob, datums: Datums) -> None:
    """Reject a job that cannot work, before weights are loaded.

    Raises:
        ValueError: says what is wrong, where, and what to do.
    """
    folders = {"policy": job.policy, "adapter": job.adapter, "optimizer_state": job.optimizer_state}
    needs_reference = job.settings.beta and job.reference_logprobs is None
    if needs_reference:
        folders["reference"] = job.reference
    for name, folder in folders.items():
        if folder is not None and not folder.is_dir():
            raise ValueError(f"{name} {folder}: no such folder")
    if job.out.exists() and any(job.out.iterdir()):
        raise ValueError(f"out {job.out} is not empty: give a fresh folder")
    if job.settings.lora and needs_reference and job.policy.resolve() != job.reference.resolve():
        raise ValueError(
            f"an adapter's KL reference is its base with the adapter off, but the base {job.policy}"
            f" is not the reference {job.reference}: train the adapter on the reference, train full"
            " weights, or set beta to 0"
        )
    config = AutoConfig.from_pretrained(job.policy, **job.positions).get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if job.settings.shared_prompt_tokens and kinds != {"full_attention"}:
        raise ValueError(
            f"{job.policy} has layers of {', '.join(sorted(kinds))}: prompts can be shared by full"
            " attention only, set shared_prompt_tokens to null"
        )
    check_datums(datums, vocab_size=config.vocab_size, max_tokens=config.max_position_embeddings)
    if job.settings.objective == "preference":
        check_pairs(datums)
    if job.settings.objective == "distillation":
        if datums.reference_logprobs is None:
            raise ValueError(
                'objective "distillation" needs the teacher\'s log-probabilities of the batch: give'
                " them as reference_logprobs"
            )
        check_reference_logprobs(datums)


def build_trainer(
    job: UpdateJob, datums: Datums, done: Checkpoint | None = None
) -> StoredRolloutsTrainer:
    """Load the weights, and arrange the stored rows in this process's micro-batches.

    Steps that the checkpoint `done` already has are left out.
    """
    settings = job.settings
    args = grpo_config(settings, job.out, job.positions)
    if job.reference_logprobs:
        args.beta = 0.0
    adapter = job.adapter
    optimizer_state = job.optimizer_state
    steps_done: list[StepMetrics] = []
    if done:
        steps_done = done.steps
        optimizer_state = done.optimizer
        if settings.lora:
            adapter = done.policy
    args.max_steps -= len(steps_done)
    layout = plan(
        datums,
        optimizer_steps=settings.optimizer_steps,
        micro_batch_size=settings.micro_batch_size,
        num_processes=args.world_size,
        # bnpo weights micro-batches equally, so their members matter
        by_length=settings.loss_type != "bnpo" or settings.objective == "preference",
        skip_zero_advantages=settings.skips_zero_advantages,
        shared_prompt_tokens=settings.shared_prompt_tokens,
        pairs=settings.objective == "preference",
    )
    args.gradient_accumulation_steps = layout.accumulation_steps
    # one generation batch per step: see dapo in TRL
    args.steps_per_generation = layout.accumulation_steps
    constant = settings.max_completion_tokens or 1
    probed = probed_rows(datums, settings.temperature)
    batches = micro_batches(datums, layout, args.process_index, settings.loss_type, constant)
    model, share = _start(job, done, adapter)
    trainer = StoredRolloutsTrainer(
        model=model,
        reward_funcs=_never_called,
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [""]}),
        processing_class=AutoTokenizer.from_pretrained(job.policy),
        peft_config=_lora_config(settings.lora, adapter),
        batches=batches[len(steps_done) * layout.accumulation_steps :],
        probed={row: collate(datums, [row], row) for row in probed},
        settings=settings,
        optimizer_state=optimizer_state,
        share=share,
        steps_done=steps_done,
        checkpoints=job.checkpoints,
        checkpoint_s=job.checkpoint_s,
    )
    if adapter and not share:
        # As weights, not as a PeftModel: TRL would take the resumed adapter itself for the
        # reference.
        set_peft_model_state_dict(trainer.model, load_peft_weights(str(adapter), device="cpu"))
    return trainer


def _start(
    job: UpdateJob, done: Checkpoint | None, adapter: Path | None
) -> tuple[Any, Share | None]:
    """The model, and the share in memory that will fill it.

    Weights that are in memory are not read from disk.
    """
    settings = job.settings
    weights = job.policy
    if done and not settings.lora:
        weights = done.policy
    # A trained weight kept in bfloat16 would round away updates of 1e-6; a frozen base may be
    # bfloat16.
    dtype = settings.dtype if settings.lora else "float32"
    share = None
    if not done:
        trained = adapter if settings.lora else weights
        share = kept_state.take(trained, job.optimizer_state)
    if share and not settings.lora:
        model = kept_state.empty_model(weights, dtype, settings.attention, job.positions)
    else:
        model = AutoModelForCausalLM.from_pretrained(
            weights, dtype=dtype, attn_implementation=settings.attention, **job.positions
        )
    if not settings.lora:
        model.config._name_or_path = str(job.reference)  # where TRL loads the KL reference from
    return model, share


def _never_called(**_: Any) -> list[float]:
    raise AssertionError("advantages are stored: no reward is computed here")


def _lora_config(lora: LoRASettings | None, adapter: Path | None) -> PeftConfig | None:
    if lora is None:
        return None
    if adapter is None:
        return LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            # PEFT takes "all-linear" or a list of names
            target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        )
    config = PeftConfig.from_pretrained(str(adapter))
    if (config.r, config.lora_alpha) != (lora.rank, lora.alpha):
        raise ValueError(
            f"adapter {adapter} has rank {config.r}, alpha {config.lora_alpha}; settings.lora says"
            f" {lora.rank}, {lora.alpha}: make them agree"
        )
    config.inference_mode = False
    return config


def grpo_config(settings: GRPOSettings, out: Path, positions: dict[str, Any]) -> GRPOConfig:
    """TRL's arguments, except the number of micro-batches.

    Every TRL default that would change the result is set.
    """
    cuda = _has_gpu()
    sharded = _is_sharded(settings)
    bfloat16 = settings.dtype == "bfloat16"
    # How TRL loads the KL reference. By default its dtype is that of the policy, which trains in
    # float32. None if there is nothing to set: TRL warns about this argument if the policy is an
    # object.
    reference: dict[str, Any] | None = dict(positions)
    if bfloat16:
        reference["dtype"] = "bfloat16"
    if settings.lora or not reference:
        reference = None
    # Accelerate sets it when a process shards weights, and would then shard an adapter's base
    if not sharded:
        os.environ.pop("ACCELERATE_USE_FSDP", None)
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
        # by default a mixture of experts gets an additional loss, set by its config
        router_aux_loss_coef=0.0,
        temperature=settings.temperature,
        max_completion_length=settings.max_completion_tokens or 1,
        num_generations=2,  # TRL rejects 1; advantages are given, so it is not used
        steps_per_generation=2,
        max_steps=settings.optimizer_steps,
        per_device_train_batch_size=settings.micro_batch_size,
        bf16=bfloat16,
        # only for the head: see `tasks.training.head`
        tf32=(cuda and bfloat16) or None,
        model_init_kwargs=reference,
        disable_dropout=True,
        gradient_checkpointing=settings.gradient_checkpointing,
        use_cpu=not cuda,
        seed=settings.seed,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        fsdp=sharded,
        # otherwise every process keeps full float32 gradients until the last micro-batch: 33 GB for
        # 8B parameters
        accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": sharded}},
    )
    if args.fsdp_plugin_args and args.bf16:
        args.fsdp_plugin_args["mixed_precision_policy"] = SHARDED_BFLOAT16
    return args


def _has_gpu() -> bool:
    return torch.cuda.is_available() and os.environ.get("ACCELERATE_USE_CPU", "").lower() != "true"


def _is_sharded(settings: GRPOSettings) -> bool:
    """Whether FSDP2 shards the weights.

    Training full weights takes 16 bytes per parameter, including gradients and Adam's moments, so
    several GPUs share them.
    """
    return _has_gpu() and settings.lora is None and int(os.environ.get("WORLD_SIZE", "1")) > 1


def main(argv: list[str]) -> int:
    """Train the job in a JSON file (`UpdateJob`); the first process writes the result to `job.out`.
    Returns the exit status, 2 unless there is exactly one argument. Raises what `train` raises."""
    if len(argv) != 1:
        print("usage: python -m tasks.training.trainer JOB.json", file=sys.stderr)
        return 2
    job = UpdateJob.model_validate_json(Path(argv[0]).read_text())
    result = train(job)
    if int(os.environ.get("RANK", "0")) == 0:
        (job.out / RESULT_FILE).write_text(result.model_dump_json(indent=1))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
