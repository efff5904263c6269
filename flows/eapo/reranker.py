"""Relevance of a text to a query, by a language model that answers yes or no: the Qwen3-Reranker
models (Zhang et al., "Qwen3 Embedding", 2025).

A pair's score is the probability of "yes" against "no" as the next token, after the prompt format
that these models were trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

from warehouse.hashes import model_identity

if TYPE_CHECKING:
    import torch

OPENING = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and"
    ' the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
)
CLOSING = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
ANSWERS = ("no", "yes")


class RerankerConfig(BaseModel):
    """A causal language model: a hub name with its pinned revision, or a local folder."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str = Field(
        description="a folder, or owner/name on the hub; in the paper Qwen/Qwen3-Reranker-8B"
    )
    revision: str | None = Field(default=None, description="a commit on the hub; null for a folder")
    instruction: str = Field(
        default="Given a question, find the quotes that are needed to answer it",
        description="what makes a text good for the query",
    )
    max_tokens: PositiveInt = Field(
        default=8192,
        description=(
            "maximum number of tokens of a query with its text; longer texts are cut at the end"
        ),
    )
    device: str | None = Field(
        default=None,
        description="where the model runs, such as cpu or cuda; null: on a GPU if there is one",
    )
    dtype: Literal["float32", "bfloat16", "float16"] = Field(
        default="bfloat16", description="data type of the model"
    )
    batch_size: PositiveInt = Field(default=8, description="pairs scored at once")

    @model_validator(mode="after")
    def _is_pinned(self) -> Self:
        if self.revision is None and not Path(self.model).is_dir():
            raise ValueError(
                f"reranker {self.model} is no local folder: pin its revision, a commit hash"
            )
        return self

    def recipe_identity(self) -> dict[str, Any]:
        """The part of these settings that a recipe records; see `model_identity`."""
        return {**self.model_dump(mode="json"), "model": model_identity(self.model)}


class Reranker:
    """Scores pairs of a query and a text.

    Raises ValueError for a model that cannot be loaded or has no token for "yes" or "no".
    """

    def __init__(self, config: RerankerConfig) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.config = config
        self.device = config.device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                config.model, revision=config.revision, padding_side="left"
            )
            model: Any = AutoModelForCausalLM.from_pretrained(
                config.model, revision=config.revision, dtype=getattr(torch, config.dtype)
            )
        except (OSError, ValueError) as problem:
            raise ValueError(
                f"reranker {config.model} (revision {config.revision}) cannot be loaded: {problem}."
                " Give a local folder or download it first"
            ) from problem
        self._model = model.to(self.device).eval()
        self._answers = [self._token(answer) for answer in ANSWERS]

    def scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The probability, 0..1, that each text is relevant to its query."""
        prompts = [self._prompt(query, text) for query, text in pairs]
        size = self.config.batch_size
        scores = list[float]()
        for start in range(0, len(prompts), size):
            scores += self._probabilities(prompts[start : start + size])
        return scores

    def _probabilities(self, prompts: Sequence[list[int]]) -> list[float]:
        import torch

        padded = self._tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt")
        with torch.inference_mode():
            output = self._model(**padded.to(self.device), logits_to_keep=1, use_cache=False)
            logits: torch.Tensor = output.logits
        # [prompts, "no" and "yes"]
        answers = logits[:, -1, self._answers].float().softmax(dim=-1)
        return answers[:, 1].tolist()

    def _prompt(self, query: str, text: str) -> list[int]:
        """The tokens of a pair. A long pair is truncated, never the prompt format around it."""
        opening = self._tokens(OPENING)
        closing = self._tokens(CLOSING)
        pair = self._tokens(
            f"<Instruct>: {self.config.instruction}\n<Query>: {query}\n<Document>: {text}"
        )
        return opening + pair[: self.config.max_tokens] + closing

    def _tokens(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)

    def _token(self, answer: str) -> int:
        tokens = self._tokens(answer)
        if len(tokens) != 1 or tokens[0] == self._tokenizer.unk_token_id:
            raise ValueError(f"reranker {self.config.model} has no token for {answer!r}")
        return tokens[0]
