"""Engines: token ids in, sampled token ids and their log-probabilities out.

An engine is vLLM in this process, or an OpenAI-compatible endpoint that returns token ids. Both
take requests one by one and return finished replies, so conversations of different lengths share a
batch.
"""

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from tasks.models.yarn import Yarn

SHAPE = (
    "architectures",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
)


def _variable(name: str) -> str:
    if name and not re.fullmatch(r"[A-Z_][A-Z0-9_]{0,63}", name):
        raise ValueError(
            "it is the name of an environment variable, in capitals, not the key itself"
        )
    return name


# name of an environment variable that holds a key; empty: there is no key
VariableName = Annotated[str, AfterValidator(_variable)]
MAX_LORAS = 4  # adapters in one batch of an engine: as many as the players it may serve at once
MOST_TOKENS = 1 << 26  # maximum length of a context: a larger value is a mistake
METADATA = "__metadata__"  # the key in a safetensors header that is not a tensor
OVER_LIMIT = "is longer than the limit"  # in the error of a prompt that was not sampled from


class EngineDied(RuntimeError):
    """The engine has failed; requests in flight are lost and may be submitted to a new one."""


class Policy(BaseModel):
    """Weights to sample from: full weights, or an adapter on them.

    `weights` is an HF folder or a hub name, `adapter` a PEFT LoRA folder, `content_hash` names the
    parameters' content.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    id: str
    weights: str
    adapter: str | None = None
    content_hash: str

    def recipe_identity(self) -> dict[str, str]:
        """Only the content: the folders' paths do not count, since a store may move."""
        return {"id": self.id, "content_hash": self.content_hash}


