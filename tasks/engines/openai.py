"""An OpenAI-compatible completions endpoint that takes and returns token ids, such as vLLM's server.

python -m vllm.entrypoints.openai.api_server --model MODEL --logprobs-mode processed_logprobs

For training, on GPUs also --hf-overrides '{"head_dtype": "float32"}': the trainer does not round logits either.
"""

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

import httpx

from tasks.engines.base import (
    Completion,
    EngineConfig,
    Policy,
    Sampling,
    check_policies,
    end_ids,
    load_tokenizer,
    never,
    reply_text,
    too_long,
)
from tasks.engines.endpoint import without

POLL_S = 0.05  # how often a wait for replies checks whether it is interrupted
# Servers take what is not sent from the model's generation_config.json: top_k 20 for Qwen3, also a penalty for Qwen2.5.
NEUTRAL = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}


class EndpointEngine:
    """One or several servers of the same model. A failing server's replies carry the error."""

    def __init__(self, config: EngineConfig):
        self._key = key = os.environ.get(config.api_key_env, "")
        self.config = config
        self.max_model_len = config.max_model_len
        self.max_num_seqs = config.max_num_seqs
        self.is_on_gpu = False  # no GPU of this machine: the servers compute
        self.tokenizer: Any = load_tokenizer(config.model)
        self._end_ids = end_ids(config.model, self.tokenizer)
        limits = httpx.Limits(max_connections=config.max_num_seqs)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(timeout=config.timeout_s, limits=limits, headers=headers, trust_env=False)
        self._threads = ThreadPoolExecutor(config.max_num_seqs, thread_name_prefix="endpoint")
        self._done: queue.SimpleQueue[tuple[Hashable, Completion]] = queue.SimpleQueue()
        self._pending: set[Hashable] = set()
        self._lock = threading.Lock()
        self._ready: set[str] = set()
        self._weighs: set[str] = set()

    def use(self, policy: Policy) -> None:
        """Load the policy's adapter into every server, and check once that the servers return what is needed.

        Raises:
            ValueError: full weights other than the servers' own, an endpoint that cannot load adapters, that returns no
                token ids, or whose log-probabilities ignore the temperature.
        """
        check_policies(self.config, [policy])
        if policy.adapter is None and policy.weights != self.config.model:
            raise ValueError(
                f"policy {policy.id}: an endpoint serves the weights it was started with ({self.config.model}), "
                f'not {policy.weights}. Use adapters, or kind="vllm".'
            )
        name = self._name(policy)
        if name in self._ready:
            return
        for url in self.config.urls:
            if policy.adapter is not None:
                self._load_adapter(url, name, policy.adapter)
            self._check_endpoint(url, name)
        self._ready.add(name)

    def submit(self, key: Hashable, token_ids: list[int], sampling: Sampling, seed: int, policy: Policy) -> None:
        self._pending.add(key)
        room = self.max_model_len - len(token_ids)
        if room < 1:
            self._done.put((key, too_long(len(token_ids), self.max_model_len)))
            return
        body = self._body(self._name(policy), token_ids, sampling, min(sampling.max_tokens, room), seed)
        self._threads.submit(self._reply, key, self._url(token_ids), body)

    def submit_reply(self, key: Hashable, token_ids: list[int], reply_ids: list[int], policy: Policy) -> None:
        name, ids = self._name(policy), token_ids + reply_ids
        if name not in self._weighs:
            for url in self.config.urls:
                self._check_prompt_logprobs(url, name)
            self._weighs.add(name)
        self._pending.add(key)
        if len(ids) >= self.max_model_len:
            self._done.put((key, too_long(len(ids), self.max_model_len)))
            return
        self._threads.submit(self._weigh, key, self._url(token_ids), self._prompt_body(name, ids), reply_ids)

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        done: list[tuple[Any, Completion]] = []
        while self._pending and (not done or not self._done.empty()):
            with contextlib.suppress(queue.Empty):
                key, completion = self._done.get(timeout=POLL_S)
                if key in self._pending:
                    self._pending.remove(key)
                    done.append((key, completion))
            if not done and interrupted():
                break
        return done

    def abort(self, keys: Sequence[Hashable]) -> None:
        """The servers finish these replies, which are discarded."""
        self._pending -= set(keys)

    def sleep(self) -> None:
        """Servers keep their memory."""

    def wake(self) -> None:
        """Servers keep their memory."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def _name(self, policy: Policy) -> str:
        return self.config.model if policy.adapter is None else f"{policy.id}-{policy.content_hash[:16]}"

    def _body(self, model: str, token_ids: list[int], sampling: Sampling, max_tokens: int, seed: int) -> dict[str, Any]:
        return {
            "model": model,
            "prompt": token_ids,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            **NEUTRAL,
            "max_tokens": max_tokens,
            "seed": seed,
            "stop": list(sampling.stop),
            "stop_token_ids": sorted(self._end_ids),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "logprobs": 1,
            "return_token_ids": True,
        }

    def _prompt_body(self, model: str, token_ids: list[int]) -> dict[str, Any]:
        return {**self._body(model, token_ids, Sampling(max_tokens=1), 1, seed=0), "prompt_logprobs": 0}

    def _url(self, token_ids: list[int]) -> str:
        """Prompts with a common prefix go to one server, to use its prefix cache."""
        start = blake2b(repr(token_ids[:64]).encode(), digest_size=4).digest()
        return self.config.urls[int.from_bytes(start, "big") % len(self.config.urls)]

    def _weigh(self, key: Hashable, url: str, body: dict[str, Any], reply_ids: list[int]) -> None:
        try:
            found = self._post(f"{url.rstrip('/')}/completions", body)["choices"][0]["prompt_logprobs"]
            of_reply = zip(found[-len(reply_ids) :], reply_ids, strict=True)
            reply = Completion(reply_ids, [of[str(i)]["logprob"] for of, i in of_reply], "", "stop")
        except Exception as error:  # as in _reply
            reply = Completion([], [], "", "error", self._why(url, error))
        self._done.put((key, reply))

    def _reply(self, key: Hashable, url: str, body: dict[str, Any]) -> None:
        try:
            choice = self._post(f"{url.rstrip('/')}/completions", body)["choices"][0]
            ids, logprobs = list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])
            reason = "length" if choice["finish_reason"] == "length" else "stop"
            reply = Completion(ids, logprobs, reply_text(self.tokenizer, ids, self._end_ids), reason)
        except Exception as error:  # whatever the endpoint does, this row keeps the reason and the others go on
            reply = Completion([], [], "", "error", self._why(url, error))
        self._done.put((key, reply))

    def _why(self, url: str, error: Exception) -> str:
        return without(self._key, f"{url}: {error!r}")[:1000]

    def _post(self, url: str, body: dict[str, Any]) -> Any:
        """Post; if the server is away or busy, try again after 1, 2, 4, ... seconds."""
        failure: Exception = RuntimeError("never asked")
        for attempt in range(self.config.retries + 1):
            if attempt:
                time.sleep(min(2 ** (attempt - 1), 30))
            try:
                response = self._http.post(url, json=body)
            except httpx.TransportError as error:
                failure = error
                continue
            if response.status_code < 400:
                return response.json()
            failure = RuntimeError(f"status {response.status_code}: {response.text[:500]}")
            if response.status_code < 500 and response.status_code != 429:
                break
        raise failure

    def _load_adapter(self, url: str, name: str, folder: str) -> None:
        body = {"lora_name": name, "lora_path": os.path.abspath(folder)}
        response = self._http.post(f"{url.rstrip('/')}/load_lora_adapter", json=body)
        if response.status_code >= 400 and "already" not in response.text:
            raise ValueError(
                f"{url} did not load adapter {folder}: {response.text[:300]}. Start it with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, on a machine that sees this folder."
            )

    def _check_prompt_logprobs(self, url: str, name: str) -> None:
        body = self._prompt_body(name, sorted(self._end_ids) * 2)
        try:
            found = self._post(f"{url.rstrip('/')}/completions", body)["choices"][0].get("prompt_logprobs")
        except Exception as error:
            raise ValueError(f"endpoint {url} refuses prompt_logprobs: {error!r}. vLLM's server takes them.") from error
        if not found:
            raise ValueError(
                f"endpoint {url} returns no prompt_logprobs: it cannot tell how likely a given reply is. "
                "vLLM's server can; switch off what asks for it, or serve the model with vLLM."
            )

    def _check_endpoint(self, url: str, name: str) -> None:
        """Ask for one token at two temperatures and look at what comes back."""
        prompt, tops = sorted(self._end_ids), []
        for temperature in (1.0, 0.5):
            body = self._body(name, prompt, Sampling(temperature=temperature, top_p=1, max_tokens=1), 1, seed=0)
            try:
                choice = self._post(f"{url.rstrip('/')}/completions", body)["choices"][0]
            except Exception as error:
                raise ValueError(
                    f"endpoint {url} does not serve {name}: {error!r}. Check urls and that it is up."
                ) from error
            if not choice.get("token_ids"):
                raise ValueError(f"endpoint {url} returns no token ids, which training needs. vLLM's server does.")
            tops.append(max((choice.get("logprobs") or {}).get("top_logprobs", [{"": 0.0}])[0].values()))
        if tops[0] == tops[1] and tops[0] < -1e-6:
            raise ValueError(
                f"endpoint {url} returns log-probabilities that ignore the temperature. "
                "Start it with --logprobs-mode processed_logprobs."
            )
