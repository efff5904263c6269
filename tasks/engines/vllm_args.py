"""The arguments with which vLLM is started."""

import json
from typing import Any

from tasks.models.engine import MAX_LORAS, EngineConfig, local_folder

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # adapter ranks for which vLLM has kernels


def lora_rank(needed: int) -> int:
    """The smallest rank of at least `needed` for which vLLM has kernels."""
    return next((rank for rank in RANKS if rank >= needed), RANKS[-1])


def engine_args(config: EngineConfig) -> Any:
    """vLLM's `EngineArgs` for an engine. Raises ValueError for a model that is not on this machine
    and cannot be downloaded from the hub, or whose positions YaRN cannot extend."""
    from vllm.engine.arg_utils import EngineArgs

    batched = max(config.max_batched_tokens, config.max_num_seqs)
    overrides: dict[str, Any] = {}
    if config.yarn:
        overrides = config.yarn.settings(local_folder(config.model))
    # vLLM has its own defaults for arguments left out here
    optional: dict[str, Any] = {}
    if config.max_lora_rank:
        optional |= {
            "enable_lora": True,
            "max_lora_rank": lora_rank(config.max_lora_rank),
            "max_loras": MAX_LORAS,
            "lora_target_modules": adapted_modules(config.model),
        }
    if config.device == "cpu":
        optional |= {
            "kv_cache_memory_bytes": config.kv_cache_bytes,
            "enforce_eager": True,
            "block_size": 32,
            # A seeded request whose prompt is computed in two steps kills vLLM on CPUs ("does not
            # use offset").
            "enable_chunked_prefill": False,
        }
        batched = max(batched, config.max_model_len)
    else:
        optional |= {
            "gpu_memory_utilization": config.gpu_memory_utilization,
            "enforce_eager": config.enforce_eager,
            "enable_sleep_mode": True,
        }
        if config.fixed_kv_cache:
            optional["kv_cache_memory_bytes"] = config.kv_cache_bytes
        # As in the trainer: by default vLLM rounds logits to the model's dtype, in bfloat16 those
        # around 20 to eighths.
        overrides["head_dtype"] = "float32"
    return EngineArgs(
        model=config.model,
        dtype=config.dtype,
        max_model_len=config.max_model_len,
        hf_overrides=overrides,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=batched,
        tensor_parallel_size=config.tensor_parallel,
        enable_prefix_caching=True,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        disable_log_stats=True,
        worker_extension_cls="tasks.engines.vllm.Worker",
        **optional,
    )


def adapted_modules(model: str) -> list[str] | None:
    """The modules that adapters may change; None stands for all.

    In a mixture of experts, only attention: for the experts, vLLM would reserve 21 GiB on each of
    two GPUs, with four adapters of rank 64 on Qwen3-30B-A3B.
    """
    if not _is_mixture(model):
        return None
    return ["q_proj", "k_proj", "v_proj", "o_proj"]


def check_reload(config: EngineConfig) -> None:
    """Raise ValueError if vLLM cannot replace all weights.

    On CPUs it packs the weights of experts only at the first load, and would read later ones as if
    they were packed.
    """
    if config.device == "cpu" and _is_mixture(config.model):
        raise ValueError(
            f"{config.model} is a mixture of experts: vLLM on CPUs cannot replace its weights, use"
            " GPUs"
        )


def _is_mixture(model: str) -> bool:
    own = json.loads((local_folder(model) / "config.json").read_text())
    return any(own.get(key) for key in ("num_experts", "num_local_experts", "n_routed_experts"))