class Sampling(BaseModel):
    """Distribution and length of one reply. A stop string ends the reply and stays in its text.

    `form` is a regular expression that vLLM makes the reply match, by ruling out every token that
    does not fit. The reply and its log-probabilities then come from another distribution than the
    policy's, so no update trains on it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    temperature: float = Field(default=1.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(gt=0)
    stop: tuple[str, ...] = ()
    form: str | None = None

    @model_serializer(mode="wrap")
    def _without_unused_form(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out an unused form, so that recipes of free replies are those from before there
        were forms."""
        fields: dict[str, Any] = dump(self)
        if self.form is None:
            del fields["form"]
        return fields


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply.

    token_ids: sampled ids, T, including the end-of-turn token if it was sampled.
    logprobs: natural log-probabilities of these ids, T, under the distribution after temperature
    and top-p.
    text: the decoded ids, with special tokens but without the closing end-of-turn token.
    """

    token_ids: list[int]
    logprobs: list[float]
    text: str
    finish_reason: Literal["stop", "length", "error"]
    error: str | None = None


class EngineConfig(BaseModel):
    """How to run one engine.

    `model` is the HF folder or hub name loaded first; policies of the same architecture replace its
    weights in place. `max_lora_rank` 0 disables adapters. `urls` and `api_key_env` (the *name* of
    an environment variable) are for `kind="openai"`; `kv_cache_bytes` is for CPUs,
    `gpu_memory_utilization` for GPUs. On GPUs vLLM measures the free memory when it starts, which
    engines of other runs disturb: engines that share a GPU need a `fixed_kv_cache`. `yarn` is for
    long contexts. `place="ray"` starts the engine on a node of the Ray cluster that has room, which
    changes no row.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    kind: Literal["vllm", "openai"] = Field(
        default="vllm",
        description="vllm: in this process; openai: servers at `urls` that return token ids",
    )
    place: Literal["local", "ray"] = Field(
        default="local",
        description='"ray": on a node of the Ray cluster with free resources, which changes no row',
    )
    model: str = Field(
        description=(
            "model to load first: a folder or owner/name on the hub; policies of its architecture"
            " replace its weights in place"
        )
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="data type of weights and arithmetic"
    )
    max_model_len: int = Field(
        gt=0, le=MOST_TOKENS, description="maximum number of tokens of prompt and reply together"
    )
    yarn: Yarn | None = None
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="what vLLM runs on")
    gpu_memory_utilization: float = Field(
        default=0.9, gt=0, le=1, description="share of a GPU's memory that vLLM uses"
    )
    kv_cache_bytes: int = Field(
        default=1 << 28, gt=0, description="size of the KV cache on CPUs, or of a fixed one on GPUs"
    )
    fixed_kv_cache: bool = Field(
        default=False,
        description="on GPUs, use a KV cache of kv_cache_bytes instead of the free memory",
    )
    tensor_parallel: int = Field(default=1, ge=1, description="number of GPUs that share one model")
    max_lora_rank: int = Field(
        default=0, ge=0, description="maximum rank of an adapter; 0: adapters are off"
    )
    max_num_seqs: int = Field(
        default=256, ge=1, description="maximum number of replies sampled at once"
    )
    max_batched_tokens: int = Field(
        default=8192,
        ge=1,
        description=(
            "maximum number of tokens in one forward pass: bounds the memory for activations"
        ),
    )
    enforce_eager: bool = Field(
        default=False,
        description=(
            "start without CUDA graphs and compilation: starts sooner, but samples more slowly"
        ),
    )
    threads: int = Field(default=1, ge=1, description="threads of vLLM on CPUs")
    urls: tuple[str, ...] = Field(
        default=(),
        description='addresses for kind="openai", up to `/v1`; requests are spread over them',
    )
    api_key_env: VariableName = Field(
        default="OPENAI_API_KEY",
        description=(
            "name of the environment variable that holds the servers' key; empty: no key is sent"
        ),
    )
    timeout_s: float = Field(default=600, gt=0, description="time limit of one request to a server")
    retries: int = Field(default=4, ge=0, description="retries of a failed request to a server")

    @model_validator(mode="after")
    def _adapters_on_cpus_are_of_one_process(self) -> "EngineConfig":
        if (
            self.device == "cpu"
            and self.kind == "vllm"
            and self.max_lora_rank
            and self.tensor_parallel > 1
        ):
            raise ValueError(
                "an engine on CPUs that serves adapters is one process: set tensor_parallel = 1"
            )
        return self

    @model_validator(mode="after")
    def _adapters_on_gpus_are_in_half_precision(self) -> "EngineConfig":
        if (
            self.device == "cuda"
            and self.kind == "vllm"
            and self.max_lora_rank
            and self.dtype == "float32"
        ):
            raise ValueError(
                "on GPUs vLLM serves adapters in half precision only: set engine.dtype = float16 or"
                " bfloat16"
            )
        return self

    @model_validator(mode="after")
    def _endpoint_has_urls(self) -> "EngineConfig":
        if (self.kind == "openai") != bool(self.urls):
            raise ValueError(
                f'urls belong to kind="openai": got kind="{self.kind}" with {len(self.urls)} urls'
            )
        if self.kind == "openai" and self.place == "ray":
            raise ValueError(
                'place="ray" is for kind="vllm": servers behind urls run by themselves'
            )
        return self


def never() -> bool:
    """The `interrupted` of a `poll` that waits until a reply is finished: always False."""
    return False


class Engine(Protocol):
    """What the conversation loop needs from an engine."""

    tokenizer: Any
    max_model_len: int
    max_num_seqs: int
    # whether it runs on this machine's GPU: this process can do other work while it computes
    is_on_gpu: bool

    def use(self, policy: Policy) -> None:
        """Make `policy` ready to sample from.

        No request may be in flight when full weights change.
        """
        ...

    def submit(
        self, key: Hashable, token_ids: list[int], sampling: Sampling, seed: int, policy: Policy
    ) -> None:
        """Queue one reply. A prompt that does not fit comes back as a Completion with its error."""
        ...

    def submit_reply(
        self, key: Hashable, token_ids: list[int], reply_ids: list[int], policy: Policy
    ) -> None:
        """Queue a reply that is given, not sampled.

        It comes back as a Completion of `reply_ids` without text. Its log-probabilities are those
        after the prompt `token_ids`, at temperature 1 and top-p 1. Prompt, reply and one more token
        must fit into the context; otherwise the Completion carries the error.

        Raises:
            ValueError: the endpoint returns no log-probabilities of given tokens.
        """
        ...

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        """Return the replies finished since the last call.

        Waits for at least one, or until `interrupted` returns True between two steps of the engine.
        Empty if nothing is in flight.

        Raises:
            EngineDied: the engine failed; all requests in flight are lost.
        """
        ...

    def abort(self, keys: Sequence[Hashable]) -> None:
        """Drop requests whose replies are no longer wanted.

        Keys that are not in flight are ignored.
        """
        ...

    def sleep(self) -> None:
        """Release the accelerator's memory until `wake`. Nothing may be in flight."""
        ...

    def wake(self) -> None:
        """Take back the memory that `sleep` released; do nothing if the engine is awake."""
        ...

    def close(self) -> None:
        """Shut down the engine; replies in flight are lost."""
        ...


