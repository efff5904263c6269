"""Play a whole flow over scripted engines: conversations, searches, filters and updates are real.

Engines and trainer run in this process; the model is a tiny random one that reads and writes any
text.
"""

from __future__ import annotations

import functools
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from flows.method import Method
from flows.runtime.record import last_request
from tasks.engines.fleet import Fleet
from tasks.engines.fleet_child import search_and_roll_out
from tasks.models.engine import Completion, Policy, Sampling, never, too_long
from tasks.rollouts.conversation import seed_from
from tasks.rollouts.replies import reply_logprobs
from tasks.update import Trainer
from warehouse.address import Address
from warehouse.fork import fork
from warehouse.freshness import Again, Recipe
from warehouse.schemas import ADVANTAGES, GROUPS, REWARDS, SELECTIONS
from warehouse.store import Store, Table
from warehouse.whatif import WhatIf, leading_to

FLOWS = Path(__file__).resolve().parents[2] / "flows"
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>"]
MOST_TURNS = 8


@dataclass(frozen=True)
class Asked:
    """A request to an engine: a turn of a sample of a prompt, all counted from 0.

    `attempt` is 1 when the request is repeated.
    """

    template: str
    text: str
    sample: int
    turn: int
    attempt: int


Say = Callable[[Asked], str | None]


@dataclass
class Script:
    """`say` gives a reply; one that ends in `...` was cut off, None is an engine error.
    Remembers all requests."""

    say: Say
    asked: list[Asked] = field(default_factory=list)
    counts: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def reply(self, prompt: Mapping[str, Any], sample: int, turn: int) -> str | None:
        place = (prompt["prompt_id"], sample, turn)
        asked = Asked(
            prompt["template"], prompt["messages"][-1]["content"], sample, turn, self.counts[place]
        )
        self.counts[place] += 1
        self.asked.append(asked)
        return self.say(asked)


class ScriptedEngine:
    """The engine of one call, which identifies a turn by its seed."""

    max_num_seqs = 8
    is_on_gpu = False

    def __init__(
        self, script: Script, prompts: list[dict[str, Any]], samples: int, seed: int, policy: Policy
    ) -> None:
        self.tokenizer = load_tokenizer(policy.weights)
        self.max_model_len = self.tokenizer.model_max_length
        self._script, self._queue = script, list[tuple[Any, Completion]]()
        self._turns = {
            seed_from(seed_from(seed, prompt["prompt_id"], sample), turn): (prompt, sample, turn)
            for prompt in prompts
            for sample in range(samples)
            for turn in range(MOST_TURNS)
        }

    def use(self, policy: Policy) -> None:
        assert Path(policy.weights).is_dir()

    def submit(
        self, key: Any, token_ids: list[int], sampling: Sampling, seed: int, policy: Policy
    ) -> None:
        if len(token_ids) >= self.max_model_len:
            self._queue.append((key, too_long(len(token_ids), self.max_model_len)))
            return
        text = self._script.reply(*self._turns[seed])
        if text is None:
            self._queue.append((key, Completion([], [], "", "error", error="as the script says")))
            return
        said, cut = text.removesuffix("..."), text.endswith("...")
        ids = [*self.tokenizer(said, add_special_tokens=False)["input_ids"], *([] if cut else [2])]
        self._queue.append(
            (key, Completion(ids, [-0.5] * len(ids), said, "length" if cut else "stop"))
        )

    def submit_reply(
        self, key: Any, token_ids: list[int], reply_ids: list[int], policy: Policy
    ) -> None:
        self._queue.append((key, Completion(reply_ids, [-0.5] * len(reply_ids), "", "stop")))

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        """Answer the latest request first, so that conversations overtake each other."""
        return [self._queue.pop()] if self._queue else []

    def abort(self, keys: Sequence[Any]) -> None:
        self._queue = [(key, completion) for key, completion in self._queue if key not in keys]


