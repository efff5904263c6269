"""LoRA products by group, compared with vLLM's own kernels and with the formula."""

import pytest
import torch
from vllm.lora.punica_wrapper.punica_cpu import PunicaWrapperCPU

from tasks.engines import cpu_lora
from tasks.engines.cpu_lora import GroupedProducts
from tasks.models.engine import EngineConfig

ADAPTERS = 3
RANK = 4
INPUTS = 24
SLICES = (16, 8)


def mapped(kind, index_T, prefill):
    """A wrapper for tokens of these adapters; -1 means none."""
    from vllm.lora.layers import LoRAMapping

    wrapper = kind(64, 64, "cpu")
    ids = tuple(i + 1 if i >= 0 else 0 for i in index_T)
    wrapper.update_metadata(
        LoRAMapping(index_mapping=ids, prompt_mapping=ids, is_prefill=prefill),
        [1, 2, 3],
        ADAPTERS,
        100,
    )
    return wrapper


def weights(seed, dtype):
    generator = torch.Generator().manual_seed(seed)

    def made(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    a = tuple(made(ADAPTERS, 1, RANK, INPUTS) for _ in SLICES)
    b = tuple(made(ADAPTERS, 1, size, RANK) for size in SLICES)
    return a, b, made


def linear(wrapper, index_T, dtype):
    a, b, made = weights(1, dtype)
    x = made(len(index_T), INPUTS)
    y = made(len(index_T), sum(SLICES))
    before = y.clone()
    wrapper.add_lora_linear(y, x, a, b, 0.5, SLICES)
    return before, x, y, a, b


BATCHES = [[0] * 9, [2, 2, 0, 0, 0, 1, 1], [1, 0, 1, 0, 2], [1]]


@pytest.mark.parametrize("prefill", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("index_T", BATCHES)
def test_every_token_gets_what_vllm_gives_it(index_T, dtype, error, prefill):
    ours = linear(mapped(GroupedProducts, index_T, prefill), index_T, dtype)[2]
    theirs = linear(mapped(PunicaWrapperCPU, index_T, prefill), index_T, dtype)[2]
    torch.testing.assert_close(ours, theirs, atol=error, rtol=error)


@pytest.mark.parametrize("prefill", [True, False])
@pytest.mark.parametrize("index_T", [*BATCHES, [-1, -1, 0, 1, -1], [-1, -1]])
def test_rows_are_multiplied_by_their_own_adapter_and_rows_without_one_stay(index_T, prefill):
    before, x, y, a, b = linear(mapped(GroupedProducts, index_T, prefill), index_T, torch.float32)
    for t, adapter in enumerate(index_T):
        added = [0.5 * x[t] @ a[s][adapter, 0].T @ b[s][adapter, 0].T for s in range(len(SLICES))]
        expected = before[t] + torch.cat(added) if adapter >= 0 else before[t]
        torch.testing.assert_close(y[t], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("index_T", [[0, 2, -1, 2], [-1, -1]])
def test_logits_are_changed_for_sampled_rows_with_an_adapter(index_T):
    a, b, made = weights(2, torch.float32)
    # more logits than the adapter has: vLLM pads them
    x = made(len(index_T), INPUTS)
    y = made(len(index_T), 20)
    before = y.clone()
    mapped(GroupedProducts, index_T, False).add_lora_logits(y, x, a[0], b[0], 2.0)
    for t, adapter in enumerate(index_T):
        expected = before[t].clone()
        if adapter >= 0:
            expected[:16] += 2.0 * x[t] @ a[0][adapter, 0].T @ b[0][adapter, 0].T
        torch.testing.assert_close(y[t], expected, atol=1e-5, rtol=1e-5)


def test_an_embedding_is_changed_for_tokens_with_an_adapter():
    index_T = [1, -1, 0]
    _, b, made = weights(3, torch.float32)
    x = made(3, RANK)
    y = torch.zeros(3, 16)
    mapped(GroupedProducts, index_T, False).add_lora_embedding(y, x, b[0], add_input=True)
    torch.testing.assert_close(
        y, torch.stack([x[0] @ b[0][1, 0].T, torch.zeros(16), x[2] @ b[0][0, 0].T])
    )


def test_vllm_as_it_is_installed_still_needs_it():
    """When this fails, vLLM multiplies by group and leaves rows without an adapter alone: remove
    `cpu_lora`."""
    assert not cpu_lora.upstream_is_fit()


def test_kernels_that_group_are_left_in_place(monkeypatch):
    def grouped(inputs, weights, outputs, index, add_inputs=True):
        for adapter, own in cpu_lora.rows_by_adapter(index):
            outputs[own] += inputs[own] @ weights[adapter, 0].T

    monkeypatch.setattr(cpu_lora, "bgmv_expand", grouped)
    assert cpu_lora.upstream_is_fit()


def test_adapters_on_cpus_are_not_served_by_two_processes():
    settings = {"model": "m", "max_model_len": 8, "max_lora_rank": 8, "tensor_parallel": 2}
    with pytest.raises(ValueError, match="set tensor_parallel = 1"):
        EngineConfig(**settings)
    assert EngineConfig(**settings, device="cuda").tensor_parallel == 2
