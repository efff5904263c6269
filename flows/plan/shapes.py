"""The shape of a model: its number of parameters of each kind, from its configuration alone."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

KNOWN = Path(__file__).parent / "shapes.toml"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class Shape:
    """A decoder with attention and gated MLPs, or mixtures of such experts.

    `queries` and `keys` are the numbers of heads times their width.
    """

    family: str
    layers: int
    hidden: int
    intermediate: int  # of a single expert if there are several
    queries: int
    keys: int
    head: int
    vocab: int
    tied: bool
    experts: int = 1
    experts_used: int = 1
    positions: int | None = None

    @classmethod
    def of(cls, config: dict[str, Any]) -> Shape:
        """The shape that the values of a config.json describe."""
        head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        width = "moe_intermediate_size" if "num_experts" in config else "intermediate_size"
        return cls(
            family=config["model_type"],
            layers=config["num_hidden_layers"],
            hidden=config["hidden_size"],
            intermediate=config[width],
            queries=config["num_attention_heads"] * head,
            keys=config.get("num_key_value_heads", config["num_attention_heads"]) * head,
            head=head,
            vocab=config["vocab_size"],
            tied=config.get("tie_word_embeddings", False),
            experts=config.get("num_experts", 1),
            experts_used=config.get("num_experts_per_tok", 1),
            positions=config.get("max_position_embeddings"),
        )

    @property
    def attention_params(self) -> int:
        """A layer's four attention projections, with the norms and biases that its family adds."""
        projections = 2 * self.hidden * self.queries + 2 * self.hidden * self.keys
        extra = {
            "qwen2": self.queries + 2 * self.keys,
            "qwen3": 2 * self.head,
            "qwen3_moe": 2 * self.head,
            "olmo3": self.queries + self.keys,
        }
        return projections + extra.get(self.family, 0)

    @property
    def expert_params(self) -> int:
        """The parameters of one expert of a layer, or of its only MLP."""
        return 3 * self.hidden * self.intermediate

    @property
    def layer_params(self) -> int:
        """A layer's attention, experts with their router, and two norms."""
        router = 0
        if self.experts > 1:
            router = self.hidden * self.experts
        return self.attention_params + self.experts * self.expert_params + router + 2 * self.hidden

    @property
    def engine_matrices(self) -> tuple[int, ...]:
        """The sizes of a layer's large matrices in vLLM, which fuses those that read the same
        input."""
        mlp = self.experts * self.hidden * self.intermediate
        return (
            self.hidden * (self.queries + 2 * self.keys),
            self.hidden * self.queries,
            2 * mlp,
            mlp,
        )

    @property
    def table_params(self) -> int:
        """The parameters of the input embedding; the head has as many, its own or shared ones."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """All parameters: layers, embedding and head (once if they are tied), and the last norm."""
        return self.layers * self.layer_params + self.tables * self.table_params + self.hidden

    @property
    def tables(self) -> int:
        """1 if embedding and head are the same matrix, else 2."""
        if self.tied:
            return 1
        return 2

    @property
    def active_params(self) -> int:
        """The number of parameters used in one token's forward pass."""
        unused = (self.experts - self.experts_used) * self.expert_params
        return self.layers * (self.layer_params - unused) + self.table_params

    @property
    def cache_bytes(self) -> int:
        """Bytes of one token's keys and values in bfloat16."""
        return 2 * 2 * self.layers * self.keys

    def adapter_params(self, rank: int, targets: tuple[str, ...] | str) -> int:
        """The number of parameters of a LoRA adapter.

        In a mixture of experts, "all-linear" counts only attention, for which engines reserve room.
        """
        names = tuple(name for name in PROJECTIONS if name in targets)
        if targets == "all-linear":
            names = PROJECTIONS if self.experts == 1 else PROJECTIONS[:4]
        ends = {
            "q_proj": self.queries,
            "k_proj": self.keys,
            "v_proj": self.keys,
            "o_proj": self.queries,
        }
        widths = sum(self.hidden + ends.get(name, self.intermediate) for name in names)
        return self.layers * rank * widths


class UnknownShape(ValueError):
    """The sizes of a model's weights are not known on this machine."""


@lru_cache(maxsize=32)
def shape_of(model: str) -> Shape:
    """The shape of a model given by its folder, or by a hub name that the table lists or this
    machine has cached.

    Raises UnknownShape if it is unknown.
    """
    try:
        return Shape.of(_config(model))
    except KeyError as absent:
        raise UnknownShape(
            f"{model}: its config.json has no {absent.args[0]}, which a plan needs: add the model's"
            f" values to {KNOWN.name}"
        ) from absent


def _config(model: str) -> dict[str, Any]:
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    if own := known.get(model):
        return known.get(own.get("same_as"), {}) | own
    folder: Path | None = Path(model)
    if not Path(model).is_dir():
        folder = _snapshot(model)
    if folder is None or not (folder / "config.json").is_file():
        raise UnknownShape(
            f"the shape of {model} is not known: give the folder of the model (a config.json in it"
            f" is enough), or add its values to {KNOWN.name}"
        )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return config.get("text_config") or config


def _snapshot(model: str) -> Path | None:
    """The latest snapshot of a hub name in this machine's cache, or None; does not ask the hub."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE, f"models--{model.replace('/', '--')}", "snapshots")
    return max(folder.glob("*"), default=None)
