"""An OpenAI-compatible completions endpoint that takes and returns token ids.

vLLM's server is one:

    python -m vllm.entrypoints.openai.api_server --model MODEL --logprobs-mode processed_logprobs

For training on GPUs, add --hf-overrides '{"head_dtype": "float32"}': the trainer does not round
logits either.
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

from tasks.engines.deadline import within
from tasks.engines.endpoint import without
from tasks.models.engine import (
    Completion,
    EngineConfig,
    EngineDied,
    Policy,
    Sampling,
    check_policies,
    end_ids,
    load_tokenizer,
    never,
    reply_text,
    too_long,
)

POLL_S = 0.05  # how often a wait for replies checks whether it is interrupted
# Servers take settings that are not sent from the model's generation_config.json: top_k 20 for
# Qwen3, and also a penalty for Qwen2.5.
NEUTRAL = {
    "top_k": -1,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
# Statuses that concern only the request: only its row is lost. Any other status of 400 or above
# that outlasts the retries stops the engine, which reloads the adapters when it is restarted.
OWN_FAULTS = {400, 413, 422}


class _Refused(RuntimeError):
    """A status of 400 or above that is not the request's fault."""


class EndpointEngine:
    """One or several servers of the same model.

    A reply carries the error if the server rejects the request, ends it, or sends something other
    than a reply. A server that is unreachable, or that was restarted without its adapters, stops
    the engine: requests that it does not answer must not be published as failed.
    """

    def __init__(self, config: EngineConfig):
        self._key = os.environ.get(config.api_key_env, "")
        self.config = config
        self.max_model_len = config.max_model_len
        self.max_num_seqs = config.max_num_seqs
        self.is_on_gpu = False  # no GPU of this machine: the servers compute
        self.tokenizer: Any = load_tokenizer(config.model)
        self._end_ids = end_ids(config.model, self.tokenizer)
        limits = httpx.Limits(max_connections=config.max_num_seqs)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._http = httpx.Client(
            timeout=config.timeout_s, limits=limits, headers=headers, trust_env=False
        )
        self._threads = ThreadPoolExecutor(config.max_num_seqs, thread_name_prefix="endpoint")
        self._done: queue.SimpleQueue[tuple[Hashable, Completion | EngineDied]] = (
            queue.SimpleQueue()
        )
        self._pending: set[Hashable] = set()
        self._lock = threading.Lock()
        self._ready: set[str] = set()
        # models whose servers are known to return log-probabilities of given tokens
        self._scores_replies: set[str] = set()

    def use(self, policy: Policy) -> None:
        """Load the policy's adapter into every server, and check once what the servers return.

        Raises:
            ValueError: full weights other than the servers' own, an endpoint that cannot load
                adapters, that returns no token ids, or whose log-probabilities ignore the
                temperature.
        """
        check_policies(self.config, [policy])
        if policy.adapter is None and policy.weights != self.config.model:
            raise ValueError(
                f"policy {policy.id}: an endpoint serves the weights it was started with"
                f' ({self.config.model}), not {policy.weights}. Use adapters, or kind="vllm".'
            )
        name = self._name(policy)
        if name in self._ready:
            return
        for url in self.config.urls:
            if policy.adapter is not None:
                self._load_adapter(url, name, policy.adapter)
            self._check_endpoint(url, name)
        self._ready.add(name)

    def submit(
        self, key: Hashable, token_ids: list[int], sampling: Sampling, seed: int, policy: Policy
    ) -> None:
        self._pending.add(key)
        room = self.max_model_len - len(token_ids)
        if room < 1:
            self._done.put((key, too_long(len(token_ids), self.max_model_len)))
            return
        max_tokens = min(sampling.max_tokens, room)
        body = self._body(self._name(policy), token_ids, sampling, max_tokens, seed)
        self._threads.submit(self._reply, key, self._url(token_ids), body)

    def submit_reply(
        self, key: Hashable, token_ids: list[int], reply_ids: list[int], policy: Policy
    ) -> None:
        name = self._name(policy)
        ids = token_ids + reply_ids
        if name not in self._scores_replies:
            for url in self.config.urls:
                self._check_prompt_logprobs(url, name)
            self._scores_replies.add(name)
        self._pending.add(key)
        if len(ids) >= self.max_model_len:
            self._done.put((key, too_long(len(ids), self.max_model_len)))
            return
        body = self._prompt_body(name, ids)
        self._threads.submit(self._score_reply, key, self._url(token_ids), body, reply_ids)

    def poll(self, interrupted: Callable[[], bool] = never) -> list[tuple[Any, Completion]]:
        """As `Engine.poll`. Raises EngineDied if a server was unreachable for longer than the
        retries take, or no longer serves the policy."""
        done: list[tuple[Any, Completion]] = []
        while self._pending and (not done or not self._done.empty()):
            with contextlib.suppress(queue.Empty):
                key, completion = self._done.get(timeout=POLL_S)
                if isinstance(completion, EngineDied):
                    raise completion
                if key in self._pending:
                    self._pending.remove(key)
                    done.append((key, completion))
            if not done and interrupted():
                break
        return done

    def abort(self, keys: Sequence[Hashable]) -> None:
        """Discard these replies; the servers still finish them."""
        self._pending -= set(keys)

    def sleep(self) -> None:
        """Do nothing: servers keep their memory."""

    def wake(self) -> None:
        """Do nothing: servers keep their memory."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def _name(self, policy: Policy) -> str:
        """The name under which the servers know a policy."""
        if policy.adapter is None:
            return self.config.model
        return f"{policy.id}-{policy.content_hash[:16]}"

    def _body(
        self, model: str, token_ids: list[int], sampling: Sampling, max_tokens: int, seed: int
    ) -> dict[str, Any]:
        form: dict[str, Any] = {}
        if sampling.form is not None:
            form = {"structured_outputs": {"regex": sampling.form}}
        return {
            **form,
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
        return {
            **self._body(model, token_ids, Sampling(max_tokens=1), 1, seed=0),
            "prompt_logprobs": 0,
        }

    def _url(self, token_ids: list[int]) -> str:
        """The server for a prompt. All samples of a prompt go to one server, to use its prefix
        cache. The whole prompt decides which: the prompts of one role share a prefix, which would
        send them all to one server."""
        prompt = blake2b(repr(token_ids).encode(), digest_size=4).digest()
        return self.config.urls[int.from_bytes(prompt, "big") % len(self.config.urls)]

    def _score_reply(
        self, key: Hashable, url: str, body: dict[str, Any], reply_ids: list[int]
    ) -> None:
        reply: Completion | EngineDied
        try:
            # for each token of prompt and reply: {id: {"logprob": ...}}
            by_id = self._complete(url, body)["prompt_logprobs"][-len(reply_ids) :]
            logprobs = [
                entry[str(token_id)]["logprob"]
                for entry, token_id in zip(by_id, reply_ids, strict=True)
            ]
            reply = Completion(reply_ids, logprobs, "", "stop")
        except Exception as error:  # as in _reply
            reply = self._failure(url, error)
        self._done.put((key, reply))

    def _reply(self, key: Hashable, url: str, body: dict[str, Any]) -> None:
        reply: Completion | EngineDied
        try:
            choice = self._complete(url, body)
            reason = choice["finish_reason"]
            if reason not in ("stop", "length"):
                raise ValueError(f"the server ended the request: {reason}")
            ids = list(choice["token_ids"])
            reply = Completion(
                token_ids=ids,
                logprobs=list(choice["logprobs"]["token_logprobs"]),
                text=reply_text(self.tokenizer, ids, self._end_ids),
                finish_reason=reason,
            )
        # whatever the endpoint sends, this row keeps the reason and the others go on
        except Exception as error:
            reply = self._failure(url, error)
        self._done.put((key, reply))

    def _failure(self, url: str, error: Exception) -> Completion | EngineDied:
        """The outcome of a request without a reply."""
        why = without(self._key, f"{url}: {error!r}")[:1000]
        if isinstance(error, (httpx.TransportError, _Refused)):
            return EngineDied(f"{why}. Repeat the command once the server answers")
        return Completion([], [], "", "error", why)

    def _complete(self, url: str, body: dict[str, Any]) -> Any:
        """The first of the choices that a server returns."""
        return self._post(f"{url.rstrip('/')}/completions", body)["choices"][0]

    def _post(self, url: str, body: dict[str, Any]) -> Any:
        """Post; if the server is unreachable or busy, try again after 1, 2, 4, ... seconds.

        Raises:
            httpx.TransportError: it is still unreachable.
            _Refused: it is still busy, or serves no such model.
            ValueError: it rejects the request, or does not send JSON.
        """
        failure: Exception = RuntimeError("never asked")
        for attempt in range(self.config.retries + 1):
            if attempt:
                time.sleep(min(2 ** (attempt - 1), 30))
            try:
                limit = within(self.config.timeout_s)
                response = self._http.post(url, json=body, extensions=limit)
            except httpx.TransportError as error:
                failure = error
                continue
            if response.status_code < 400:
                return response.json()
            why = f"status {response.status_code}: {without(self._key, response.text)[:500]}"
            if response.status_code in OWN_FAULTS:
                raise ValueError(why)
            failure = _Refused(why)
            if response.status_code < 500 and response.status_code != 429:
                break
        raise failure

    def _load_adapter(self, url: str, name: str, folder: str) -> None:
        body = {"lora_name": name, "lora_path": os.path.abspath(folder)}
        response = self._http.post(f"{url.rstrip('/')}/load_lora_adapter", json=body)
        if response.status_code >= 400 and "already" not in response.text:
            raise ValueError(
                f"{url} did not load adapter {folder}: {response.text[:300]}. Start it with"
                " --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, on a machine that sees"
                " this folder."
            )

    def _check_prompt_logprobs(self, url: str, name: str) -> None:
        body = self._prompt_body(name, sorted(self._end_ids) * 2)
        try:
            logprobs = self._complete(url, body).get("prompt_logprobs")
        except Exception as error:
            raise ValueError(
                f"endpoint {url} refuses prompt_logprobs: {error!r}. vLLM's server takes them."
            ) from error
        if not logprobs:
            raise ValueError(
                f"endpoint {url} returns no prompt_logprobs: it cannot tell how likely a given"
                " reply is. vLLM's server can; switch off what asks for it, or serve the model"
                " with vLLM."
            )

    def _check_endpoint(self, url: str, name: str) -> None:
        """Ask for one token at two temperatures and check what comes back."""
        prompt = sorted(self._end_ids)
        tops = []
        for temperature in (1.0, 0.5):
            sampling = Sampling(temperature=temperature, top_p=1, max_tokens=1)
            body = self._body(name, prompt, sampling, 1, seed=0)
            try:
                choice = self._complete(url, body)
            except Exception as error:
                raise ValueError(
                    f"endpoint {url} does not serve {name}: {error!r}. Check urls and that it"
                    " is up."
                ) from error
            if not choice.get("token_ids"):
                raise ValueError(
                    f"endpoint {url} returns no token ids, which training needs. vLLM's server"
                    " does."
                )
            logprobs = choice.get("logprobs") or {}
            top_logprobs = logprobs.get("top_logprobs", [{"": 0.0}])
            tops.append(max(top_logprobs[0].values()))
        if tops[0] == tops[1] and tops[0] < -1e-6:
            raise ValueError(
                f"endpoint {url} returns log-probabilities that ignore the temperature. "
                "Start it with --logprobs-mode processed_logprobs."
            )