def check_policies(config: EngineConfig, policies: Iterable[Policy]) -> None:
    """Check that `config`'s engine can serve `policies`, before anything is loaded.

    Raises:
        ValueError: a missing folder; a tokenizer, chat template or shape that differs from that of
            the engine's model; an adapter on an engine without adapters.
    """
    check_model(config.model)
    for policy in policies:
        check_model(policy.weights)
        if not is_alike(config.model, policy.weights):
            raise ValueError(
                f"policy {policy.id}: tokenizer, chat template or shape of {policy.weights} differs"
                f" from that of {config.model}, which the engine was loaded with. Give it an engine"
                " of its own (judge_engine)."
            )
        if policy.adapter is None:
            continue
        if not (Path(policy.adapter) / "adapter_config.json").is_file():
            raise ValueError(
                f"policy {policy.id}: no adapter_config.json in {policy.adapter}. Is it a PEFT"
                " folder?"
            )
        rank = rank_of(policy.adapter)
        if rank > config.max_lora_rank:
            raise ValueError(
                f"policy {policy.id}: adapter of rank {rank} on an engine with max_lora_rank "
                f"{config.max_lora_rank}. Raise it."
            )


def rank_of(adapter: str) -> int:
    """The rank of the adapter in a PEFT folder. Raises OSError without adapter_config.json."""
    return json.loads((Path(adapter) / "adapter_config.json").read_text())["r"]


def check_model(name: str) -> None:
    """Check that a path is an HF model folder. Any other name is left to the hub.

    Raises:
        ValueError: the folder is missing or is not a model.
    """
    folder = Path(name)
    if not folder.exists():
        if folder.is_absolute() or name.startswith(".") or name.count("/") != 1:
            raise ValueError(
                f"model folder {name} does not exist. Check the path, or give a hub name such as"
                " Qwen/Qwen3-8B. `selfplay demo english` says how data/models/smollm2 is made."
            )
        return
    for needed in ("config.json", "tokenizer.json"):
        if not (folder / needed).is_file():
            raise ValueError(
                f"model folder {name} has no {needed}. Save the model and its tokenizer there."
            )
    if not any(folder.glob("*.safetensors")):
        raise ValueError(f"model folder {name} has no *.safetensors. Save its weights there.")


def check_files(folder: Path) -> None:
    """Raise ValueError if a model's config.json cannot be read, or its weights are truncated."""
    try:
        config = _read_json(folder / "config.json")
    except ValueError as problem:
        raise ValueError(f"{folder / 'config.json'} cannot be read: {problem}") from None
    if not isinstance(config, dict) or "model_type" not in config:
        raise ValueError(f"{folder / 'config.json'} describes no model: it has no model_type")
    for file in sorted(folder.glob("*.safetensors")):
        _check_length(file)


def _check_length(file: Path) -> None:
    """Raise ValueError if a safetensors file is shorter or longer than its header says.

    The format: 8 bytes with the header's length (little endian); the header, a JSON object of
    tensors with their `data_offsets` after it; and the tensors' bytes.
    """
    size = file.stat().st_size
    with open(file, "rb") as weights:
        length = int.from_bytes(weights.read(8), "little")
        try:
            tensors = json.loads(weights.read(length)) if length < size else {}
            ends = [of["data_offsets"][1] for name, of in tensors.items() if name != METADATA]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError):
            ends = []
    if not ends or 8 + length + max(ends) != size:
        raise ValueError(f"{file} is damaged: its {size} bytes are not what its header says")


