"""Convert GGUF files, which llama.cpp and Ollama run, to model folders that can be trained.

    as_folder(Path("qwen.gguf"))    # qwen.gguf.folder, made by the first call

The weights are the file's, dequantized to bfloat16; what quantization lost stays lost. Text
becomes the same token ids as in llama.cpp, because the pre-tokenizer is the one that the file
names; a file that names an unknown one is rejected. The result is tested before it is kept: text
survives a round trip, special tokens are single ids, the chat template renders, and the model finds
English likely.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

SUFFIX = ".gguf"
FOLDER = ".folder"  # suffix after the file's name
MARK = "gguf.json"  # in the folder: describes the file that it was made from
CONTROL = 3  # llama.cpp's type for a token that stands for no text
# Two differently quantized copies of one embedding differ by less: Qwen2.5's in five and eight bits
# by 0.044, independent matrices by 1.4.
TIED = 0.2
# The most nats that a token of plain English may take, as a share of those of a guess,
# ln(vocabulary): models of 135M to 500M parameters in four bits take 0.26 to 0.30, weights in a
# wrong order 1 and more.
MOST_OF_GUESSING = 0.6
LOCAL_SETTINGS = ("is_local", "local_files_only")  # tokenizer settings of this machine only
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace("{1,3}", "")
ENGLISH = (
    "The river rises in the hills north of the town and flows south for about forty miles before"
    " it reaches the sea. In the nineteenth century it carried coal and timber to the harbour, and"
    " a canal was built beside it so that larger boats could pass. When the railway opened, most"
    " of the trade was lost, and the canal was closed. Today the path along its bank is used by"
    " people who walk or ride a bicycle to work."
)
SAMPLES = (
    ENGLISH,
    "In 1984 it cost $12,345.67, i.e. 3 % more; don't ask why.",
    "def f(x):\n    return {'a': x ** 2}  # a comment\n\n\n\tdone",
    "Café Ångström, naïve façade: 12 km², “quoted” – «zitiert»",
    "東京は日本の首都です。Москва — столица. مرحبا 🙂",
    "  two  spaces   and trailing ",
)


class ConversionError(ValueError):
    """A GGUF file cannot be converted to a trainable model; the message says why."""


@dataclass(frozen=True)
class Header:
    """A file's description of its model: metadata by name, and how each tensor is quantized."""

    metadata: dict[str, Any]
    bits: dict[str, float]  # bits per weight, by the tensor's name

    @property
    def pre_tokenizer(self) -> str:
        """llama.cpp's name for the pre-tokenizer, or for a tokenizer without merges."""
        if self.metadata.get("tokenizer.ggml.model") == "gpt2":
            return str(self.metadata.get("tokenizer.ggml.pre", "default"))
        return str(self.metadata.get("tokenizer.ggml.model"))


def as_folder(file: Path) -> Path:
    """The folder `FILE.folder` with model and tokenizer; converts the file again if it has changed.

    A conversion runs in a separate process, so that its memory (four bytes per weight) is released.
    If several runs need the folder at once, one converts and the others wait.

    Raises ConversionError for a file that is missing or damaged, that has an unknown architecture
    or tokenizer, or whose model fails the test.
    """
    if not file.is_file():
        raise ConversionError(f"there is no file {file} (seen from {Path.cwd()})")
    folder = file.with_name(file.name + FOLDER)
    if _is_made_from(folder, file):
        return folder
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_made_from(folder, file):
            _convert_in_process(file, folder)
    return folder


def _convert_in_process(file: Path, folder: Path) -> None:
    print(f"converting {file} to {folder}, once", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(file.absolute()), str(folder.absolute())],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise ConversionError(f"{file} cannot be converted: {last.partition('Error: ')[2] or last}")
    (folder / MARK).write_text(json.dumps(_mark(file), indent=2) + "\n", encoding="utf-8")


def _is_made_from(folder: Path, file: Path) -> bool:
    try:
        mark = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return mark == _mark(file)


def _mark(file: Path) -> dict[str, Any]:
    status = file.stat()
    content_hash = _hash_of(file, status.st_size, status.st_mtime_ns)
    return {"file": file.name, "bytes": status.st_size, "content_hash": content_hash}


