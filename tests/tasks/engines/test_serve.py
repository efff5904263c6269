"""The server of one policy: its command line, and adapters merged for CPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks.engines.serve import Serving, arguments, merged
from tasks.models.engine import EngineConfig, Policy
from tests.support.scripted_play import any_text_model


def served(policy: Policy, folder: Path, max_lora_rank: int = 4, **config: Any) -> Serving:
    engine = EngineConfig(
        model=policy.weights, max_model_len=512, max_lora_rank=max_lora_rank, **config
    )
    return Serving(config=engine, policy=policy, name="mine", port=8123, merged=folder / "merged")


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    """A tiny model with an adapter that changes what it says."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapted")
    model = any_text_model(folder / "model")
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    changed: Any = get_peft_model(AutoModelForCausalLM.from_pretrained(model), config)
    torch.manual_seed(1)
    for name, value in changed.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value)
    changed.save_pretrained(folder / "adapter")
    return Policy(
        id="trained", weights=str(model), adapter=str(folder / "adapter"), content_hash="h"
    )


def test_a_merged_model_says_what_the_adapter_on_its_base_says(adapted, tmp_path):
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = merged(adapted, tmp_path / "merged")
    ids = torch.tensor([[5, 9, 40, 7]])
    base = AutoModelForCausalLM.from_pretrained(adapted.weights)
    plain = base(ids).logits.detach().clone()
    on_base: Any = PeftModel.from_pretrained(base, str(adapted.adapter))
    whole = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.allclose(whole(ids).logits, on_base(ids).logits, atol=1e-4)
    assert not torch.allclose(whole(ids).logits, plain, atol=1e-2)
    # it is a model like its base: with its tokenizer, and made once
    assert (folder / "tokenizer.json").read_bytes() == (
        Path(adapted.weights) / "tokenizer.json"
    ).read_bytes()
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert merged(adapted, folder) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made


def test_adapters_are_served_on_their_base_on_gpus_and_merged_on_cpus(adapted, tmp_path):
    on_gpu = arguments(served(adapted, tmp_path, device="cuda", tensor_parallel=2))
    assert on_gpu[:4] == ["--model", adapted.weights, "--served-model-name", "base"]
    assert ["--lora-modules", f"mine={adapted.adapter}"] == on_gpu[-2:]
    assert on_gpu[on_gpu.index("--tensor-parallel-size") + 1] == "2"
    on_cpu = arguments(served(adapted, tmp_path, device="cpu"))
    assert on_cpu[:4] == ["--model", str(tmp_path / "merged"), "--served-model-name", "mine"]
    assert "--enable-lora" not in on_cpu


def test_a_server_on_gpus_gets_a_rank_that_vllm_has_and_adapts_what_engines_adapt(
    adapted, tmp_path
):
    """vLLM has no kernels for rank 24. Of a mixture of experts, adapters change attention alone."""
    made = arguments(served(adapted, tmp_path, device="cuda", max_lora_rank=24))
    assert made[made.index("--max-lora-rank") + 1] == "32"
    assert "--lora-target-modules" not in made
    mixture = tmp_path / "mixture"
    mixture.mkdir()
    (mixture / "config.json").write_text('{"num_experts": 8}')
    policy = adapted.model_copy(update={"weights": str(mixture)})
    made = arguments(served(policy, tmp_path, device="cuda"))
    first = made.index("--lora-target-modules") + 1
    assert made[first : first + 5] == ["q_proj", "k_proj", "v_proj", "o_proj", "--lora-modules"]


def test_full_weights_are_served_under_the_runs_name(adapted, tmp_path):
    whole = adapted.model_copy(update={"adapter": None})
    made = arguments(served(whole, tmp_path, device="cpu"))
    assert made[:4] == ["--model", adapted.weights, "--served-model-name", "mine"]
    assert made[made.index("--port") + 1] == "8123"
