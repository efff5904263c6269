"""GGUF files become model folders that compute what the file's model computes."""

from __future__ import annotations

import fcntl
import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, TokenType
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from flows.settings import profile as profiles
from tasks.models.engine import load_tokenizer
from tasks.models.gguf import (
    ENGLISH,
    PRE_TOKENIZERS,
    ConversionError,
    as_folder,
    convert,
    nats_per_token,
)

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
SPECIAL = ["<|end|>", "<|im_start|>", "<|im_end|>"]
MERGED = "Ġt"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>{% endfor %}"
)
CONFIG = Qwen2Config(
    vocab_size=len(BYTES) + len(SPECIAL) + 1,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    max_position_embeddings=512,
    tie_word_embeddings=True,
)
# a tensor of the folder, and llama.cpp's name for it
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    **{
        f"self_attn.{p}_proj.{kind}": f"attn_{p}.{kind}"
        for p in "qkv"
        for kind in ("weight", "bias")
    },
    "self_attn.o_proj.weight": "attn_output.weight",
    **{f"mlp.{part}_proj.weight": f"ffn_{part}.weight" for part in ("gate", "up", "down")},
}


@pytest.fixture(scope="module")
def model() -> Any:
    """A model of one layer that has learnt which byte follows which in English."""
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(CONFIG)
    tokens = [*BYTES, *SPECIAL, MERGED]
    text = ENGLISH.replace(" ", "Ġ").replace(MERGED, "\0")
    ids = torch.tensor([[tokens.index(MERGED if c == "\0" else c) for c in text]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    return model.eval()


def write(
    file: Path,
    model: Any,
    *,
    pre: str = "qwen2",
    template: str | None = TEMPLATE,
    output: np.ndarray | None = None,
    add_bos: bool = False,
) -> Path:
    """A model as llama.cpp's converter writes it; `output` is a second copy of the embedding."""
    writer = GGUFWriter(file, "qwen2")
    writer.add_name("tiny")
    writer.add_context_length(512)
    writer.add_embedding_length(CONFIG.hidden_size)
    writer.add_block_count(CONFIG.num_hidden_layers)
    writer.add_feed_forward_length(CONFIG.intermediate_size)
    writer.add_head_count(CONFIG.num_attention_heads)
    writer.add_head_count_kv(CONFIG.num_key_value_heads)
    writer.add_layer_norm_rms_eps(CONFIG.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*BYTES, *SPECIAL, MERGED])
    writer.add_token_types(
        [TokenType.NORMAL] * len(BYTES) + [TokenType.CONTROL] * len(SPECIAL) + [TokenType.NORMAL]
    )
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(len(BYTES))
    writer.add_eos_token_id(len(BYTES) + 2)
    writer.add_pad_token_id(len(BYTES))
    writer.add_add_bos_token(add_bos)
    if template is not None:
        writer.add_chat_template(template)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        short = name.removeprefix("model.layers.0.")
        theirs = NAMES[short]
        if short != name:
            theirs = f"blk.0.{theirs}"
        writer.add_tensor(theirs, tensor.numpy().astype(np.float32))
    if output is not None:
        writer.add_tensor("output.weight", output)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory, model: Any) -> Iterator[Path]:
    file = write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", model)
    yield as_folder(file)


def test_the_folder_computes_what_the_model_of_the_file_does(converted: Path, model: Any) -> None:
    loaded = AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32)
    tokenizer = load_tokenizer(str(converted))
    ids = torch.tensor([tokenizer("The river rises")["input_ids"]])
    with torch.inference_mode():
        theirs = model(ids).logits.softmax(-1)
        ours = loaded(ids).logits.softmax(-1)
    assert (ours - theirs).abs().max() < 0.02  # bfloat16
    assert nats_per_token(loaded, tokenizer, ENGLISH) < 3.3
    config = json.loads((converted / "config.json").read_text())
    assert config["tie_word_embeddings"] is True
    assert config["dtype"] == "bfloat16"
    assert json.loads((converted / "generation_config.json").read_text())["eos_token_id"] == 258


def test_a_second_call_converts_nothing_and_another_file_of_that_name_is_converted(
    tmp_path: Path, converted: Path, model: Any
) -> None:
    file = tmp_path / "tiny.gguf"
    shutil.copy(converted.with_name("tiny.gguf"), file)
    folder = tmp_path / "tiny.gguf.folder"
    shutil.copytree(converted, folder)
    (folder / "note").touch()
    assert as_folder(file) == folder
    assert (folder / "note").exists()

    write(file, model, template=None)
    as_folder(file)
    assert not (folder / "note").exists()
    assert load_tokenizer.__wrapped__(str(folder)).chat_template is None