@lru_cache
def _hash_of(file: Path, size: int, mtime_ns: int) -> str:
    """The hash of a file, computed once per process for each size and modification time."""
    from warehouse.draft import hash_file  # loads pyarrow, which settings do without

    return hash_file(file)


def convert(file: Path, folder: Path) -> None:
    """Write the model and tokenizer of a GGUF file to `folder`, whole or not at all.

    An existing folder is replaced. Raises ConversionError as `read_header`, `load_tokenizer`,
    `check_tokenizer` and `check_model` do, and whatever transformers raises for an architecture
    that it does not know.
    """
    part = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(part, ignore_errors=True)
    header = read_header(file)
    tokenizer = load_tokenizer(file, header)
    check_tokenizer(tokenizer, header)
    model = load_model(file, header)
    check_model(model, tokenizer)
    save(part, tokenizer=tokenizer, model=model)
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)


def save(folder: Path, *, tokenizer: Any, model: Any) -> None:
    """Write a tokenizer and a model in bfloat16, without settings that hold only on this
    machine."""
    import torch

    tokenizer.save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    kept = {k: v for k, v in json.loads(settings.read_text()).items() if k not in LOCAL_SETTINGS}
    settings.write_text(json.dumps(kept, indent=2) + "\n")
    model.to(torch.bfloat16).save_pretrained(folder)


