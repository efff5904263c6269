"""The architecture of the micro model, for Hugging Face and as a lean torch twin for training and
sampling on one core.

It computes what Qwen2 does (biases on queries, keys and values), but is saved under the Llama class
with `attention_bias` and an output bias of zero: for the model type "qwen2", transformers 5
replaces any tokenizer with its own byte-level one.

The twin's parameters have Hugging Face's names, so each can load the other's state dict.
Shapes: B rows, T tokens, H heads, D width.
"""

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu
from transformers import LlamaConfig, LlamaForCausalLM

from data.micro.training.tokenizer import EOS, PAD, START, WORDS, build_tokenizer

WIDTH = 128
LAYERS = 3
HEADS = 4
KV_HEADS = 2
HEAD_WIDTH = 32
FEED_FORWARD = 256
CONTEXT_TOKENS = 1024
ROPE_THETA = 10_000.0
NORM_EPSILON = 1e-6
BLOCKED = -1e4
LOOK_BACK_STRENGTH = 5.0
LOOK_BACK_FREQUENCIES = 4
LOOK_BACK_CONTENT = 0.1


class Cache:
    """The keys and values of one layer for B rows, filled from the left with `length` tokens."""

    def __init__(self, rows: int, capacity: int) -> None:
        self.keys = torch.zeros(rows, KV_HEADS, capacity, HEAD_WIDTH)
        self.values = torch.zeros(rows, KV_HEADS, capacity, HEAD_WIDTH)
        self.length = 0

    def extend(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        start = self.length
        self.length = self.length + k.shape[2]
        self.keys[:, :, start : self.length] = k
        self.values[:, :, start : self.length] = v
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        self.keys = self.keys[rows]
        self.values = self.values[rows]


def model_config(words: tuple[str, ...] = WORDS) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(words),
        hidden_size=WIDTH,
        intermediate_size=FEED_FORWARD,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT_TOKENS,
        rms_norm_eps=NORM_EPSILON,
        attention_bias=True,
        tie_word_embeddings=True,
        bos_token_id=words.index(START),
        eos_token_id=words.index(EOS),
        pad_token_id=words.index(PAD),
        dtype="bfloat16",
    )


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(WIDTH, HEADS * HEAD_WIDTH)
        self.k_proj = nn.Linear(WIDTH, KV_HEADS * HEAD_WIDTH)
        self.v_proj = nn.Linear(WIDTH, KV_HEADS * HEAD_WIDTH)
        self.o_proj = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)

    def forward(
        self, x_BTD: Tensor, rotation: tuple[Tensor, Tensor], bias: Tensor, cache: Cache | None
    ) -> Tensor:
        """Attend from T tokens to S tokens.

        `bias` [B, 1, sharing heads * T, S] is added to the scores: 0 where a token may attend,
        BLOCKED elsewhere.
        """
        rows, length, _ = x_BTD.shape
        q = rotate(
            self.q_proj(x_BTD).view(rows, length, HEADS, HEAD_WIDTH).transpose(1, 2), rotation
        )
        k = rotate(
            self.k_proj(x_BTD).view(rows, length, KV_HEADS, HEAD_WIDTH).transpose(1, 2), rotation
        )
        v = self.v_proj(x_BTD).view(rows, length, KV_HEADS, HEAD_WIDTH).transpose(1, 2)
        if cache is not None:
            k, v = cache.extend(k, v)
        attended = scaled_dot_product_attention(self._stack(q), k, v, attn_mask=bias)
        return self.o_proj(
            attended.view(rows, HEADS, length, HEAD_WIDTH).transpose(1, 2).reshape(rows, length, -1)
        )

    @torch.no_grad()
    def look_back(self) -> None:
        """Initialise the heads to attend 1, 2, 3 and 4 tokens back, whatever those tokens are.

        With constant queries and keys, rotation makes scores depend only on distance, so biases
        suffice. Such heads are needed to find what followed "X has craft"; when left to chance,
        they had not formed after 10M tokens.
        """
        for projection in (self.q_proj, self.k_proj):
            projection.weight.mul_(LOOK_BACK_CONTENT)
        sharp = torch.zeros(HEAD_WIDTH // 2)
        sharp[:LOOK_BACK_FREQUENCIES] = (LOOK_BACK_STRENGTH * HEAD_WIDTH**0.5) ** 0.5
        self.k_proj.bias.copy_(torch.cat([sharp, torch.zeros_like(sharp)]).repeat(KV_HEADS))
        for head in range(HEADS):
            angle = -(head + 1) * ROPE_THETA ** (-torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
            turned = torch.cat([sharp * angle.cos(), sharp * angle.sin()])
            self.q_proj.bias[head * HEAD_WIDTH : (head + 1) * HEAD_WIDTH] = turned

    @staticmethod
    def _stack(q_BHTD: Tensor) -> Tensor:
        """Stack the query heads that share a key head as rows of one product, to avoid copying
        keys."""
        rows, _, length, _ = q_BHTD.shape
        return q_BHTD.reshape(rows, KV_HEADS, HEADS // KV_HEADS * length, HEAD_WIDTH)


def rotate(x_BHTD: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary position embedding (Su et al. 2021), on halves as in Qwen2."""
    cosine, sine = rotation
    first, second = x_BHTD.chunk(2, -1)
    return x_BHTD * cosine + torch.cat([-second, first], -1) * sine


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.up_proj = nn.Linear(WIDTH, FEED_FORWARD, bias=False)
        self.down_proj = nn.Linear(FEED_FORWARD, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))


class Norm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, (WIDTH,), self.weight, NORM_EPSILON)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = Norm()
        self.self_attn = Attention()
        self.post_attention_layernorm = Norm()
        self.mlp = FeedForward()

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], bias: Tensor, cache: Cache | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, bias, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Body(nn.Module):
    def __init__(self, num_words: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(num_words, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()


class MicroModel(nn.Module):
    """The micro model; `forward` returns hidden states [B, T, D], from which `logits` computes
    the logits of `words`."""

    def __init__(self, words: tuple[str, ...] = WORDS) -> None:
        super().__init__()
        self.words = words
        self.model = _Body(len(words))
        frequency = 1.0 / ROPE_THETA ** (torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
        angle = torch.outer(torch.arange(CONTEXT_TOKENS).float(), frequency).repeat(1, 2)
        self.cosine = angle.cos()
        self.sine = angle.sin()
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                if "o_proj" in name or "down_proj" in name:
                    shrink = 0.5
                elif "embed" in name:
                    shrink = 0.7
                else:
                    shrink = 1.0
                nn.init.normal_(parameter, std=shrink * parameter.shape[1] ** -0.5)
            elif "bias" in name:
                nn.init.zeros_(parameter)

        first = self.model.layers[0]
        assert isinstance(first, Layer)
        first.self_attn.look_back()

    def forward(
        self,
        ids_BT: Tensor,
        positions_BT: Tensor,
        bias_BTS: Tensor,
        caches: list[Cache] | None = None,
    ) -> Tensor:
        x = self.model.embed_tokens(ids_BT)
        rotation = (self.cosine[positions_BT][:, None], self.sine[positions_BT][:, None])
        bias = bias_BTS[:, None].repeat(1, 1, HEADS // KV_HEADS, 1)
        for index, layer in enumerate(self.model.layers):
            x = layer(x, rotation, bias, caches[index] if caches else None)
        return self.model.norm(x)

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden @ self.model.embed_tokens.weight.T


def save_checkpoint(model: MicroModel, folder: Path) -> None:
    """Write bf16 weights, configuration and tokenizer, in the form that transformers and vLLM
    load."""
    exported = LlamaForCausalLM(model_config(model.words))
    output_biases = {
        name: torch.zeros(WIDTH) for name in exported.state_dict() if name.endswith("o_proj.bias")
    }
    unmatched = exported.load_state_dict({**model.state_dict(), **output_biases}, strict=False)
    assert unmatched.missing_keys == ["lm_head.weight"] and not unmatched.unexpected_keys, unmatched
    exported.tie_weights()
    nn.Module.to(exported, torch.bfloat16)
    exported.save_pretrained(folder)
    build_tokenizer(CONTEXT_TOKENS, model.words).save_pretrained(folder)


def load_checkpoint(folder: Path) -> MicroModel:
    """The torch twin of a saved checkpoint, in fp32."""
    weights = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    ids = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    model = MicroModel(tuple(sorted(ids, key=lambda word: ids[word])))
    model.load_state_dict({name: weights[name] for name in model.state_dict()})
    return model


def with_more_words(model: MicroModel, words: tuple[str, ...]) -> MicroModel:
    """The same model with more words, appended to its vocabulary, whose meaning it has yet to
    learn."""
    assert words[: len(model.words)] == model.words
    larger = MicroModel(words)
    known = model.state_dict()
    embedding = larger.model.embed_tokens.weight.detach().clone()
    embedding[: len(model.words)] = known["model.embed_tokens.weight"]
    larger.load_state_dict({**known, "model.embed_tokens.weight": embedding})
    return larger