def test_two_copies_of_an_embedding_become_one_and_the_finer_one_stays(
    tmp_path: Path, model: Any
) -> None:
    embedding = model.get_input_embeddings().weight.detach().numpy()
    coarse = embedding.astype(np.float16)
    folder = tmp_path / "twice"
    convert(write(tmp_path / "twice.gguf", model, output=coarse), folder)
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is True
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    inner = loaded.get_input_embeddings().weight
    assert inner.data_ptr() == loaded.get_output_embeddings().weight.data_ptr()
    assert torch.equal(inner, torch.from_numpy(embedding).to(torch.bfloat16).float())


def test_every_text_begins_with_the_beginning_token_of_a_file_that_asks_for_it(
    tmp_path: Path, model: Any
) -> None:
    folder = tmp_path / "bos"
    convert(write(tmp_path / "bos.gguf", model, add_bos=True), folder)
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer("a")["input_ids"] == [256, BYTES.index("a")]
    assert tokenizer("a", add_special_tokens=False)["input_ids"] == [BYTES.index("a")]


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [  # llama.cpp's expressions, src/llama-vocab.cpp
        ("smollm", "in 1984", ["in", "Ġ", "1", "9", "8", "4"]),
        ("qwen2", "in 1984", ["in", "Ġ", "1", "9", "8", "4"]),
        ("llama-bpe", "in 1984", ["in", "Ġ", "198", "4"]),
        ("gpt-2", "in 1984", ["in", "Ġ1984"]),
        ("qwen2", "DON'T\n\nGo", ["DON", "'T", "ĊĊ", "Go"]),
        ("gpt-2", "DON'T\n\nGo", ["DON", "'", "T", "Ċ", "Ċ", "Go"]),
    ],
)
def test_pre_tokenizers_cut_as_in_llama_cpp(pre: str, text: str, pieces: list[str]) -> None:
    make = PRE_TOKENIZERS[pre]
    assert make is not None
    assert [piece for piece, _ in make().pre_tokenize_str(text)] == pieces


def test_what_cannot_be_converted_is_refused_in_words(tmp_path: Path, model: Any) -> None:
    out = tmp_path / "out"
    with pytest.raises(ConversionError, match=r"there is no file .*none\.gguf"):
        as_folder(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("not a model")
    with pytest.raises(ConversionError, match="is no GGUF file, or it is cut short"):
        convert(tmp_path / "text.gguf", out)
    whole = write(tmp_path / "whole.gguf", model)
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole.read_bytes()[:-4096])
    with pytest.raises(ConversionError, match="cut short"):
        convert(cut, out)
    open_ended = TEMPLATE.replace("<|im_end|>", "\n")
    with pytest.raises(ConversionError, match="closes a reply with no special token"):
        convert(write(tmp_path / "open.gguf", model, template=open_ended), out)
    torch.manual_seed(1)
    untrained = write(tmp_path / "untrained.gguf", Qwen2ForCausalLM(CONFIG))
    with pytest.raises(ConversionError, match=r"takes 5\.\d nats .* and a guess 5\.6"):
        convert(untrained, out)
    assert not out.exists()


def test_runs_that_need_a_folder_at_once_convert_it_once(tmp_path: Path, converted: Path) -> None:
    file = tmp_path / "tiny.gguf"
    shutil.copy(converted.with_name("tiny.gguf"), file)
    found = list[Path]()
    with (tmp_path / "tiny.gguf.folder.lock").open("w") as other:  # as if another run converted it
        fcntl.flock(other, fcntl.LOCK_EX)
        second = threading.Thread(target=lambda: found.append(as_folder(file)))
        second.start()
        time.sleep(0.2)
        assert found == []
        shutil.copytree(converted, tmp_path / "tiny.gguf.folder")
        (tmp_path / "tiny.gguf.folder" / "note").touch()
    second.join(timeout=60)
    assert found == [tmp_path / "tiny.gguf.folder"] and (found[0] / "note").exists()


def test_the_error_of_a_conversion_names_the_file_and_the_reason(
    tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is relative to where the user is."""
    write(tmp_path / "tekken.gguf", model, pre="tekken")
    monkeypatch.chdir(tmp_path)
    file = Path("tekken.gguf")
    with pytest.raises(ConversionError) as refused:
        as_folder(file)
    assert str(refused.value).startswith(
        f"{file} cannot be converted: its pre-tokenizer is 'tekken'"
    )
    assert not file.with_name("tekken.gguf.folder").exists()


def test_a_setting_that_names_a_gguf_file_names_its_folder(converted: Path) -> None:
    file = converted.with_name("tiny.gguf")
    values = {
        "models": {"base": str(file)},
        "engine": {"max_model_len": 512},
        "evaluation": {"items": None},
    }
    cfg = profiles.resolve(profiles.MethodSettings, values, {}, "profile")
    assert cfg.models.base == str(converted)
    assert cfg.engine.model == str(converted)
    with pytest.raises(ValueError, match=r"models\.examiner: there is no file missing\.gguf"):
        profiles.resolve(
            profiles.MethodSettings, values, {"models.examiner": "missing.gguf"}, "profile"
        )