def read_header(file: Path) -> Header:
    """Read what a GGUF file says about its model. Raises ConversionError if the package gguf is
    missing, and for a file that is not GGUF, is truncated, or is split into pieces."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise ConversionError("reading GGUF files needs `pip install gguf`") from None
    try:
        reader = GGUFReader(file)
    except (ValueError, IndexError, KeyError, OSError) as problem:
        raise ConversionError(f"{file} is no GGUF file, or it is cut short: {problem}") from None
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    if metadata.get("split.count", 0) > 1:
        raise ConversionError(f"{file} is one piece of several: join them with llama-gguf-split")
    bits = {
        tensor.name: 8 * int(tensor.n_bytes) / max(1, int(tensor.n_elements))
        for tensor in reader.tensors
    }
    return Header(metadata=metadata, bits=bits)


def load_tokenizer(file: Path, header: Header) -> Any:
    """The tokenizer, with the pre-tokenizer that the file names.

    transformers 5.19 takes that of the architecture instead: with GPT-2's in place of SmolLM2's, 6
    of 9,720 Wikipedia passages get other ids; with a wrong one for Qwen2, 430 of 2,626 do.

    Raises ConversionError for a pre-tokenizer that is not among PRE_TOKENIZERS.
    """
    from transformers import AutoTokenizer

    try:
        pre_tokenizer = PRE_TOKENIZERS[header.pre_tokenizer]
    except KeyError:
        known = ", ".join(PRE_TOKENIZERS)
        raise ConversionError(
            f"its pre-tokenizer is {header.pre_tokenizer!r}, and only {known} are known: text would"
            " become other tokens than the model has learnt"
        ) from None
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    if pre_tokenizer is not None:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizer()
    if header.metadata.get("tokenizer.ggml.add_bos_token"):
        _begin_with_bos(tokenizer, int(header.metadata["tokenizer.ggml.bos_token_id"]))
    length = _of_architecture(header, "context_length")
    if length:
        tokenizer.model_max_length = length
    return tokenizer


def _begin_with_bos(tokenizer: Any, bos: int) -> None:
    """Make every text begin with the token that began every training text of the model: without it
    Gemma 3 270M takes 4.8 nats for a token of plain English, with it 2.7."""
    from tokenizers import processors

    if tokenizer("a")["input_ids"][:1] == [bos]:
        return
    token = tokenizer.convert_ids_to_tokens(bos)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B:1", special_tokens=[(token, bos)]
    )


def _digits_apart() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )


def _split_by(pattern: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _byte_level() -> Any:
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False)


# pre-tokenizers by llama.cpp's name (`llama_vocab_pre_type` in src/llama-vocab.cpp); None: that of
# SentencePiece, which transformers converts as it is
PRE_TOKENIZERS: dict[str, Callable[[], Any] | None] = {
    "smollm": _digits_apart,
    "gpt-2": _byte_level,
    "qwen2": lambda: _split_by(QWEN_2),
    "llama-bpe": lambda: _split_by(LLAMA_3),
    "llama": None,
}


def check_tokenizer(tokenizer: Any, header: Header) -> None:
    """Test a tokenizer on text in several scripts, on its special tokens and on its chat template.

    Raises ConversionError if text does not survive, if a special token is split, or if the template
    does not render or its replies do not end in a special token.
    """
    for text in SAMPLES:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        back = tokenizer.decode(ids, clean_up_tokenization_spaces=False)
        if back != text:
            raise ConversionError(f"its tokenizer turns {text[:40]!r} into {back[:40]!r}")
    types = header.metadata.get("tokenizer.ggml.token_type") or []
    tokens = header.metadata.get("tokenizer.ggml.tokens") or []
    control = {number for number, kind in enumerate(types) if kind == CONTROL}
    for number in sorted(control):
        ids = tokenizer(tokens[number], add_special_tokens=False)["input_ids"]
        if ids != [number]:
            raise ConversionError(f"its special token {tokens[number]!r} becomes the ids {ids[:8]}")
    if not tokenizer.chat_template:
        return
    turns = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "closing"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    closing = tokenizer(text.rpartition("closing")[2], add_special_tokens=False)["input_ids"]
    if not control.intersection(closing):
        raise ConversionError("its chat template closes a reply with no special token")


def load_model(file: Path, header: Header) -> Any:
    """The model in float32.

    An embedding that is stored twice (for input and output) is one matrix if both copies agree
    apart from their quantization: the finer one serves as both, and is trained as one.
    """
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig, GgufConfig

    # transformers 5.19 keeps weights packed unless told otherwise, and cannot save packed weights
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    if "output.weight" in header.bits:
        inner = model.get_input_embeddings().weight.data
        outer = model.get_output_embeddings().weight.data
        if float((inner - outer).norm() / outer.norm()) < TIED:
            finer = outer
            if header.bits["token_embd.weight"] > header.bits["output.weight"]:
                finer = inner
            _tie(model, finer.clone())
    if getattr(model.config, "quantization_config", None) is not None:
        del model.config.quantization_config
    model.config._name_or_path = header.metadata.get("general.name", file.stem)
    ids = {
        f"{ours}_token_id": header.metadata.get(f"tokenizer.ggml.{theirs}_token_id")
        for ours, theirs in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    model.generation_config = GenerationConfig(**ids)
    for name, number in ids.items():
        if number is not None:
            setattr(model.config, name, number)
    return model


def _tie(model: Any, embedding: torch.Tensor) -> None:
    import torch

    model.config.tie_word_embeddings = True
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(embedding, freeze=False))
    model.tie_weights()


def check_model(model: Any, tokenizer: Any) -> None:
    """Raise ConversionError if the model takes more than MOST_OF_GUESSING of a guess's nats for a
    token of plain English."""
    nats = nats_per_token(model, tokenizer, ENGLISH)
    guessing = math.log(model.config.vocab_size)
    if not nats <= MOST_OF_GUESSING * guessing:  # nan is rejected, too
        raise ConversionError(
            f"as converted it takes {nats:.1f} nats for a token of plain English, and a guess"
            f" {guessing:.1f}: its weights are damaged, or transformers misreads this architecture"
        )


def nats_per_token(model: Any, tokenizer: Any, text: str) -> float:
    """The mean negative log-probability of a text's tokens under a model, in nats."""
    import torch

    ids = tokenizer(text)["input_ids"]
    with torch.inference_mode():
        loss = model(input_ids=torch.tensor([ids]), labels=torch.tensor([ids])).loss
    return float(loss)


def _of_architecture(header: Header, name: str) -> Any:
    return header.metadata.get(f"{header.metadata.get('general.architecture')}.{name}")


def main() -> None:
    """Convert FILE to FOLDER."""
    parser = argparse.ArgumentParser(description="Convert a GGUF file to a model folder.")
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    convert(arguments.file, arguments.folder)


if __name__ == "__main__":
    main()