def is_alike(model: str, other: str) -> bool:
    """Whether an engine loaded with one model can take another's weights and use its tokenizer.
    Models are folders or hub names. Raises as `tokenizer_hash` does."""
    if model == other:
        return True
    return tokenizer_hash(model) == tokenizer_hash(other) and shape_of(model) == shape_of(other)


@lru_cache(maxsize=64)
def shape_of(name: str) -> Mapping[str, Any]:
    """The settings that determine the tensors' sizes, by name; None for a setting that the model
    does not have. Raises as `local_folder` does."""
    config = json.loads((local_folder(name) / "config.json").read_text())
    return {key: config.get(key) for key in SHAPE}


@lru_cache(maxsize=16)
def load_tokenizer(name: str) -> Any:
    """The tokenizer exactly as tokenizer.json defines it.

    AutoTokenizer is not used: for model type qwen2, transformers 5 replaces the file's
    pre-tokenizer with a byte-level one.
    """
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast.from_pretrained(name)


@lru_cache(maxsize=64)
def tokenizer_hash(name: str) -> str:
    """A hash of everything that turns messages into token ids: 32 hex digits.

    It covers the tokenizer, its end-of-turn token, and the chat template. Raises as `local_folder`
    does, and OSError for a model without tokenizer.json.
    """
    folder = local_folder(name)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    settings = _read_json(folder / "tokenizer_config.json")
    parts = {
        key: tokenizer[key] for key in tokenizer if key not in ("truncation", "padding", "version")
    }
    eos = settings.get("eos_token")
    parts["eos"] = eos["content"] if isinstance(eos, dict) else eos
    parts["chat"] = settings.get("chat_template")
    template = folder / "chat_template.jinja"
    if template.is_file():
        parts["chat"] = template.read_text()
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _read_json(file: Path) -> dict[str, Any]:
    """The file's content; empty if there is no file."""
    if not file.is_file():
        return {}
    return json.loads(file.read_text())


def local_folder(name: str) -> Path:
    """An HF folder as it is; for a hub name, its snapshot on this machine.

    Raises ValueError if there is neither.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                name, allow_patterns=["*.json", "*.safetensors", "*.jinja", "tokenizer*"]
            )
        )
    except OSError as problem:
        why = " ".join(str(problem).split())[:200]
        raise ValueError(
            f"model {name} is no folder here and cannot be had from the hub: {why}"
        ) from problem


def end_ids(model: str, tokenizer: Any) -> frozenset[int]:
    """The ids that end a turn, from the tokenizer, its chat template and the model's own settings.

    A base model's end-of-text token differs from the one with which its chat template closes a
    reply.
    """
    ids = {tokenizer.eos_token_id, _closing_id(tokenizer)}
    for name in ("generation_config.json", "config.json"):
        eos = _read_json(local_folder(model) / name).get("eos_token_id")
        if isinstance(eos, int):
            ids.add(eos)
        else:
            ids.update(eos or ())
    return frozenset(ids - {None})


def _closing_id(tokenizer: Any) -> int | None:
    """The special token that the chat template writes between a reply and the next message.

    None if there is none.
    """
    if not tokenizer.chat_template:
        return None
    question = {"role": "user", "content": "u"}
    reply = {"role": "assistant", "content": "closing"}
    text = tokenizer.apply_chat_template([question, reply, question], tokenize=False)
    after = text.rpartition("closing")[2]
    first = tokenizer(after, add_special_tokens=False)["input_ids"][:1]
    special = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    return next((number for number in first if number in special), None)


def too_long(num_tokens: int, max_model_len: int) -> Completion:
    """The reply to a prompt that leaves no room for even one token."""
    reason = (
        f"prompt of {num_tokens} tokens {OVER_LIMIT}: it leaves no room in a context of"
        f" {max_model_len}"
    )
    return Completion([], [], "", "error", reason)


def reply_text(tokenizer: Any, token_ids: list[int], end_ids: frozenset[int]) -> str:
    """Sampled ids as text: special tokens are kept, a closing end-of-turn token is dropped."""
    if token_ids and token_ids[-1] in end_ids:
        token_ids = token_ids[:-1]
    return tokenizer.decode(
        token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
