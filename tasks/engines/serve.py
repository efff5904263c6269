"""vLLM's OpenAI-compatible server for one policy, in a separate process.

    python -m tasks.engines.serve '{"config": {...}, "policy": {...}, "name": "mine", "port": 8000}'

On CPUs an adapter is merged into its base first: vLLM's own CPU kernels for adapters are slow.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tasks.engines.vllm_args import adapted_modules, lora_rank
from tasks.models.engine import EngineConfig, Policy, local_folder

BASE_NAME = "base"
GIB = 1 << 30


class Serving(BaseModel):
    """What to serve, under which name, and where."""

    config: EngineConfig
    policy: Policy
    name: str
    host: str = "127.0.0.1"
    port: int = 8000
    merged: Path  # where a merged model is kept


def arguments(served: Serving) -> list[str]:
    """The arguments for vLLM's server. On CPUs an adapter is first merged into its model
    (`merged`)."""
    config = served.config
    policy = served.policy
    made = ["--host", served.host, "--port", str(served.port)]
    made += ["--dtype", config.dtype, "--max-model-len", str(config.max_model_len)]
    made += ["--max-num-seqs", str(config.max_num_seqs), "--generation-config", "vllm"]
    if config.device == "cuda":
        made += ["--tensor-parallel-size", str(config.tensor_parallel)]
        made += ["--gpu-memory-utilization", str(config.gpu_memory_utilization)]
        if config.fixed_kv_cache:
            made += ["--kv-cache-memory-bytes", str(config.kv_cache_bytes)]
    else:
        made += ["--kv-cache-memory-bytes", str(config.kv_cache_bytes or GIB), "--enforce-eager"]
        made += ["--block-size", "32", "--no-enable-chunked-prefill"]
        made += ["--max-num-batched-tokens", str(max(config.max_model_len, config.max_num_seqs))]
    overrides: dict[str, Any] = {}
    if config.yarn:
        overrides |= config.yarn.settings(local_folder(policy.weights))
    if config.device == "cuda":
        overrides["head_dtype"] = "float32"  # as in the run's engines
    if overrides:
        made += ["--hf-overrides", json.dumps(overrides)]
    if policy.adapter is None:
        return ["--model", policy.weights, "--served-model-name", served.name, *made]
    if config.device == "cpu":
        folder = merged(policy, served.merged)
        return ["--model", str(folder), "--served-model-name", served.name, *made]
    made += ["--enable-lora", "--max-lora-rank", str(lora_rank(config.max_lora_rank))]
    if modules := adapted_modules(policy.weights):
        made += ["--lora-target-modules", *modules]
    made += ["--lora-modules", f"{served.name}={policy.adapter}"]
    return ["--model", policy.weights, "--served-model-name", BASE_NAME, *made]


def merged(policy: Policy, folder: Path) -> Path:
    """Write the policy's model with its adapter merged in to `folder`, unless it is there; return
    the folder. Raises ValueError if the model cannot be found."""
    if (folder / "config.json").is_file():
        return folder
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    assert policy.adapter is not None
    base = local_folder(policy.weights)
    model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(model, policy.adapter).merge_and_unload()
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    model.save_pretrained(partial)
    for file in base.iterdir():
        is_weights = file.suffix in (".safetensors", ".bin") or file.name.endswith(".index.json")
        if file.is_file() and not is_weights and not (partial / file.name).exists():
            shutil.copy2(file, partial / file.name)
    os.replace(partial, folder)
    return folder


def main(text: str) -> None:
    """Replace this process with vLLM's server. `text` is the JSON of a `Serving`."""
    served = Serving.model_validate_json(text)
    command = arguments(served)
    # the entry point `vllm serve` asks for the version of the package vllm, which the build for
    # CPUs does not have
    module = "vllm.entrypoints.openai.api_server"
    os.execv(sys.executable, [sys.executable, "-m", module, *command])


if __name__ == "__main__":
    main(sys.argv[1])
