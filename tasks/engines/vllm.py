"""vLLM in this process, driven step by step.

Environment variables must be set before torch or vllm is imported: `tasks.engines.child` does it.
"""

import gc
import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import torch

from tasks.engines.vllm_args import check_reload, engine_args
from tasks.models.engine import (
    Completion,
    EngineConfig,
    EngineDied,
    Policy,
    Sampling,
    check_policies,
    end_ids,
    load_tokenizer,
    local_folder,
    never,
    reply_text,
    too_long,
)


class Worker:
    """Methods added to vLLM's workers, one per tensor-parallel rank."""

    reload_weights: Any

    def load_policy(self, folder: str) -> None:
        """Replace all weights in place with those of an HF folder or cached hub name."""
        self.reload_weights(weights_iterator=weights_of(folder))


def weights_of(name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name and tensor of every weight, including a tied output head.

    Without it, vLLM on CPUs would keep the old head.
    """
    from safetensors import safe_open

    folder = local_folder(name)
    config = json.loads((folder / "config.json").read_text())
    for shard in sorted(folder.glob("*.safetensors")):
        with safe_open(str(shard), framework="pt") as tensors:
            for key in tensors.keys():  # noqa: SIM118  (no mapping)
                yield key, tensors.get_tensor(key)
                if config.get("tie_word_embeddings") and key.endswith("embed_tokens.weight"):
                    yield "lm_head.weight", tensors.get_tensor(key)


class VllmEngine:
    """One vLLM engine.

    Full-weight policies take turns in it; adapter policies share its batches.
    """

    def __init__(self, config: EngineConfig):
        if config.device == "cpu":
            torch.set_num_threads(config.threads)
            torch.cpu._init_amx()  # without it, bf16 dies with SIGILL when torch.compile is off
            if config.max_lora_rank:
                from tasks.engines.cpu_lora import install

                install()
        from vllm.v1.engine.llm_engine import LLMEngine

        self.config = config
        self.max_model_len = config.max_model_len
        self.max_num_seqs = config.max_num_seqs
        self.is_on_gpu = config.device == "cuda"
        self.tokenizer: Any = load_tokenizer(config.model)
        self._engine: Any = LLMEngine.from_engine_args(engine_args(config))
        self._engine.output_processor.tokenizer = self.tokenizer
        self._end_ids = end_ids(config.model, self.tokenizer)
        self._weights = config.model
        self._weights_hash = None
        self._adapters: dict[str, Any] = {}
        self._asleep = False
        # the caller's key, and the reply if it is given, not sampled
        self._in_flight: dict[str, tuple[Hashable, list[int] | None]] = {}
        self._refused: list[tuple[Hashable, Completion]] = []
        self._num_requests = 0
        gc.collect()
        # imported and loaded objects stay: the garbage collector need not scan them at every step
        gc.freeze()

    def use(self, policy: Policy) -> None:
        check_policies(self.config, [policy])
        if self.config.max_lora_rank:
            self._register(policy)
        # an adapter's hash says nothing about its base
        full = None if policy.adapter else policy.content_hash
        hash_fits = full is None or self._weights_hash in (None, full)
        if policy.weights == self._weights and hash_fits:
            self._weights_hash = full or self._weights_hash
            return
        assert not self._in_flight, "weights change only when nothing is in flight"
        check_reload(self.config)
        # if loading fails halfway, the next call loads again
        self._weights = ""
        self._weights_hash = None
        self._engine.collective_rpc("load_policy", args=(policy.weights,))
        forget_prefixes(self._engine)
        self._weights = policy.weights
        self._weights_hash = full

    def submit(
        self, key: Hashable, token_ids: list[int], sampling: Sampling, seed: int, policy: Policy
    ) -> None:
        room = self.max_model_len - len(token_ids)
        if room < 1:
            self._refused.append((key, too_long(len(token_ids), self.max_model_len)))
            return
        params = self._params(sampling, min(sampling.max_tokens, room), seed)
        self._add(key, token_ids, params, policy)

    def submit_reply(
        self, key: Hashable, token_ids: list[int], reply_ids: list[int], policy: Policy
    ) -> None:
        ids = token_ids + reply_ids
        if len(ids) >= self.max_model_len:
            self._refused.append((key, too_long(len(ids), self.max_model_len)))
            return
        self._add(key, ids, _prompt_params(), policy, reply_ids)

    def _add(
        self,
        key: Hashable,
        token_ids: list[int],
        params: Any,
        policy: Policy,
        reply_ids: list[int] | None = None,
    ) -> None:
        self._num_requests += 1
        request_id = str(self._num_requests)
        self._in_flight[request_id] = key, reply_ids
        self._engine.add_request(
            request_id,
            {"type": "token", "prompt_token_ids": token_ids},
            params,
            lora_request=self._adapters[policy.content_hash] if policy.adapter else None,
        )

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        """As `Engine.poll`. Raises EngineDied if vLLM stopped; all requests in flight are lost."""
        done = self._refused
        self._refused = []
        while not done and self._in_flight:
            try:
                outputs = self._engine.step()
            except Exception as error:
                raise EngineDied(
                    f"vLLM stopped with {len(self._in_flight)} requests in flight: {error!r}"
                ) from error
            done = [self._completion(output) for output in outputs if output.finished]
            if interrupted():
                break
        return done

    def abort(self, keys: Sequence[Hashable]) -> None:
        unwanted = set(keys)
        self._refused = [
            (key, completion) for key, completion in self._refused if key not in unwanted
        ]
        requests = [
            request_id for request_id, (key, _) in self._in_flight.items() if key in unwanted
        ]
        for request_id in requests:
            del self._in_flight[request_id]
        if requests:
            self._engine.abort_request(requests)

    def sleep(self) -> None:
        """Release the GPU's memory until `wake`. Does nothing on CPUs."""
        if self.config.device == "cuda" and not self._asleep:
            self._engine.sleep(level=1)
            self._asleep = True

    def wake(self) -> None:
        if self._asleep:
            self._engine.wake_up()
            self._asleep = False

    def close(self) -> None:
        self._engine.engine_core.shutdown()

    def _completion(self, output: Any) -> tuple[Any, Completion]:
        key, reply_ids = self._in_flight.pop(output.request_id)
        reply = output.outputs[0]
        reason = reply.finish_reason
        error = None
        if reason not in ("stop", "length"):
            error = f"vLLM ended the request: {reason}"
            reason = "error"
        if reply_ids is not None and error is None:
            # flat: a token's entries begin at its start index, with the token itself
            flat = output.prompt_logprobs
            logprobs = [flat.logprobs[i] for i in flat.start_indices[-len(reply_ids) :]]
            return key, Completion(reply_ids, logprobs, "", "stop")
        ids = list(reply.token_ids)
        return key, Completion(
            token_ids=ids,
            logprobs=list(reply.logprobs.logprobs),
            text=reply_text(self.tokenizer, ids, self._end_ids),
            finish_reason=reason,
            error=error,
        )

    def _params(self, sampling: Sampling, max_tokens: int, seed: int) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        stop_ids = stop_token_ids(self.tokenizer, sampling.stop)
        form = None
        if sampling.form is not None:
            form = StructuredOutputsParams(regex=sampling.form)
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=max_tokens,
            seed=seed,
            structured_outputs=form,
            stop=list(sampling.stop) if stop_ids is None else None,
            stop_token_ids=sorted(self._end_ids | frozenset(stop_ids or ())),
            detokenize=stop_ids is None,
            include_stop_str_in_output=True,
            skip_special_tokens=False,
            logprobs=0,
            flat_logprobs=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
            skip_clone=True,
        )

    def _register(self, policy: Policy) -> None:
        """Give every adapter a new id (vLLM keeps the old weights of an id it knows)."""
        from vllm.lora.request import LoRARequest

        if policy.adapter is not None and policy.content_hash not in self._adapters:
            number = len(self._adapters) + 1
            self._adapters[policy.content_hash] = LoRARequest(
                policy.content_hash, number, policy.adapter
            )