def perform(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every fleet reply by the script, and every update run in this process.

    Reports run their queries and paint their figures, but nothing is laid out and written as SVG,
    which takes longer than everything else in them: `tests/tasks/reports` and the runs with real
    engines do that.
    """

    def roll_out(
        self: Fleet,
        prompts: Iterable[Mapping[str, Any]],
        policy: Policy,
        *_: Any,
        group_size: int = 1,
        attempt: int = 0,
        **call: Any,
    ) -> Iterator[dict[str, Any]]:
        rows = [dict(prompt) for prompt in prompts]
        engine = ScriptedEngine(script, rows, group_size, call["seed"], policy)
        return search_and_roll_out(
            engine, prompts=rows, policy=policy, group_size=group_size, **call
        )  # pyright: ignore[reportArgumentType]

    def weigh(
        self: Fleet, prompts: Iterable[Mapping[str, Any]], policy: Policy, dialogue: Any
    ) -> Iterator[Any]:
        return reply_logprobs(ScriptedEngine(script, [], 0, 0, policy), prompts, policy, dialogue)  # pyright: ignore[reportArgumentType]

    def train(self: Trainer, job: Any) -> Any:
        from tasks.training.trainer import train as update

        return update(job)

    def print_no_svg(self: FigureCanvasSVG, buffer: TextIO, **_: Any) -> None:
        buffer.write("<svg ></svg>")

    monkeypatch.setattr(FigureCanvasSVG, "print_svg", print_no_svg)
    monkeypatch.setattr(Fleet, "roll_out", roll_out)
    monkeypatch.setattr(Fleet, "reply_logprobs", weigh)
    monkeypatch.setattr(Trainer, "train", train)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    # unused here, and it doubles the time to import TRL
    monkeypatch.setitem(sys.modules, "vllm", None)


def first_stale_in_fork(method: Method, store: Store, folder: Path, **settings: Any) -> str | None:
    """The first stage of an iteration that a fork of the played run `r` after iteration 1 would
    rebuild, or None.

    A copy of the store is made in `folder`.
    """
    copy = Store(shutil.copytree(store.root, folder / "forked", dirs_exist_ok=True))
    if not copy.folder("f").exists():
        fork(copy, "r", "f", 1, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(copy.root))
        inquiry = method.inquire(last_request(copy, "r").model_copy(update={"run": "f"}), settings)
    return next(
        (address for address, stale in inquiry.reasons if stale and "/iter-" in address), None
    )


class MadeAgain(WhatIf):
    """Reruns every stage that can be rerun, stale or not."""

    def passed(
        self, table: Table, recipe: Recipe, again: Again, arguments: Mapping[str, Any]
    ) -> None:
        super().passed(table, {**recipe, "key": "another"}, again, arguments)


def changed_if(method: Method, store: Store, folder: Path, **settings: Any) -> set[str]:
    """Names of the rewards and selections of the played run `r` that `settings` would change.

    Without settings, every stage that does not ask, sample or train is rerun and compared.
    """
    compared = frozenset(
        t.address
        for t in store.tables("r")
        if t.schema in (REWARDS, ADVANTAGES, SELECTIONS, GROUPS)
    )
    kind = WhatIf if settings else MadeAgain
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFPLAY_STORE", str(store.root))
        rule = kind(scratch=Store(folder / "scratch"), wanted=leading_to(store, compared))
        played = method.play_by(rule, last_request(store, "r"), settings)
    assert (played.unmade, played.stopped) == (None, None)
    assert settings or compared <= set(played.made)
    return {Address.parse(address).name for address in compared & played.instead.keys()}


def any_text_model(folder: Path, max_tokens: int = 4096, hidden: int = 16) -> Path:
    """A tiny random Qwen2 whose tokenizer knows the words of the methods' prompts and spells out
    all others. vLLM needs `hidden` to be 64."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=1500, special_tokens=SPECIAL, initial_alphabet=alphabet
    )
    texts = [path.read_text() for path in sorted(FLOWS.glob("*/prompts/english/*.jinja"))]
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<|im_end|>",
        model_max_length=max_tokens,
    )
    fast.chat_template = CHAT
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(fast),
        hidden_size=hidden,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=max_tokens,
        eos_token_id=2,
        pad_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@functools.cache
def load_tokenizer(folder: str) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(folder)
