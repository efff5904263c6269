"""A scripted engine with a real tokenizer, for hostile and broken replies."""

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedTokenizerFast

from tasks.models.engine import (
    Completion,
    EngineDied,
    Policy,
    Sampling,
    never,
    reply_text,
    too_long,
)

CHAT = (
    "{% for m in messages %}<|im_start|> {{ m['role'] }} {{ m['content'] }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)
WORDS = (  # noqa: SIM905  (to be read as words)
    "<pad> <unk> <|im_start|> <|im_end|> user assistant tool system sentinelturn u <think> </think>"
    " <search> </search> <task> </task> <answer> </answer> <information> </information> <tool_call>"
    " </tool_call> a b c d e f g h moon sun sea red blue search left 0 1 2 3 now format error none"
    " ‹answer› ‹/answer› evil ‹|im_end|› "
).split()
POLICY = Policy(id="scripted", weights="scripted", content_hash="0")


def word_tokenizer(chat: str = CHAT) -> PreTrainedTokenizerFast:
    """One id per word of `WORDS`, in that order; <|im_end|> (3) ends a turn."""
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", pad_token="<pad>", eos_token="<|im_end|>"
    )
    tokenizer.chat_template = chat
    return tokenizer


class ScriptedEngine:
    """`reply(key, prompt text)` is the model's reply. One that ends in `...` was cut off; None
    kills the engine.

    `likelihood(prompt text, given reply)` is the log-probability of every token of a given reply.
    """

    def __init__(
        self,
        reply: Callable[[Hashable, str], str | None],
        max_model_len: int = 200,
        chat: str = CHAT,
        likelihood: Callable[[str, str], float] = lambda prompt, reply: -0.5,
    ):
        self.tokenizer: Any = word_tokenizer(chat)
        self.max_model_len = max_model_len
        self.max_num_seqs = 4
        self.is_on_gpu = False
        self.prompts: list[str] = []
        self.seeds: list[int] = []
        self._reply = reply
        self._likelihood = likelihood
        self._queue: list[tuple[Hashable, list[int]]] = []
        self._given: dict[Hashable, list[int]] = {}

    def use(self, policy: Policy) -> None:
        assert policy == POLICY

    def submit(
        self, key: Hashable, token_ids: list[int], sampling: Sampling, seed: int, policy: Policy
    ) -> None:
        self.seeds.append(seed)
        self._queue.append((key, token_ids))

    def submit_reply(
        self, key: Hashable, token_ids: list[int], reply_ids: list[int], policy: Policy
    ) -> None:
        self._given[key] = reply_ids
        self._queue.append((key, token_ids))

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        """Answer the latest request first, so that conversations overtake each other."""
        if not self._queue:
            return []
        key, ids = self._queue.pop()
        if len(ids) >= self.max_model_len:
            return [(key, too_long(len(ids), self.max_model_len))]
        prompt = self.tokenizer.decode(ids)
        self.prompts.append(prompt)
        if (given := self._given.pop(key, None)) is not None:
            logprob = self._likelihood(prompt, self.tokenizer.decode(given))
            return [(key, Completion(given, [logprob] * len(given), "", "stop"))]
        text = self._reply(key, prompt)
        if text is None:
            raise EngineDied("scripted death")
        cut = text.endswith("...")
        said = self.tokenizer(text.removesuffix("..."), add_special_tokens=False)["input_ids"]
        reply = reply_text(self.tokenizer, said, frozenset([3]))
        return [(key, Completion(said, [-0.5] * len(said), reply, "length" if cut else "stop"))]

    def abort(self, keys: Sequence[Hashable]) -> None:
        self._queue = [(key, ids) for key, ids in self._queue if key not in keys]

    def sleep(self) -> None: ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


def model_folder(path: Path, seed: int = 0, hidden: int = 64) -> Path:
    """A tiny random Qwen2 with the word tokenizer, saved as an HF folder."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=hidden,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=3,
        bos_token_id=2,
        pad_token_id=0,
        initializer_range=0.3,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    word_tokenizer().save_pretrained(path)
    return path