def forget_prefixes(engine: Any) -> None:
    """Empty vLLM's prefix cache, which holds keys and values of the previous weights.

    vLLM refuses while a block is in use. On GPUs a step runs ahead of the last reply and may still
    use one.

    Raises:
        EngineDied: the cache cannot be emptied, so replies would mix two policies.
    """
    for _ in range(3):
        if engine.reset_prefix_cache():
            return
        engine.step()
    raise EngineDied("vLLM still uses keys and values of the weights before")


def _prompt_params() -> Any:
    """Parameters for log-probabilities of the prompt; vLLM insists on sampling one token."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0,
        max_tokens=1,
        detokenize=False,
        prompt_logprobs=0,
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


@lru_cache(maxsize=64)
def _stop_token_ids(tokenizer: Any, stop: tuple[str, ...]) -> list[int] | None:
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    if (
        backend["model"]["type"] != "WordLevel"
        or backend["decoder"] is not None
        or any(" " in s for s in stop)
    ):
        return None
    return sorted(
        {i for token, i in tokenizer.get_vocab().items() if any(s in token for s in stop)}
    )


def stop_token_ids(tokenizer: Any, stop: tuple[str, ...]) -> list[int] | None:
    """The token ids that complete a stop string; None if a stop string may span several tokens.

    In vocabularies of whole words joined by spaces, each stop string lies within one token. vLLM
    then need not decode at every step, which takes a quarter of a tiny model's time.
    """
    if not stop:
        return []
    return _stop_token_ids(tokenizer, stop)
