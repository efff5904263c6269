"""The tokens of a rollout as text, each with the log-probability with which it was sampled."""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import Any

from flows.runtime.store_root import WORKSPACE
from warehouse.schemas import Row
from warehouse.store import Store

BEFORE = 4  # preceding tokens that affect how a token is decoded
LEVELS = 8  # levels of heat: one per halving of the probability, beginning at 1/2
BROKEN = "\ufffd"  # what an incomplete character decodes to
CHARACTER = 4  # most tokens of one character
MOST = 20_000  # most tokens of a turn that are shown


def pieces_of(store: Store, rollout: Row) -> list[list[Row]]:
    """The tokens of each turn: text, logprob (natural), and heat from 0 (likely) to `LEVELS`.

    If the tokenizer is not on this machine, ids take the place of text; a turn whose tokens are
    unknown is empty. A character that spans several tokens is one piece.
    """
    tokenizer = _tokenizer(_file(store, rollout))
    return [_pieces(tokenizer, turn) for turn in rollout["turns"] or []]


def _pieces(tokenizer: Any, turn: Row) -> list[Row]:
    ids = turn["sampled_token_ids"][:MOST]
    logprobs = turn["logprobs"]
    pieces = []
    start = 0
    for end in range(1, min(len(ids), len(logprobs)) + 1):
        text = _text(tokenizer, ids, start, end)
        if text.endswith(BROKEN) and end - start < CHARACTER:
            continue
        logprob = sum(logprobs[start:end])
        pieces.append({"text": text, "logprob": logprob, "heat": heat(logprob)})
        start = end
    return pieces


def heat(logprob: float) -> int:
    """
    >>> heat(-0.1), heat(math.log(0.2)), heat(-100.0)
    (0, 2, 8)
    """
    if math.isnan(logprob):
        return 0
    return int(min(LEVELS, max(0.0, -logprob / math.log(2))))


def _text(tokenizer: Any, ids: list[int], start: int, end: int) -> str:
    if tokenizer is None:
        return f"{' '.join(map(str, ids[start:end]))} "
    before = ids[max(0, start - BEFORE) : start]
    shorter = tokenizer.decode(before, skip_special_tokens=False)
    longer = tokenizer.decode([*before, *ids[start:end]], skip_special_tokens=False)
    if not longer.startswith(shorter):
        return tokenizer.decode(ids[start:end])
    return longer[len(shorter) :]


def _file(store: Store, rollout: Row) -> Path | None:
    """The tokenizer file of the policy that sampled, or of a model that the run started from."""
    config = store.kept(rollout["run"], "config.json") or {}
    named = [*(config.get("models") or {}).values(), (config.get("engine") or {}).get("model")]
    models = [model for model in named if model]
    for folder in (store.folder(rollout["policy"]), *(WORKSPACE / model for model in models)):
        if (folder / "tokenizer.json").is_file():
            return folder / "tokenizer.json"
    for model in models:
        if file := _cached(model):
            return file
    return None


def _cached(model: str) -> Path | None:
    """The tokenizer file of a model from the Hugging Face hub, if it has been downloaded before;
    this downloads nothing."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        file = try_to_load_from_cache(model, "tokenizer.json")
    except HFValidationError:  # a local folder that does not exist
        return None
    return Path(file) if isinstance(file, str) else None


@lru_cache(maxsize=4)
def _tokenizer(file: Path | None) -> Any:
    if file is None:
        return None
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(file))
